"""What can go wrong between us and NATS, in two words: it is away, or somebody was faster."""

from collections.abc import Iterator
from contextlib import contextmanager

import nats.errors
import nats.js.errors

WRONG_SEQUENCE = (10071, 10164)
"""JetStream's codes: the subject has moved on since it was looked at, or is about to, as another write is under way."""

MESSAGE_TOO_LARGE = 10054
STREAM_MISSING = 10059
FULL = (10077, 10167)
"""Its codes for what could not be stored, mostly because the stream is full, and for too many requests at once."""


class QueueUnavailableError(Exception):
    """NATS does not answer. Whether what was sent has arrived, nobody knows."""


class QueueAccessError(QueueUnavailableError):
    """NATS does not let us in, or we have nothing to show there. The message is for whoever set it up."""


class QueueFullError(Exception):
    """The stream takes no more."""


class TooLargeError(Exception):
    """The record would not fit. Nothing was stored."""


class UnreadableError(TooLargeError):
    """Nobody could read the record: it is nested too deeply, or has text that is none. Nothing was sent."""


class OutdatedError(Exception):
    """The record is no longer as it was seen."""


def without_path(description: str) -> str:
    """What the server's system said, as in "write <file>: no space left on device": callers do not see its files."""
    return description.rpartition(": ")[2] if "/" in description else description


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except nats.js.errors.APIError as error:
        if error.err_code in WRONG_SEQUENCE:
            raise OutdatedError(error.description) from error
        if error.err_code == MESSAGE_TOO_LARGE:
            raise TooLargeError(error.description) from error
        if error.err_code in FULL:
            raise QueueFullError(error.description) from error
        if error.err_code == STREAM_MISSING:
            raise QueueUnavailableError("NATS does not have its streams yet") from error
        if isinstance(error, nats.js.errors.ServiceUnavailableError | nats.js.errors.ServerError):
            raise QueueUnavailableError(f"NATS failed: {without_path(error.description or '')}") from error
        raise
    except nats.js.errors.NoStreamResponseError as error:
        raise QueueUnavailableError("NATS has no stream that answers") from error
    except (nats.errors.TimeoutError, TimeoutError) as error:
        raise QueueUnavailableError("NATS did not answer in time") from error
    except (nats.errors.Error, OSError) as error:
        raise QueueUnavailableError(f"NATS does not answer: {type(error).__name__}") from error
