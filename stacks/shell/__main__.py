"""`python -m stacks.shell STACK ARGUMENTS`: becomes `pulumi ARGUMENTS` on that stack. Also `gpu-platform stack`."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from gpu_platform.domain.stacks import StackAddress, parse_address
from gpu_platform.settings import SettingsError
from stacks.runner.backend import StackFiles, build_absolute_url, build_root_url, find_directory
from stacks.runner.launch import hold_pid_file
from stacks.settings import StackWorkerSettings, choose_backend, load_stack_worker_settings, read_passphrase

MISUSED = 2
PROGRAM = Path(__file__).resolve().with_name("program")
PLUGIN = Path(__file__).resolve().parents[2] / "providers" / "cluster" / "bin"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="stacks.shell", description="Runs Pulumi on one of the platform's stacks.")
    parser.add_argument("--config", type=Path, help="the stack worker's settings as YAML")
    parser.add_argument("stack", help="such as gpu-unit/default.train")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of pulumi, such as: preview --diff")
    chosen = parser.parse_args(arguments)
    address = parse_address(*chosen.stack.partition("/")[::2])
    if address is None:
        sys.stderr.write(
            f"error: {chosen.stack!r} is no stack; write it as gpu-unit/TENANT.NAME, "
            "gpu-storage/TENANT.NAME, gpu-function/TENANT.NAME or stock-pool/stock.NAME\n"
        )
        return MISUSED
    try:
        settings = load_stack_worker_settings(chosen.config, os.environ)
        environment = build_environment(settings, address, os.environ)
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return MISUSED
    command = str(settings.pulumi.absolute()) if settings.pulumi else "pulumi"
    try:
        os.chdir(write_project(settings.state_directory, address.project))
    except OSError as error:
        sys.stderr.write(f"error: stateDirectory {settings.state_directory}: {error.strerror}\n")
        return MISUSED
    if (root := find_directory(environment["PULUMI_BACKEND_URL"])) is not None:
        # The stack worker sees by it that this process lives, when it finds the stack locked.
        hold_pid_file(str(StackFiles(root, address).pids))
    try:
        os.execvpe(command, build_command(command, address, chosen.arguments), environment)  # noqa: S606 - no shell wanted
    except FileNotFoundError:
        sys.stderr.write("error: there is no pulumi on PATH; name it as `pulumi` in the settings\n")
        return MISUSED


def write_project(state_directory: Path, project: str) -> Path:
    """The directory in which Pulumi runs, and where it keeps a settings file for each stack that it was used on."""
    directory = state_directory.absolute() / "by-hand" / project
    directory.mkdir(parents=True, exist_ok=True)
    content = {"name": project, "runtime": "python", "main": str(PROGRAM)}
    # Renamed into place: another command may read it meanwhile.
    new = directory / f"Pulumi.yaml.{os.getpid()}"
    new.write_text(yaml.safe_dump(content))
    new.replace(directory / "Pulumi.yaml")
    return directory


def build_command(command: str, address: StackAddress, arguments: list[str]) -> list[str]:
    verb, *options = arguments or ["preview"]
    return [command, verb, "--stack", address.stack, *options]


def build_environment(
    settings: StackWorkerSettings, address: StackAddress, environment: Mapping[str, str]
) -> dict[str, str]:
    if (kubeconfig := settings.kubeconfig) is not None:
        environment = {**environment, "KUBECONFIG": str(kubeconfig.resolve())}
    return {
        **environment,
        "PATH": os.pathsep.join([str(PLUGIN), environment.get("PATH", os.defpath)]),
        "PULUMI_BACKEND_URL": build_root_url(build_absolute_url(choose_backend(settings, environment)), address.stack),
        "PULUMI_CONFIG_PASSPHRASE": read_passphrase(settings, environment),
        # As the worker keeps it, and with the salt of the state: no settings file of the stack lies here.
        "PULUMI_DIY_BACKEND_GZIP": "true",
        "PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER": "true",
        "PULUMI_PYTHON_CMD": sys.executable,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
