"""Requests that can be repeated: each has an id, and a failure that leaves doubt tells it."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from gpu_platform.cli.errors import PlatformError
from gpu_platform.cli.tables import print_remark
from gpu_platform.cli.views import Json


def new_operation_id() -> str:
    return f"cli-{secrets.token_hex(8)}"


def new_invocation_id() -> str:
    """As the API would choose it. Chosen here, so that the transport may repeat a call without running it twice."""
    return f"inv-{secrets.token_hex(16)}"


def choose_operation_id(said: str | None, file: Json) -> str:
    """The option's, or else the file's, or else a new one."""
    return said or str(file.get("operationID") or "") or new_operation_id()


@contextmanager
def replayable(chosen_id: str, option: str = "--operation-id") -> Iterator[None]:
    """Around the request itself: after it, nothing is in doubt."""
    doubt = "it may have been accepted all the same; this repeats it without doing it twice:"
    remedy = f"the same command with  {option} {chosen_id}"
    try:
        yield
    except PlatformError as error:
        if error.is_ambiguous:
            error.add_note(doubt)
            error.add_note(remedy)
        raise
    except KeyboardInterrupt:
        print_remark(f"interrupted before the answer came; {doubt}\n  {remedy}")
        raise
