"""The modules that tenants import, and what each of them needs."""

import subprocess
import sys
from pathlib import Path

import gpu_platform.functions
import gpu_platform.pulumi
import providers.dynamic
import serverless


def test_the_pulumi_resources_are_those_that_earlier_programs_import() -> None:
    for name in ("GpuFunction", "GpuStorage", "GpuUnit"):
        assert getattr(gpu_platform.pulumi, name) is getattr(providers.dynamic, name)


def test_the_names_for_functions_are_those_of_the_framework() -> None:
    for name in gpu_platform.functions.__all__:
        assert getattr(gpu_platform.functions, name) is getattr(serverless, name)


def test_a_function_needs_nothing_but_python() -> None:
    """Without the packages that are installed here: -S leaves site-packages out."""
    program = "from gpu_platform.functions import Answer, Context, handler\nfrom serverless import handler"
    root = Path(gpu_platform.__file__).parents[1]
    done = subprocess.run([sys.executable, "-S", "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
