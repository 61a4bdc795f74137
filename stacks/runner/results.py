"""What a run of the CLI came to: the engine's events, why it failed, and what a preview would change. Pure."""

import json
import re
import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pulumi import automation
from pulumi.automation.errors import create_command_error

from gpu_platform.domain.stacks import PreviewResult, PreviewStep, PropertyChange

ENGINE_TYPES = ("pulumi:pulumi:Stack", "pulumi:providers:")
"""Resources of the engine's own: every stack has them, and no program declares them."""

GONE = frozenset({"delete", "discard"})
CANCELLED_CODE = 8

NOT_FOUND_CODE = 6
"""Exit codes that the CLI promises since 3.227."""

MASK = "[secret]"
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
INLINE_PREFIX = re.compile(r"^(an unhandled error occurred: )?python inline source runtime error: ")

BACKEND = re.compile(
    r"blob \(|state directory|checkpoint|snapshot|PULUMI_ACCESS_TOKEN|incorrect passphrase|bucket|\.pulumi/",
    re.IGNORECASE,
)

UNHELPFUL = re.compile(r"^(update|preview|destroy) failed$")

LONGEST_MESSAGE = 500
"""Characters: it goes into a status field and a log line."""

SECRET_SIGNATURE = "4dabf18193072939515e22adb298388d"  # noqa: S105 -- the key by which Pulumi marks a special value
PATH_PART = re.compile(r"""\["(?P<quoted>(?:[^"\\]|\\.)*)"\]|\[(?P<index>\d+)\]|(?P<name>[^.\[]+)""")


@dataclass(frozen=True)
class Diagnostic:
    urn: str
    message: str


@dataclass(frozen=True)
class Run:
    """An account of a run, complete only if the CLI could write it to the end."""

    changes: dict[str, int]
    """Resources by operation, those that stay the same included."""

    resources: int
    """Those there at the end."""

    errors: tuple[Diagnostic, ...]
    refused: frozenset[str]
    """URNs whose provider failed."""


def read_event_log(path: Path) -> tuple[automation.EngineEvent, ...]:
    """A killed CLI leaves half a line, or no file."""
    events = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            events.append(automation.EngineEvent.from_json(json.loads(line)))
        except ValueError:
            break
    return tuple(events)


def build_run(events: Iterable[automation.EngineEvent]) -> Run:
    present: dict[str, bool] = {}
    errors: list[Diagnostic] = []
    refused: set[str] = set()
    events = tuple(events)
    for event in events:
        if event.res_outputs_event:
            step = event.res_outputs_event.metadata
            present[step.urn] = step.op.value not in GONE and step.new is not None
        if event.res_op_failed_event:
            refused.add(event.res_op_failed_event.metadata.urn)
        if event.diagnostic_event and event.diagnostic_event.severity == "error":
            errors.append(Diagnostic(event.diagnostic_event.urn or "", event.diagnostic_event.message))
    return Run(
        changes=dict(Counter(step.op.value for step in list_steps(events))),
        resources=sum(there for urn, there in present.items() if is_declared(type_of(urn))),
        errors=tuple(errors),
        refused=frozenset(refused),
    )


def list_steps(events: Iterable[automation.EngineEvent]) -> tuple[automation.StepEventMetadata, ...]:
    """The program's own, each once: a replacement counts as such, not as what it consists of."""
    steps = (event.resource_pre_event.metadata for event in events if event.resource_pre_event)
    return tuple(step for step in steps if step.logical and is_declared(step.type))


def is_declared(resource_type: str) -> bool:
    return not resource_type.startswith(ENGINE_TYPES)


def type_of(urn: str) -> str:
    """`urn:pulumi:<stack>::<project>::<parent type>$<type>::<name>`"""
    return urn.split("::")[2].rpartition("$")[2]


def name_of(urn: str) -> str:
    return urn.split("::", 3)[3]


class Fault(StrEnum):
    LOCKED = "locked"
    NOT_FOUND = "not-found"
    PROGRAM = "program"
    PROVIDER = "provider"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    BACKEND = "backend"
    OTHER = "other"


