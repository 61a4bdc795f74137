"""HTTP with the platform's API: one call, its retries, and its refusals as sentences."""

import time
from dataclasses import dataclass

import httpx

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.network import is_loopback

PREFIX = "/api/v1"
# The API works on a request for 8 at the most; the rest is the way there and back.
SILENCE_SECONDS = 20.0
CONNECT_SECONDS = 5.0
TRIES = 6
PAUSE_SECONDS = 1.0
"""Where the API does not say when to ask again. With `TRIES`, long enough for an API that is started anew."""

LONGEST_PAUSE_SECONDS = 10.0
LATER = (429, 503)

HINTS = {
    "unauthenticated": (
        "set a valid one with `pulumi config set --secret gpuplatform:key`, or in GPU_PLATFORM_KEY. `refresh` and "
        "`destroy` use the one of the last `up`, unless they are told `--run-program`"
    ),
    "forbidden": "the key needs the role editor",
    "insufficient_capacity": "see `gpu-platform specs list` for another specName, or ask an operator for more stock",
}


class PlatformError(Exception):
    """What went wrong, in one sentence for the person who runs Pulumi."""


class RefusedError(PlatformError):
    """The API's own no."""

    def __init__(self, status: int, code: str, message: str, request_id: str | None) -> None:
        asked = f", request {request_id}" if request_id else ""
        self.code = code
        self.mark = f"({status} {code}{asked})"
        """For whoever looks it up in the API's log."""

        fix = f"; {HINTS[code]}" if code in HINTS else ""
        super().__init__(f"{message}{fix} {self.mark}")


@dataclass(frozen=True)
class Answer:
    data: Json
    """Empty where the API answers without a body."""

    etag: str | None


class RestApi:
    """Every call may be repeated: what makes something carries an operationID, and the rest is the same twice."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url.rstrip("/")
        address = _parse(url)
        self._http = httpx.Client(
            base_url=f"{self._url}{PREFIX}",
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS),
            # A proxy of the environment does not know this machine's own addresses.
            trust_env=not is_loopback(address.host),
        )

    def call(self, method: str, path: str, body: Json | None = None, *, etag: str | None = None) -> Answer:
        headers = {"If-Match": etag} if etag else {}
        request = self._http.build_request(method, path, json=body, headers=headers)
        for tries_left in reversed(range(TRIES)):
            try:
                response = self._http.send(request)
            except httpx.RequestError as error:
                if not tries_left:
                    raise self._unreachable(error) from None
                time.sleep(PAUSE_SECONDS)
                continue
            if response.status_code not in LATER or not tries_left:
                break
            time.sleep(_pause(response))
        return self._read(response)

    def _read(self, response: httpx.Response) -> Answer:
        if response.status_code == httpx.codes.NO_CONTENT:
            return Answer({}, None)
        try:
            body = response.json()
            if response.is_success:
                return Answer(dict(body["data"]), response.headers.get("ETag"))
            error = body["error"]
            refusal = RefusedError(response.status_code, error["code"], error["message"], error.get("requestID"))
        except (ValueError, KeyError, TypeError):
            raise PlatformError(
                f"{self._url} did not answer as the platform's API does (HTTP {response.status_code}): "
                "is gpuplatform:url right?"
            ) from None
        raise refusal

    def _unreachable(self, error: httpx.RequestError) -> PlatformError:
        why = str(error) or type(error).__name__
        return PlatformError(
            f"the platform does not answer at {self._url} ({why}), asked {TRIES} times: is gpuplatform:url right?"
        )


def _parse(text: str) -> httpx.URL:
    """Not shown in the error: a wrong one may hold a password."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query:
        raise PlatformError("gpuplatform:url should look like https://gpu.example.com, without a password in it")
    return url


def _pause(response: httpx.Response) -> float:
    after = response.headers.get("Retry-After", "")
    return min(float(after), LONGEST_PAUSE_SECONDS) if after.isdecimal() else PAUSE_SECONDS
