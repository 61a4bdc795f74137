"""What can go wrong between the command line and the platform, as facts. How they are told is in `failures`."""

from dataclasses import dataclass


class PlatformError(Exception):
    """Something that is told in a sentence, without a traceback."""

    exit_code = 1
    is_ambiguous = False
    """Whether the platform may have done what it was asked for, although we do not know of it."""

    is_passing = False
    """Whether the same question may well be answered a little later."""


class NotConfiguredError(PlatformError):
    """The command does not know where the platform is, or who asks."""

    exit_code = 2


class UnsendableError(PlatformError):
    """What was said cannot be put into a request."""

    exit_code = 2


class UnreachableError(PlatformError):
    """No answer came."""

    is_passing = True

    def __init__(self, message: str, *, is_ambiguous: bool) -> None:
        super().__init__(message)
        self.is_ambiguous = is_ambiguous


class StrangeAnswerError(PlatformError):
    """Something answered, but not as our API does."""

    is_ambiguous = True


@dataclass(frozen=True)
class Detail:
    """What is wrong with one field of a request."""

    field: str
    message: str


class ApiError(PlatformError):
    """The API's own refusal."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        details: tuple[Detail, ...] = (),
        request_id: str | None = None,
        retry_after_seconds: int | None = None,
        is_repeated: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = details
        self.request_id = request_id
        self.retry_after_seconds = retry_after_seconds
        # It was sent before, and that answer did not say what came of it.
        self.is_repeated = is_repeated
        self.is_ambiguous = status >= 500
        self.is_passing = status in (429, 500, 503)


class WaitError(PlatformError):
    """What was waited for did not come."""
