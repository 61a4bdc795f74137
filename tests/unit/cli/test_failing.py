"""Every failure is a sentence and what to do about it, on stderr; never a traceback, never the key."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from gpu_platform.client.errors import describe_no_connection
from gpu_platform.devcluster.credentials import ensure_certificates, key_pair
from tests.unit.cli.shell import Shell
from tests.unit.client import views
from tests.unit.client.api_server import NO_CONTENT, Answer, ApiServer, data, refusal

CREATE = ("units", "create", "demo", "--spec", "host.1", "--image", "python:3.12", "--operation-id", "op-1")
BUSY = refusal(503, "operation_in_progress", "the operation is under way", retry_after=0)


@contextmanager
def answering_once(answer: bytes, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that gives one answer, and is gone before it arrives."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        listener.close()
        # A client that does not trust the certificate breaks the handshake off.
        with suppress(ssl.SSLError), context.wrap_socket(connection, True) if context else connection as wrapped:
            wrapped.recv(65_536)
            wrapped.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread.join()


@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (409, "insufficient_capacity", "gpu-platform stock list"),
        (401, "unauthenticated", "GPU_PLATFORM_KEY"),
        (403, "forbidden", "role"),
        (412, "precondition_failed", "changed meanwhile"),
        (404, "gpuunit_not_found", "gpu-platform units list"),
    ],
)
def test_a_refusal_is_told_with_what_to_do(api: ApiServer, shell: Shell, status: int, code: str, hint: str) -> None:
    api.on("GET", "/gpu-units/demo", refusal(status, code, "so it is"))

    result = shell.run("units", "get", "demo", "--json")

    assert (result.exit_code, result.stdout) == (1, "")
    first, second = result.stderr.splitlines()
    assert first == "error: so it is"
    assert hint in second


def test_every_detail_has_a_line(api: ApiServer, shell: Shell) -> None:
    details = [{"field": "image", "message": "is [too] long"}, {"field": "template.ports[0].port", "message": "is 0"}]
    api.on("POST", "/gpu-units", refusal(400, "invalid_request", "two fields are wrong", *details))

    assert shell.run(*CREATE).stderr.splitlines() == [
        "error: two fields are wrong",
        "  image: is [too] long",
        "  template.ports[0].port: is 0",
    ]


def test_a_detail_that_is_the_message_is_said_once(api: ApiServer, shell: Shell) -> None:
    detail = {"field": "image", "message": "is too long"}
    api.on("POST", "/gpu-units", refusal(400, "invalid_request", "image: is too long", detail))

    assert shell.run(*CREATE).stderr == "error: image: is too long\n"


@pytest.mark.parametrize(
    ("method", "path", "words", "good"),
    [
        ("GET", "/gpu-units", ["units", "list"], data([])),
        ("POST", "/gpu-units", list(CREATE), data(views.unit(), 201)),
        ("DELETE", "/gpu-units/demo", ["units", "delete", "demo"], NO_CONTENT),
        ("POST", "/gpu-units/demo/stop", ["units", "stop", "demo"], data(views.unit())),
    ],
)
def test_what_can_be_repeated_is_asked_again_as_late_as_the_api_says(
    api: ApiServer, shell: Shell, method: str, path: str, words: list[str], good: Answer
) -> None:
    api.on(method, path, BUSY, BUSY, good)

    assert shell.run(*words).exit_code == 0
    first, *others = api.asked(method, path)
    assert [question.body for question in others] == [first.body] * 2


def test_what_is_gone_when_its_deletion_is_repeated_was_deleted(api: ApiServer, shell: Shell) -> None:
    api.on("DELETE", "/gpu-units/demo", BUSY, refusal(404, "gpuunit_not_found", "there is no unit 'demo'"))

    result = shell.run("units", "delete", "demo")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "demo is being deleted\n", "")


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (refusal(429, "too_many_requests", "slower", retry_after=0), "gpuunit_not_found"),
        (BUSY, "not_found"),
    ],
)
def test_what_was_never_deleted_is_not_called_so(api: ApiServer, shell: Shell, first: Answer, code: str) -> None:
    api.on("DELETE", "/gpu-units/demo", first, refusal(404, code, "it is not there"))

    result = shell.run("units", "delete", "demo")

    assert (result.exit_code, result.stdout) == (1, "")


def test_a_queue_that_is_gone_was_not_purged(api: ApiServer, shell: Shell) -> None:
    path = "/serverless/functions/words/queue"
    api.on("DELETE", path, BUSY, refusal(404, "function_not_found", "there is no function 'words'"))

    assert shell.run("functions", "purge", "words").exit_code == 1


def test_after_three_repetitions_it_is_enough(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", BUSY)

    result = shell.run(*CREATE)

    assert len(api.questions) == 4
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "error: the operation is under way",
        "  try again in a moment",
        "  request req-1",
        "  it may have been accepted all the same; this repeats it without doing it twice:",
        "  the same command with  --operation-id op-1",
    ]


def test_a_restart_is_never_repeated(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units/demo/restart", BUSY)

    assert shell.run("units", "restart", "demo").exit_code == 1
    assert len(api.questions) == 1


def test_what_was_not_begun_is_always_repeated(api: ApiServer, shell: Shell) -> None:
    too_many = refusal(429, "too_many_requests", "slower", retry_after=0)
    api.on("POST", "/gpu-units/demo/restart", too_many, data(views.unit()))

    assert shell.run("units", "restart", "demo").exit_code == 0


def test_a_long_pause_is_left_to_the_person(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units", refusal(503, "service_unavailable", "closed", retry_after=3_600))

    result = shell.run("units", "list")

    assert len(api.questions) == 1
    assert "try again in 3600 s" in result.stderr


def test_a_broken_connection_tells_how_to_repeat_a_request(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", Answer(is_cut=True))

    result = shell.run(*CREATE)

    assert result.exit_code == 1
    assert "the connection to" in result.stderr
    assert "--operation-id op-1" in result.stderr


def test_a_request_that_was_begun_stays_in_doubt_when_nobody_answers_any_more(shell: Shell) -> None:
    with answering_once(
        b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    ) as url:
        result = shell.run(*CREATE, "--url", url)

    assert "refuses connections" in result.stderr
    assert "--operation-id op-1" in result.stderr


def test_a_refusal_leaves_no_doubt_to_clear_up(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", refusal(409, "insufficient_capacity", "no stock of host.1 is free"))

    assert "--operation-id" not in shell.run(*CREATE).stderr


def test_nobody_at_the_address_is_told_with_what_to_do(shell: Shell, nobody: str) -> None:
    result = shell.run("units", "list", "--url", nobody)

    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert line == (
        f"error: {nobody} refuses connections: start the platform with `gpu-platform dev up`, "
        "or correct GPU_PLATFORM_URL or --url"
    )


def test_https_to_a_port_that_speaks_http_is_not_told_to_start_it(api: ApiServer, shell: Shell) -> None:
    secure = api.url.replace("http://", "https://")

    result = shell.run("units", "list", "--url", secure)

    [line] = result.stderr.splitlines()
    assert line == (
        f"error: the TLS handshake with {secure} failed (WRONG_VERSION_NUMBER): does it speak http instead of https? "
        "correct GPU_PLATFORM_URL or --url"
    )


def test_a_certificate_that_is_not_trusted_is_told_with_the_reason(shell: Shell, tmp_path: Path) -> None:
    ensure_certificates(tmp_path, datetime.now(UTC))
    pair = key_pair(tmp_path, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with answering_once(b"", context) as url:
        result = shell.run("units", "list", "--url", url.replace("http://", "https://"))

    assert "is not valid (" in result.stderr
    assert "dev up" not in result.stderr


def test_a_host_that_is_not_found_is_told_so() -> None:
    """Decided from the error alone: a test asks no name server."""
    error = httpx.ConnectError("[Errno -2] Name or service not known")
    error.__cause__ = socket.gaierror(-2, "Name or service not known")

    said = describe_no_connection("https://gpu.invalid", error)

    assert said == (
        "the host of https://gpu.invalid is not found (Name or service not known): correct GPU_PLATFORM_URL or --url"
    )
    slow = describe_no_connection("https://gpu.invalid", httpx.ConnectTimeout(""))
    assert slow.startswith("https://gpu.invalid did not accept a connection within 5 s")
    strange = describe_no_connection("https://gpu.invalid", httpx.ConnectError("no route to host"))
    assert strange.startswith("https://gpu.invalid cannot be reached (no route to host)")


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body="<html>welcome</html>"),
        Answer(body={"items": []}),
        Answer(502, "<html>bad gateway</html>"),
        Answer(307, None, {"Location": "http://127.0.0.1:1/"}),
        Answer(500, {"error": "so it is"}),
    ],
)
def test_somebody_else_at_the_address_is_recognised(api: ApiServer, shell: Shell, answer: Answer) -> None:
    api.on("GET", "/gpu-units", answer)

    result = shell.run("units", "list")

    assert result.exit_code == 1
    assert "did not answer as the platform's API does" in result.stderr
    assert len(api.questions) == 1


@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        ({"GPU_PLATFORM_URL": None}, "GPU_PLATFORM_URL (or --url) is not set"),
        ({"GPU_PLATFORM_KEY": None}, "GPU_PLATFORM_KEY is not set"),
        ({"GPU_PLATFORM_KEY": " \n"}, "GPU_PLATFORM_KEY is not set"),
    ],
)
def test_what_is_not_configured_is_named(
    api: ApiServer, shell: Shell, environment: dict[str, str | None], missing: str
) -> None:
    result = shell.run("units", "list", **environment)

    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert missing in line
    assert 'eval "$(gpu-platform dev env)"' in line
    assert api.questions == []


@pytest.mark.parametrize(
    "url", ["127.0.0.1:80", "ftp://x", "http://", "http://me:secret@host", "http://h:99999", "x y"]
)
def test_an_address_that_is_none_is_refused_without_repeating_it(shell: Shell, url: str) -> None:
    result = shell.run("units", "list", GPU_PLATFORM_URL=url)

    assert result.exit_code == 2
    assert "should look like http://" in result.stderr
    assert "secret" not in result.stderr


@pytest.mark.parametrize("key", ["two words", "gk_ümlaut", "line\nend"])
def test_a_key_that_is_none_is_refused_without_showing_it(api: ApiServer, shell: Shell, key: str) -> None:
    result = shell.run("units", "list", GPU_PLATFORM_KEY=key)

    assert result.exit_code == 2
    assert key not in result.output
    assert api.questions == []


def test_the_key_is_no_option(shell: Shell) -> None:
    assert shell.run("units", "list", "--api-key", "x").exit_code == 2


def test_a_key_from_a_file_may_end_with_its_line(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units", data([]))

    shell.run("units", "list", GPU_PLATFORM_KEY="gk_1\n")

    assert api.questions[0].headers["Authorization"] == "Bearer gk_1"


def test_the_own_machine_is_not_asked_for_through_a_proxy(api: ApiServer, shell: Shell, nobody: str) -> None:
    api.on("GET", "/gpu-units", data([]))

    assert shell.run("units", "list", HTTP_PROXY=nobody, http_proxy=nobody, NO_PROXY=None, no_proxy=None).exit_code == 0
