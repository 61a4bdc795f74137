"""HTTP with the platform's API: connections, retries, and its errors as ours. The only module that knows httpx."""

import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from gpu_platform.cli.errors import (
    ApiError,
    Detail,
    NotConfiguredError,
    StrangeAnswerError,
    UnreachableError,
    UnsendableError,
)
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.network import is_loopback

PREFIX = "/api/v1"
# The API works on a request for 8 at the most; the rest is the way there and back.
SILENCE_SECONDS = 20.0
CONNECT_SECONDS = 5.0
RETRIES = 3
# More than this is not worth a person's waiting; they are told instead.
LONGEST_RETRY_SECONDS = 30


@dataclass(frozen=True)
class Answer:
    """A good answer."""

    body: Json
    """Empty where the API answers without one."""

    is_new: bool
    """Whether something was made: 201 or 202, not 200."""

    etag: str | None


class Stream:
    """An answer that comes bit by bit."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    def read_pieces(self) -> Iterator[bytes]:
        return self._response.iter_bytes()

    def read_lines(self) -> Iterator[str]:
        return self._response.iter_lines()


class Transport:
    def __init__(self, url: str, key: str | None) -> None:
        address = parse_url(url)
        self._url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=f"{self._url}{PREFIX}",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS),
            # A proxy of the environment does not know this machine's own addresses.
            trust_env=not is_loopback(address.host),
        )

    def close(self) -> None:
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        params: Mapping[str, str] | None = None,
        etag: str | None = None,
        is_repeatable: bool = True,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> Answer:
        """The answer, a good one; asked again as often and as late as the API says."""
        headers = {"If-Match": etag} if etag else {}
        timeout = httpx.Timeout(silence_seconds, connect=CONNECT_SECONDS)
        request = self._build(method, path, json=body, params=params, headers=headers, timeout=timeout)
        is_repeated = False
        for retries_left in reversed(range(RETRIES + 1)):
            with self._translated(is_read=method == "GET", is_repeated=is_repeated):
                response = self._http.send(request)
            pause = _retry_pause(response, is_repeatable=is_repeatable)
            if pause is None or not retries_left:
                break
            is_repeated |= not _was_not_begun(response)
            time.sleep(pause)
        _check(response, self._url, is_repeated=is_repeated)
        is_new = response.status_code != httpx.codes.OK
        return Answer(_parse_body(response, self._url), is_new, response.headers.get("ETag"))

    @contextmanager
    def stream(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        silence_seconds: float | None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[Stream]:
        """An answer as it comes. None: it may be silent for as long as it likes."""
        timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS, read=silence_seconds)
        request = self._build("GET", path, params=params, headers=headers, timeout=timeout)
        with self._translated(is_read=True), closing(self._http.send(request, stream=True)) as response:
            if not response.is_success:
                response.read()
            _check(response, self._url, is_repeated=False)
            yield Stream(response)

    def _build(self, method: str, path: str, **options: Any) -> httpx.Request:
        try:
            return self._http.build_request(method, path, **options)
        except UnicodeEncodeError:
            # Words of the command line that are not UTF-8 come with lone surrogates in them.
            raise UnsendableError("the request holds text that is not Unicode: write it in UTF-8") from None

    @contextmanager
    def _translated(self, *, is_read: bool, is_repeated: bool = False) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            # This request was not received, but perhaps an earlier one.
            raise UnreachableError(
                describe_no_connection(self._url, error), is_ambiguous=is_repeated and not is_read
            ) from None
        except httpx.TimeoutException:
            raise UnreachableError(
                f"{self._url} did not answer in time: see `gpu-platform health`, and try again",
                is_ambiguous=not is_read,
            ) from None
        except httpx.RequestError as error:
            raise UnreachableError(
                f"the connection to {self._url} broke ({str(error) or type(error).__name__}): try again",
                is_ambiguous=not is_read,
            ) from None


def describe_no_connection(url: str, error: httpx.TransportError) -> str:
    """What is known of a connection that was not made, and what to do about it.

    | seen                            | says                                          |
    | ------------------------------- | --------------------------------------------- |
    | no answer within the time limit | how long                                      |
    | connection refused              | refused: start the platform                   |
    | a certificate that is not valid | the reason                                    |
    | any other failure of TLS        | the handshake failed: http or https           |
    | a name that is not resolved     | the host                                      |
    | anything else                   | the words of the operating system             |
    """
    correct = "correct GPU_PLATFORM_URL or --url"
    if isinstance(error, httpx.ConnectTimeout):
        return f"{url} did not accept a connection within {CONNECT_SECONDS:g} s: {correct}, or try again"
    match _cause_of(error):
        case ConnectionRefusedError():
            return f"{url} refuses connections: start the platform with `gpu-platform dev up`, or {correct}"
        case ssl.SSLCertVerificationError() as cause:
            return f"the certificate of {url} is not valid ({cause.verify_message}): trust its issuer (SSL_CERT_FILE)"
        case ssl.SSLError() as cause:
            return (
                f"the TLS handshake with {url} failed ({cause.reason}): does it speak http instead of https? {correct}"
            )
        case socket.gaierror() as cause:
            return f"the host of {url} is not found ({cause.strerror}): {correct}"
    return f"{url} cannot be reached ({error}): {correct}, or try again"


def _cause_of(error: BaseException) -> BaseException:
    """The error of the operating system or of TLS that httpx wraps."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return error


def parse_url(text: str) -> httpx.URL:
    """The address of an API, or NotConfiguredError. Not shown in the error: a wrong one may hold a password."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL("")
    is_http = url.scheme in ("http", "https") and bool(url.host) and (url.port or 1) <= 65_535
    if not is_http or url.userinfo or url.query:
        raise NotConfiguredError(
            "the platform's URL (GPU_PLATFORM_URL or --url) should look like http://127.0.0.1:8080, "
            "without a password in it"
        )
    return url


def _retry_pause(response: httpx.Response, *, is_repeatable: bool) -> int | None:
    """Seconds after which to ask again; None when that is no use or does harm."""
    if not _was_not_begun(response) and not (is_repeatable and response.status_code == httpx.codes.SERVICE_UNAVAILABLE):
        return None
    pause = _retry_after(response)
    return pause if pause is not None and pause <= LONGEST_RETRY_SECONDS else None


def _was_not_begun(response: httpx.Response) -> bool:
    return response.status_code == httpx.codes.TOO_MANY_REQUESTS


def _retry_after(response: httpx.Response) -> int | None:
    text = response.headers.get("Retry-After", "")
    return int(text) if text.isascii() and text.isdigit() else None


def _check(response: httpx.Response, url: str, *, is_repeated: bool) -> None:
    if response.is_success:
        return
    try:
        error = response.json()["error"]
        details = tuple(Detail(str(item["field"]), str(item["message"])) for item in error.get("details") or ())
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _strange(response, url) from None
    raise ApiError(
        response.status_code,
        code,
        message,
        details=details,
        request_id=error.get("requestID"),
        retry_after_seconds=_retry_after(response),
        is_repeated=is_repeated,
    )


def _parse_body(response: httpx.Response, url: str) -> Json:
    if response.status_code == httpx.codes.NO_CONTENT:
        return {}
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict) or "data" not in body:
        raise _strange(response, url)
    return body


def _strange(response: httpx.Response, url: str) -> StrangeAnswerError:
    return StrangeAnswerError(
        f"{url} did not answer as the platform's API does (HTTP {response.status_code}): is GPU_PLATFORM_URL right?"
    )
