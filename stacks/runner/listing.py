"""Which stacks a backend has. Nothing but a restore asks: everybody else knows the name of the stack it works on."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpu_platform.domain.stacks import StackAddress, StackKind, parse_address
from stacks.runner.backend import STATE_SUFFIXES, shard_of
from stacks.runner.cli import Ending, ProcessFailedError, PulumiProcesses
from stacks.runner.events import build_run
from stacks.runner.results import Fault, StackFailedError, build_failure

SHARDS = tuple(f"{number:02x}" for number in range(256))


def list_files(root: Path) -> Iterator[StackAddress]:
    """Of one root on disk. What lies in another root than its name says is not found by anybody else either."""
    for kind in StackKind:
        for path in (root / ".pulumi" / "stacks" / kind).glob("*"):
            # A copy (`.bak`) ends otherwise.
            suffix = next((each for each in STATE_SUFFIXES if path.name.endswith(each)), None)
            address = parse_address(kind, path.name.removesuffix(suffix)) if suffix else None
            if address is not None and shard_of(address.stack) == root.name:
                yield address


def ask_cli(processes: PulumiProcesses, directory: Path, environment: Mapping[str, str]) -> Iterator[StackAddress]:
    """Of the root that the environment names, by one process."""
    try:
        arguments = ["stack", "ls", "--all", "--json", "--color", "never"]
        listed = processes.run(arguments, str(directory), environment).stdout
    except ProcessFailedError as error:
        processes.refuse_if_stopped()
        if error.ending is Ending.TIMEOUT:
            message = f"the Pulumi CLI did not list the stacks within {processes.timeout:g} s"
            raise StackFailedError(Fault.TIMEOUT, message) from None
        secrets = {environment["PULUMI_CONFIG_PASSPHRASE"]}
        raise build_failure(error.result, build_run(()), None, secrets) from None
    yield from parse_listing(listed)


def parse_listing(text: str) -> Iterator[StackAddress]:
    """`[{"name": "organization/<project>/<stack>", …}, …]`; the stacks of other projects are not ours."""
    for each in json.loads(text):
        project, _, stack = each["name"].rpartition("/")
        if address := parse_address(project.rpartition("/")[2], stack):
            yield address
