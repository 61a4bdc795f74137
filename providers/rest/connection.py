"""The platform's API as a tenant's program calls it: address and key of the stack's configuration, and refusals as
sentences for the person who runs Pulumi."""

import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pulumi
from pulumi.dynamic import ConfigureRequest

from gpu_platform import client
from gpu_platform.client import Answer, Client, Retries

URL, KEY = "gpuplatform:url", "gpuplatform:key"
ENVIRONMENT = {URL: "GPU_PLATFORM_URL", KEY: "GPU_PLATFORM_KEY"}
"""The command line's variables, for what the stack's configuration does not have."""

COMMANDS = {URL: f"pulumi config set {URL} https://…", KEY: f"pulumi config set --secret {KEY}"}

RETRIES = Retries(count=5, pause_seconds=1.0, longest_seconds=10.0, shortens=True, after_no_answer=True)
"""Every request may be repeated: what makes something carries an operationID, and the rest is the same twice. Long
enough for an API that is restarted."""

HINTS = {
    "unauthenticated": (
        "set a valid one with `pulumi config set --secret gpuplatform:key`, or in GPU_PLATFORM_KEY. `refresh` and "
        "`destroy` use the one of the last `up`, unless they are told `--run-program`"
    ),
    "forbidden": "the key needs the role editor",
    "insufficient_capacity": "see `gpu-platform specs list` for another specName, or ask an operator for more stock",
}

P = ParamSpec("P")
T = TypeVar("T")


class PlatformError(Exception):
    """What went wrong, in one sentence for the person who runs Pulumi."""


class RefusedError(PlatformError):
    """The API refused the request."""

    def __init__(self, status: int, code: str, message: str, request_id: str | None) -> None:
        request = f", request {request_id}" if request_id else ""
        self.code = code
        self.mark = f"({status} {code}{request})"
        """For a search in the API's log."""

        fix = f"; {HINTS[code]}" if code in HINTS else ""
        super().__init__(f"{message}{fix} {self.mark}")


class Connection:
    """The client of one platform, with errors as PlatformError."""

    def __init__(self, url: str, key: str) -> None:
        self.key = key
        self._url = url.rstrip("/")
        try:
            self.client = Client(url, key, retries=RETRIES).with_raw_response
        except client.NotConfiguredError:
            # Not shown in the error: a wrong one may hold a password.
            raise PlatformError(f"{URL} should look like https://gpu.example.com, without a password in it") from None

    def ask(self, method: Callable[P, Answer[T]], *args: P.args, **options: P.kwargs) -> Answer[T]:
        """Calls a method of the client."""
        try:
            return method(*args, **options)
        except client.ApiError as error:
            raise RefusedError(error.status, error.code, error.message, error.request_id) from None
        except client.PlatformError as error:
            raise PlatformError(self._describe(error)) from None

    def _describe(self, error: client.PlatformError) -> str:
        match error:
            case client.UnreachableError(reason=reason):
                tries = RETRIES.count + 1
                return f"the platform does not answer at {self._url} ({reason}), asked {tries} times: is {URL} right?"
            case client.UnexpectedAnswerError(status=status) if status is not None:
                return f"{self._url} did not answer as the platform's API does (HTTP {status}): is {URL} right?"
        return str(error)


def connect(req: ConfigureRequest) -> Connection:
    """The platform that the configuration names, or PlatformError with what is missing."""
    url, key = _get_setting(req, URL), _get_setting(req, KEY)
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise PlatformError(f"{KEY} holds characters that no key has: copy it again")
    return Connection(url, key)


def refuse_open_key() -> None:
    """Pulumi writes a stack's configuration into its state: what is no secret there, in clear."""
    if pulumi.runtime.get_config(KEY) is not None and not pulumi.runtime.is_config_secret(KEY):
        raise pulumi.RunError(f"{KEY} stands in clear in the stack's configuration: run `{COMMANDS[KEY]}`")


def _get_setting(req: ConfigureRequest, name: str) -> str:
    variable = ENVIRONMENT[name]
    # A key that was read from a file often ends with the line's end.
    value = str(req.config.get(name) or os.environ.get(variable) or "").strip()
    if not value:
        raise PlatformError(f"{name} is not set: run `{COMMANDS[name]}`, or set {variable}")
    return value
