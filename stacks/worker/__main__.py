"""`python -m stacks.worker`, which `gpu-platform stack-worker` starts: reads the settings and runs the process."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from gpu_platform.controller.probes import CannotListenError
from gpu_platform.kube.connection import NoConnectionError
from gpu_platform.process import configure_json_logs
from gpu_platform.settings import SettingsError
from stacks.runner.results import UnfitPulumiError
from stacks.settings import load_stack_worker_settings
from stacks.worker.process import run_worker

MISUSED = 2
"""Exit code: the person who started it must change something."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="stacks.worker", description="Keeps a Pulumi stack for each unit and pool.")
    parser.add_argument("--config", type=Path, help="settings as YAML; the environment comes over them")
    parser.add_argument("--tied", type=int, metavar="PID", help="end with this process, which started this one")
    chosen = parser.parse_args(arguments)
    try:
        settings = load_stack_worker_settings(chosen.config, os.environ)
        configure_json_logs(settings.log_level)
        asyncio.run(run_worker(settings, os.environ, parent=chosen.tied))
    except (SettingsError, NoConnectionError, CannotListenError, UnfitPulumiError) as error:
        sys.stderr.write(f"error: {error}\n")
        return MISUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
