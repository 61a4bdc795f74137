"""What can go wrong between a client and the platform, as typed errors; how a broken connection and a refusal become
one."""

import socket
import ssl
from dataclasses import dataclass

import httpx

CONNECT_SECONDS = 5.0
CORRECT_URL = "correct GPU_PLATFORM_URL or --url"


class PlatformError(Exception):
    """A failure that one sentence explains."""

    is_ambiguous = False
    """Whether the platform may have done what it was asked for, although no answer says so."""

    is_passing = False
    """Whether the same request may succeed a little later."""


class NotConfiguredError(PlatformError):
    """The URL or the key of the platform is missing or malformed."""


class UnsendableError(PlatformError):
    """The given values cannot be put into a request."""


class UnreachableError(PlatformError):
    """No answer arrived."""

    is_passing = True

    def __init__(self, message: str, *, reason: str, is_ambiguous: bool) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_ambiguous = is_ambiguous


class UnexpectedAnswerError(PlatformError):
    """An answer arrived that does not have the form of the platform's API."""

    is_ambiguous = True

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class WaitError(PlatformError):
    """The awaited state was not reached."""


@dataclass(frozen=True)
class Detail:
    """One field of a request, and what is wrong with it."""

    field: str
    message: str


class ApiError(PlatformError):
    """The API refused the request."""

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
        self.message = message
        self.details = details
        self.request_id = request_id
        self.retry_after_seconds = retry_after_seconds
        self.is_repeated = is_repeated
        """Whether the request was sent before, and that answer left its outcome open."""

        self.is_ambiguous = status >= 500
        self.is_passing = status in (429, 500, 503)


class UnauthenticatedError(ApiError):
    """401: the key is missing, unknown or expired."""


class ForbiddenError(ApiError):
    """403: the key's role or a quota does not allow the request."""


class NotFoundError(ApiError):
    """404: the object does not exist."""


class ConflictError(ApiError):
    """409: the state of the object, or the lack of stock, does not allow the request."""


class ModifiedConcurrentlyError(ApiError):
    """412: another writer changed the object first."""


class TooManyRequestsError(ApiError):
    """429: the rate limit, or the limit of a queue, is reached."""


ERROR_OF_STATUS: dict[int, type[ApiError]] = {
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    412: ModifiedConcurrentlyError,
    429: TooManyRequestsError,
}


def check_status(response: httpx.Response, url: str, *, is_repeated: bool) -> None:
    """Raises the typed error of an answer that is not a success."""
    if response.is_success:
        return
    try:
        error = response.json()["error"]
        details = tuple(Detail(str(item["field"]), str(item["message"])) for item in error.get("details") or ())
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise build_unexpected(response, url) from None
    raise ERROR_OF_STATUS.get(response.status_code, ApiError)(
        response.status_code,
        code,
        message,
        details=details,
        request_id=error.get("requestID"),
        retry_after_seconds=parse_retry_after(response),
        is_repeated=is_repeated,
    )


def parse_retry_after(response: httpx.Response) -> int | None:
    text = response.headers.get("Retry-After", "")
    return int(text) if text.isascii() and text.isdigit() else None


def build_unexpected(response: httpx.Response, url: str) -> UnexpectedAnswerError:
    return UnexpectedAnswerError(
        f"{url} did not answer as the platform's API does (HTTP {response.status_code}): is GPU_PLATFORM_URL right?",
        response.status_code,
    )


def build_unreachable(error: httpx.RequestError, url: str, *, is_read: bool, is_repeated: bool) -> UnreachableError:
    """The error of a request without an answer. A read is never ambiguous; what was not received now may have been
    received before."""
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        message, is_ambiguous = describe_no_connection(url, error), is_repeated and not is_read
    elif isinstance(error, httpx.TimeoutException):
        message, is_ambiguous = f"{url} did not answer in time: see `gpu-platform health`, and try again", not is_read
    else:
        message, is_ambiguous = f"the connection to {url} broke ({reason}): try again", not is_read
    return UnreachableError(message, reason=reason, is_ambiguous=is_ambiguous)


def describe_no_connection(url: str, error: httpx.TransportError) -> str:
    """The cause of a connection that was not made, and what to do about it.

    | seen                            | says                                          |
    | ------------------------------- | --------------------------------------------- |
    | no answer within the time limit | how long                                      |
    | connection refused              | refused: start the platform                   |
    | a certificate that is not valid | the reason                                    |
    | any other failure of TLS        | the handshake failed: http or https           |
    | a name that is not resolved     | the host                                      |
    | anything else                   | the words of the operating system             |
    """
    if isinstance(error, httpx.ConnectTimeout):
        return f"{url} did not accept a connection within {CONNECT_SECONDS:g} s: {CORRECT_URL}, or try again"
    match _find_cause(error):
        case ConnectionRefusedError():
            return f"{url} refuses connections: start the platform with `gpu-platform dev up`, or {CORRECT_URL}"
        case ssl.SSLCertVerificationError() as cause:
            return f"the certificate of {url} is not valid ({cause.verify_message}): trust its issuer (SSL_CERT_FILE)"
        case ssl.SSLError() as cause:
            return (
                f"the TLS handshake with {url} failed ({cause.reason}): does it speak http instead of https? "
                f"{CORRECT_URL}"
            )
        case socket.gaierror() as cause:
            return f"the host of {url} is not found ({cause.strerror}): {CORRECT_URL}"
    return f"{url} cannot be reached ({error}): {CORRECT_URL}, or try again"


def _find_cause(error: BaseException) -> BaseException:
    """The error of the operating system or of TLS that httpx wraps."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return error
