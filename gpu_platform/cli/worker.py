"""`gpu-platform worker`: runs a handler on this machine, as a worker of the platform would. Starts its two processes;
the command line does not import them."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import httpx
import typer

from gpu_platform.api_models.functions import FunctionView
from gpu_platform.cli.extras import require_extra
from gpu_platform.cli.output import print_json, print_remark
from gpu_platform.cli.request_files import parse_json
from gpu_platform.cli.resources import connect
from gpu_platform.client import ApiError, PlatformError
from gpu_platform.client.calls import drop_none
from gpu_platform.client.client import KEY_VARIABLE, URL_VARIABLE
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import tenant_of
from gpu_platform.process import dies_with_parent

LOOK_SECONDS = 0.1
START_SECONDS = 600.0
"""A model takes its time to load."""

PREFIX = "GPU_PLATFORM_SIDECAR_"


class WorkerError(PlatformError):
    """A process of the worker did not do what it should."""


class _StopError(Exception):
    """Ctrl-C or SIGTERM."""


def worker(
    place: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="Or FILE.py:FUNCTION: a `@handler`.")],
    call: Annotated[
        str | None, typer.Option(metavar="JSON", help="Run it once with this payload, print the answer, and end.")
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(help="Whose invocations to take. By default named as the file or module: words for words.py."),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Whose function, where that is not the tenant of GPU_PLATFORM_KEY.")
    ] = None,
    nats_url: Annotated[
        str, typer.Option(envvar="NATS_URL", help="Where the calls are: nats://host:port or tls://host:port.")
    ] = "nats://127.0.0.1:4222",
    nats_credentials: Annotated[
        Path | None,
        typer.Option(envvar="NATS_CREDS", help="A .creds file, as in the Secret function-<function>.", metavar="FILE"),
    ] = None,
    nats_ca: Annotated[Path | None, typer.Option(help="Certificates to believe.", metavar="FILE")] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=256, help="Invocations at once; by default as the function is declared.")
    ] = None,
) -> None:
    """Run a handler here: answer the calls of a function until Ctrl-C, or one call from the command line."""
    require_extra("server")
    payload = _parse_payload(call) if call is not None else None
    name = function or build_function_name(place)
    declared = _find_declared(name) if call is None and tenant is None else None
    with (
        tempfile.TemporaryDirectory(prefix="gpu-worker-") as directory,
        _framework(place, Path(directory)) as framework,
    ):
        if call is not None:
            _print_answer(_call_once(framework, place, payload))
            return
        environment = {
            "NATS_URL": nats_url,
            **({"NATS_CREDENTIALS": str(nats_credentials.resolve())} if nats_credentials else {}),
            **({"NATS_CA": str(nats_ca.resolve())} if nats_ca else {}),
            "FUNCTION": name,
            "WORKER": f"{os.uname().nodename}-{os.getpid()}",
            "SOCKET": str(framework.socket),
            **build_limits(declared, tenant, concurrency),
        }
        print_remark(f"taking invocations of the function {name}; press Ctrl-C to stop")
        _take_calls(framework, environment)


def build_function_name(place: str) -> str:
    """The name that a function most likely has: that of its file or module."""
    module = place.rpartition(":")[0] or place
    stem = Path(module).stem if module.endswith(".py") else module.rpartition(".")[2]
    return stem.lower().replace("_", "-")


def build_limits(declared: FunctionView | None, tenant: str | None, concurrency: int | None) -> dict[str, str]:
    """What the sidecar does by: as options say, or else as the function is declared. The rest has its own defaults."""
    if declared is None:
        limits = drop_none(TENANT=tenant, CONCURRENCY=concurrency)
    else:
        limits = drop_none(
            TENANT=tenant_of(declared.namespace),
            CONCURRENCY=concurrency or declared.concurrency,
            MAX_ATTEMPTS=declared.max_attempts,
            ACK_WAIT_SECONDS=declared.ack_wait_seconds,
        )
    return {variable: str(value) for variable, value in limits.items()}


def _find_declared(name: str) -> FunctionView | None:
    """The function as the API has it; None where the environment does not say where that is."""
    if not (os.environ.get(URL_VARIABLE) and os.environ.get(KEY_VARIABLE)):
        return None
    try:
        with connect(None) as client:
            return client.functions.get(name).value
    except ApiError as error:
        if error.code == "function_not_found":
            error.add_note("create it with `gpu-platform functions create`, or name another with --function")
        raise


class _Framework:
    def __init__(self, process: "subprocess.Popen[bytes]", socket: Path) -> None:
        self.process = process
        self.socket = socket

    def wait_ready(self, client: httpx.Client) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if (code := self.process.poll()) is not None:
                raise WorkerError(f"the handler could not be served (exit code {code}); the reason is above")
            try:
                if client.get("/healthz", timeout=5).is_success:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(LOOK_SECONDS)
        raise WorkerError(f"the handler was not ready within {START_SECONDS:g} s")


@contextmanager
def _framework(place: str, directory: Path) -> Iterator[_Framework]:
    socket = directory / "framework.sock"
    with _child([sys.executable, "-m", "serverless.framework", place, "--socket", str(socket)], {}) as process:
        yield _Framework(process, socket)


@contextmanager
def _child(argv: list[str], environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """In a session of its own, so that Ctrl-C is ours to pass on, in the right order."""
    process = subprocess.Popen(
        argv, env=os.environ | environment, start_new_session=True, preexec_fn=dies_with_parent()
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait()
            except (KeyboardInterrupt, _StopError):
                # Asked twice: what is under way is given to another worker.
                process.kill()
                process.wait()


def _call_once(framework: _Framework, place: str, payload: Any) -> Json:
    transport = httpx.HTTPTransport(uds=str(framework.socket))
    with httpx.Client(transport=transport, base_url="http://framework", timeout=None) as client:  # noqa: S113
        framework.wait_ready(client)
        call = {"invocationID": "local", "function": place.rpartition(":")[2], "payload": payload}
        try:
            answer: Json = client.post("/invoke", json=call).raise_for_status().json()
        except (httpx.HTTPError, ValueError) as error:
            raise WorkerError(f"the handler's process gave no answer: {error}") from error
    return answer


def _print_answer(answer: Json) -> None:
    if answer.get("error"):
        raise WorkerError(f"the handler failed with status {answer['statusCode']}: {answer['error']}")
    print_json(answer.get("body"))
    if answer["statusCode"] >= 400:
        raise WorkerError(f"the handler answered with status {answer['statusCode']}")


def _take_calls(framework: _Framework, environment: dict[str, str]) -> None:
    """Until Ctrl-C or SIGTERM. The sidecar ends first: it finishes the calls under way."""

    def stop(_: int, __: FrameType | None) -> None:
        raise _StopError

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    variables = {f"{PREFIX}{name}": value for name, value in environment.items()}
    try:
        with _child([sys.executable, "-m", "serverless.sidecar"], variables) as sidecar:
            while True:
                for name, process in (("handler", framework.process), ("sidecar", sidecar)):
                    if (code := process.poll()) is not None:
                        raise WorkerError(f"the {name}'s process ended with exit code {code}; the reason is above")
                time.sleep(LOOK_SECONDS)
    except _StopError:
        return


def _parse_payload(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise typer.BadParameter(f"is not JSON: {error}", param_hint="--call") from error
