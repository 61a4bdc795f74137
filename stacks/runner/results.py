"""Why a stack's run failed, in one word for the program and one line for a person."""

import re
import signal
from collections.abc import Iterable
from enum import StrEnum

from pulumi import automation
from pulumi.automation.errors import create_command_error

from stacks.runner.events import Run, is_declared, name_of, type_of

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
