"""stdout and stderr as they are: in encodings without all characters, and on disks without room."""

import codecs
import errno
import io
import os
import sys
from contextlib import suppress
from typing import NoReturn

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

LOOKALIKES = {"–": "-", "…": "...", "→": "->", "━": "=", "✓": "+"}
"""What our texts hold beyond ASCII, and what a terminal without it shows instead."""

FAILED = 1


def accept_every_character() -> None:
    """A character that the encoding lacks is written as its lookalike, or else as its escape, never as an error."""
    codecs.register_error("gpu-platform", _find_lookalikes)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="gpu-platform")


def has_every_character(stream: object) -> bool:
    return str(getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")


def end_without_room(error: OSError) -> NoReturn:
    """Ends the process with one line, if there is room for that."""
    where = f" {error.filename}" if error.filename else ""
    with suppress(OSError):
        sys.stderr.write(f"error: cannot write{where}: {error.strerror}\n")
        sys.stderr.flush()
    # Python writes what is left when it ends, and would fail once more.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError, io.UnsupportedOperation):
            os.dup2(nowhere, stream.fileno())
    sys.exit(FAILED)


def _find_lookalikes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(LOOKALIKES.get(each) or _escape(each) for each in missing), error.end


def _escape(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode()