class StackFailedError(Exception):
    def __init__(self, fault: Fault, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.fault = fault
        self.exit_code = exit_code
        """None: no process was started, or a signal ended it."""

        self.message = message


class RunnerStoppedError(Exception):
    """The runner drains, and begins nothing more."""


class UnfitPulumiError(Exception):
    """There is no Pulumi CLI, or it is too old."""


def build_failure(
    result: automation.CommandResult, run: Run, program_error: Exception | None, secrets: Iterable[str] = ()
) -> StackFailedError:
    """For a process that ended by itself; the first row that fits.

    | what is known | fault |
    |---|---|
    | the program raised, or its asynchronous part did | PROGRAM |
    | the stack is locked | LOCKED |
    | there is no such stack | NOT_FOUND |
    | a provider failed a step, or could not be reached | PROVIDER |
    | somebody interrupted the CLI | CANCELLED |
    | the state could not be read or written | BACKEND |
    | anything else, a signal included | OTHER |
    """
    code = result.code if result.code >= 0 else None
    fault, message = _explain(result, run, program_error)
    return StackFailedError(fault, tidy(message, secrets), code)


def _explain(result: automation.CommandResult, run: Run, program_error: Exception | None) -> tuple[Fault, str]:
    if program_error is not None:
        return Fault.PROGRAM, f"{type(program_error).__name__}: {program_error}"
    kind = create_command_error(result)
    complaint = _find_complaint(result, run)
    if isinstance(kind, automation.InlineSourceRuntimeError) and not run.refused:
        return Fault.PROGRAM, complaint
    if isinstance(kind, automation.ConcurrentUpdateError):
        return Fault.LOCKED, _find_lock_holder(result.stderr) or complaint
    if isinstance(kind, automation.StackNotFoundError) or result.code == NOT_FOUND_CODE:
        return Fault.NOT_FOUND, complaint
    by_provider = next((error for error in run.errors if error.urn and not _is_stack(error.urn)), None)
    if by_provider:
        of = f"{name_of(by_provider.urn)}: " if is_declared(type_of(by_provider.urn)) else ""
        return Fault.PROVIDER, of + by_provider.message
    if result.code == CANCELLED_CODE:
        return Fault.CANCELLED, complaint
    if result.code < 0:
        return Fault.OTHER, f"the Pulumi CLI was ended by {signal.Signals(-result.code).name}"
    return (Fault.BACKEND if BACKEND.search(result.stderr) else Fault.OTHER), complaint


def tidy(message: str, secrets: Iterable[str] = ()) -> str:
    """One line, no colours, nothing secret, no trace."""
    text = INLINE_PREFIX.sub("", ANSI.sub("", message).partition("\nTraceback ")[0])
    line = "; ".join(part.strip() for part in text.splitlines() if part.strip())
    # The longest first: a secret may be part of another one.
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, MASK)
    return line if len(line) <= LONGEST_MESSAGE else f"{line[:LONGEST_MESSAGE]}…"


def _find_complaint(result: automation.CommandResult, run: Run) -> str:
    said = [error.message for error in run.errors if not UNHELPFUL.match(error.message.strip())]
    after_error = result.stderr.partition("error: ")[2]
    return next(iter(said), "") or after_error or result.stderr or f"the Pulumi CLI ended with {result.code}"


def _find_lock_holder(stderr: str) -> str | None:
    found = re.search(r"created by (\S+) \(pid (\d+)\) at (\S+)", stderr)
    return f"locked by {found[1]} (pid {found[2]}) since {found[3]}" if found else None


def _is_stack(urn: str) -> bool:
    return type_of(urn) == "pulumi:pulumi:Stack"


def build_preview(events: Iterable[automation.EngineEvent]) -> PreviewResult:
    """All changes by operation, and the steps that change something. Secrets are masked."""
    events = tuple(events)
    changing = (step for step in list_steps(events) if step.op is not automation.OpType.SAME)
    return PreviewResult(changes=build_run(events).changes, steps=tuple(build_step(step) for step in changing))


def build_step(step: automation.StepEventMetadata) -> PreviewStep:
    detailed = {path: (diff.diff_kind.value, diff.input_diff) for path, diff in (step.detailed_diff or {}).items()}
    differences = detailed or dict.fromkeys(step.diffs or (), ("update", True))
    properties = []
    for path, (kind, of_inputs) in sorted(differences.items()):
        old = (step.old.inputs if of_inputs else step.old.outputs) if step.old else None
        new = step.new.inputs if step.new else None
        change = PropertyChange(path=path, kind=kind, old=find_value(old, path), new=find_value(new, path))
        properties.append(change)
    return PreviewStep(op=step.op.value, resource=name_of(step.urn), type=step.type, properties=tuple(properties))


def find_value(tree: Any, path: str) -> Any:
    for part in PATH_PART.finditer(path):
        if is_secret(tree):
            return MASK
        index, name = part["index"], part["quoted"] or part["name"]
        if index is not None and isinstance(tree, list) and int(index) < len(tree):
            tree = tree[int(index)]
        elif index is None and isinstance(tree, dict):
            tree = tree.get(name)
        else:
            return None
    return masked(tree)


def masked(value: Any) -> Any:
    if is_secret(value):
        return MASK
    if isinstance(value, dict):
        return {name: masked(each) for name, each in value.items()}
    return [masked(each) for each in value] if isinstance(value, list) else value


def is_secret(value: Any) -> bool:
    return isinstance(value, dict) and SECRET_SIGNATURE in value and "ciphertext" in value
