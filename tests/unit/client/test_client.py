"""The SDK against a real HTTP server: what a sync client does, an async client does too."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import pytest

from gpu_platform import AsyncClient, Client
from gpu_platform.api_models.units import CreateUnit, UnitView
from gpu_platform.client import (
    ApiError,
    ConflictError,
    Detail,
    ForbiddenError,
    ModifiedConcurrentlyError,
    NotConfiguredError,
    NotFoundError,
    Retries,
    TooManyRequestsError,
    UnauthenticatedError,
    UnexpectedAnswerError,
    UnreachableError,
    UnsendableError,
    WaitError,
)
from tests.unit.client import views
from tests.unit.client.api_server import (
    NO_CONTENT,
    Answer,
    ApiServer,
    data,
    event,
    page,
    refusal,
    running_server,
    stream,
)

KEY = "gk_tenant01_secret"
BUSY = refusal(503, "operation_in_progress", "the operation is under way", retry_after=0)
END = refusal(401, "unauthenticated", "the key was withdrawn")
REQUEST = {"name": "demo", "specName": "host.1", "image": "python:3.12"}

Act = Callable[[Any], Any]
Perform = Callable[..., Any]


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with running_server() as server:
        yield server


@pytest.fixture(params=["sync", "async"])
def perform(request: pytest.FixtureRequest, api: ApiServer) -> Perform:
    """Performs one method of a client of either kind, and returns what its caller gets."""

    def in_sync(act: Act, **options: Any) -> Any:
        with Client(options.pop("url", api.url), KEY, **options) as client:
            return act(client)

    async def in_async(act: Act, **options: Any) -> Any:
        async with AsyncClient(options.pop("url", api.url), KEY, **options) as client:
            return await act(client)

    return in_sync if request.param == "sync" else lambda act, **options: asyncio.run(in_async(act, **options))


@pytest.fixture(params=["sync", "async"])
def collect(request: pytest.FixtureRequest, api: ApiServer) -> Callable[[Act, int], list[Any]]:
    """Collects the first items of an iterator of a client of either kind."""

    def in_sync(act: Act, count: int) -> list[Any]:
        with Client(api.url, KEY) as client, closing(act(client)) as items:
            return list(islice(items, count))

    async def in_async(act: Act, count: int) -> list[Any]:
        found: list[Any] = []
        async with AsyncClient(api.url, KEY) as client:
            items = act(client)
            while len(found) < count and (item := await anext(items, None)) is not None:
                found.append(item)
            await items.aclose()
        return found

    return in_sync if request.param == "sync" else lambda act, count: asyncio.run(in_async(act, count))


def test_an_answer_is_a_model_and_unknown_fields_are_ignored(api: ApiServer, perform: Perform) -> None:
    api.on("GET", "/gpu-units/demo", data({**views.unit(), "fieldOfTheFuture": {"a": 1}}))

    unit = perform(lambda client: client.units.get("demo"))

    assert isinstance(unit, UnitView)
    assert (unit.name, unit.phase, unit.template.args) == ("demo", "Ready", ("-m", "http.server"))
    assert api.questions[0].headers["Authorization"] == f"Bearer {KEY}"


def test_optional_fields_may_be_missing(api: ApiServer, perform: Perform) -> None:
    required = ("name", "namespace", "specName", "running", "phase", "readyReplicas", "generation", "createdAt")
    api.on("GET", "/gpu-units/demo", data({"template": {}, **{name: views.unit()[name] for name in required}}))

    assert perform(lambda client: client.units.get("demo")).image is None


def test_the_whole_answer_has_the_document_as_it_was_sent(api: ApiServer, perform: Perform) -> None:
    document = {**views.unit(), "fieldOfTheFuture": 1}
    api.on("GET", "/gpu-units/demo", data(document, ETag='"7"'))

    answer = perform(lambda client: client.with_raw_response.units.get("demo"))

    assert (answer.document, answer.etag, answer.value.name) == (document, '"7"', "demo")


def test_a_replay_is_told_apart(api: ApiServer, perform: Perform) -> None:
    api.on("POST", "/gpu-units", data(views.unit(), 201), data(views.unit()))

    first = perform(lambda client: client.with_raw_response.units.create(REQUEST))
    again = perform(lambda client: client.with_raw_response.units.create(REQUEST))

    assert (first.is_new, again.is_new) == (True, False)


def test_a_retry_keeps_the_operation_id(api: ApiServer, perform: Perform) -> None:
    api.on("POST", "/gpu-units", BUSY, BUSY, data(views.unit(), 201))

    perform(lambda client: client.units.create(REQUEST))

    chosen = {question.body["operationID"] for question in api.questions}
    assert (len(api.questions), len(chosen)) == (3, 1)


def test_two_requests_have_two_operation_ids_and_a_given_one_is_kept(api: ApiServer, perform: Perform) -> None:
    api.on("POST", "/gpu-units", data(views.unit(), 201))

    perform(lambda client: client.units.create(REQUEST))
    perform(lambda client: client.units.create(REQUEST))
    perform(lambda client: client.units.create(CreateUnit.model_validate({**REQUEST, "operationID": "op-1"})))

    first, second, given = (question.body for question in api.questions)
    assert first["operationID"] != second["operationID"]
    assert given == {**REQUEST, "operationID": "op-1"}


def test_a_model_is_sent_with_its_secrets_and_without_what_was_not_set(api: ApiServer, perform: Perform) -> None:
    ssh = {"enabled": True, "authorizedKeys": ["ssh-ed25519 AAAA"], "token": "frp-secret"}
    request = {**REQUEST, "operationID": "op-1", "ssh": ssh}
    api.on("POST", "/gpu-units", data(views.unit(), 201))

    perform(lambda client: client.units.create(CreateUnit.model_validate(request)))

    assert api.questions[0].body == request


def test_retries_may_outlast_a_restart_of_the_api(api: ApiServer, perform: Perform) -> None:
    api.on("POST", "/gpu-units", Answer(is_cut=True), refusal(503, "busy", "busy"), data(views.unit(), 201))
    patient = Retries(count=5, pause_seconds=0.0, after_no_answer=True)

    perform(lambda client: client.units.create(REQUEST), retries=patient)

    assert len({question.body["operationID"] for question in api.questions}) == 1


@pytest.mark.parametrize(
    ("first", "requests"),
    [(BUSY, 1), (Answer(is_cut=True), 1), (refusal(429, "too_many_requests", "slower", retry_after=0), 2)],
)
def test_a_restart_is_repeated_only_if_it_was_not_begun(
    api: ApiServer, perform: Perform, first: Answer, requests: int
) -> None:
    api.on("POST", "/gpu-units/demo/restart", first, BUSY)

    with pytest.raises((ApiError, UnreachableError)):
        perform(lambda client: client.units.restart("demo"), retries=Retries(after_no_answer=True, pause_seconds=0.0))

    assert len(api.questions) == requests


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ApiError),
        (401, UnauthenticatedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (412, ModifiedConcurrentlyError),
        (429, TooManyRequestsError),
        (500, ApiError),
    ],
)
def test_a_refusal_has_a_type_and_all_that_the_api_said(
    api: ApiServer, perform: Perform, status: int, kind: type[ApiError]
) -> None:
    detail = {"field": "image", "message": "is too long"}
    api.on("GET", "/gpu-units/demo", refusal(status, "code", "a sentence", detail))

    with pytest.raises(kind) as caught:
        perform(lambda client: client.units.get("demo"))

    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code, str(error), error.request_id) == (status, "code", "a sentence", "req-1")
    assert error.details == (Detail("image", "is too long"),)


def test_an_absent_object_is_none_where_it_is_looked_for(api: ApiServer, perform: Perform) -> None:
    api.on("GET", "/gpu-units/demo", refusal(404, "gpuunit_not_found", "there is no unit 'demo'"))

    assert perform(lambda client: client.units.find("demo")) is None


def test_an_unknown_route_is_an_error_where_an_object_is_looked_for(perform: Perform) -> None:
    with pytest.raises(NotFoundError):
        perform(lambda client: client.units.find("demo"))


def test_a_deletion_that_is_repeated_has_worked_when_the_object_is_gone(api: ApiServer, perform: Perform) -> None:
    gone = refusal(404, "gpuunit_not_found", "there is no unit 'demo'")
    api.on("DELETE", "/gpu-units/demo", BUSY, gone)

    perform(lambda client: client.units.delete("demo"))
    with pytest.raises(NotFoundError):
        perform(lambda client: client.units.delete("demo"))


def test_a_change_is_of_what_was_seen(api: ApiServer, perform: Perform) -> None:
    api.on("PUT", "/gpu-units/demo", data(views.unit()))

    perform(lambda client: client.units.update("demo", {"image": "a:2"}, etag='"7"'))

    assert (api.questions[0].headers["If-Match"], api.questions[0].body) == ('"7"', {"image": "a:2"})


def test_a_list_has_the_items_of_every_page(api: ApiServer, perform: Perform) -> None:
    api.on("GET", "/gpu-units", page([views.unit("a")], "more"), page([views.unit("b")], None))

    units = perform(lambda client: client.units.list(spec="host.1"))

    assert [unit.name for unit in units] == ["a", "b"]
    assert [question.query for question in api.questions] == [
        {"specName": "host.1"},
        {"specName": "host.1", "continue": "more"},
    ]


def test_no_page_beyond_the_limit_is_read(api: ApiServer, perform: Perform) -> None:
    api.on("GET", "/serverless/invocations", page([views.call("a"), views.call("b")], "more"))

    calls = perform(lambda client: client.invocations.list(limit=1))

    assert ([call.invocation_id for call in calls], len(api.questions)) == (["a"], 1)


def test_a_wait_returns_the_unit_once_it_is_in_its_phase(api: ApiServer, perform: Perform) -> None:
    api.on("GET", "/gpu-units/demo", data(views.progressing()), Answer(is_cut=True), data(views.unit()))

    assert perform(lambda client: client.units.wait("demo")).phase == "Ready"


def test_a_wait_ends_with_its_reason_or_its_time(api: ApiServer, perform: Perform) -> None:
    api.on("GET", "/gpu-units/bad", data(views.unit(phase="Failed", reason="PodStartupFailed", message="no image")))
    api.on("GET", "/gpu-units/slow", data(views.progressing()))

    with pytest.raises(WaitError, match=r"bad is not Ready: Failed \(PodStartupFailed: no image\)"):
        perform(lambda client: client.units.wait("bad"))
    with pytest.raises(WaitError, match=r"slow is not Ready after 0.2 s: Progressing"):
        perform(lambda client: client.units.wait("slow", timeout=0.2))


def test_a_deletion_can_be_waited_for(api: ApiServer, perform: Perform) -> None:
    gone = refusal(404, "gpuunit_not_found", "there is no unit 'demo'")
    api.on("DELETE", "/gpu-units/demo", NO_CONTENT)
    api.on("GET", "/gpu-units/demo", data(views.unit(phase="Terminating")), gone)

    perform(lambda client: client.units.delete("demo"))
    assert perform(lambda client: client.units.wait_deleted("demo")) is None


def test_a_watch_goes_on_after_the_last_event(api: ApiServer, collect: Callable[[Act, int], list[Any]]) -> None:
    first = stream(*event("added", "7", views.progressing()), "id: 9", "", "id: 10", "event: modified", "data: {}")
    api.on("GET", "/gpu-units", first, stream(*event("deleted", "11", views.unit())), END)

    events = collect(lambda client: client.units.watch(), 2)

    assert [(each.event, each.id, each.object.phase) for each in events] == [
        ("added", "7", "Progressing"),
        ("deleted", "11", "Ready"),
    ]
    asked = api.asked("GET", "/gpu-units")
    assert [question.headers.get("Last-Event-ID") for question in asked] == [None, "9"]
    assert [question.query for question in asked] == [{"watch": "true"}] * 2


def test_a_watch_that_is_refused_ends_with_the_error(api: ApiServer, collect: Callable[[Act, int], list[Any]]) -> None:
    api.on("GET", "/gpu-units", END)

    with pytest.raises(UnauthenticatedError):
        collect(lambda client: client.units.watch(), 1)


def test_logs_arrive_as_bytes(api: ApiServer, collect: Callable[[Act, int], list[Any]]) -> None:
    api.on("GET", "/gpu-units/demo/logs", Answer(body="line 1\nlïne 2\n"))

    pieces = collect(lambda client: client.units.logs("demo", follow=True, tail=0, container="ssh-frpc"), 9)

    assert b"".join(pieces).decode() == "line 1\nlïne 2\n"
    assert api.questions[0].query == {"follow": "true", "tail": "0", "container": "ssh-frpc"}


def test_an_answer_of_another_server_is_recognised(api: ApiServer, perform: Perform) -> None:
    api.on("GET", "/gpu-units/demo", Answer(502, "<html>bad gateway</html>"))
    api.on("GET", "/gpu-units/odd", data({"name": "odd"}))

    with pytest.raises(UnexpectedAnswerError, match=r"did not answer as the platform's API does \(HTTP 502\)"):
        perform(lambda client: client.units.get("demo"))
    with pytest.raises(UnexpectedAnswerError, match=r"cannot be read \(namespace: Field required\)"):
        perform(lambda client: client.units.get("odd"))


def test_a_server_that_is_away_is_told_with_what_to_do(perform: Perform) -> None:
    with pytest.raises(UnreachableError, match="refuses connections: start the platform"):
        perform(lambda client: client.units.get("demo"), url="http://127.0.0.1:1")


def test_text_that_is_not_unicode_is_not_sent(api: ApiServer, perform: Perform) -> None:
    for act in (lambda client: client.units.get("\udcff"), lambda client: client.units.list(spec="\udcff")):
        with pytest.raises(UnsendableError):
            perform(act)
    assert api.questions == []


def test_url_and_key_are_those_of_the_environment(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    api.on("GET", "/operator/specs", data([views.spec()]))
    monkeypatch.setenv("GPU_PLATFORM_URL", api.url)
    monkeypatch.delenv("GPU_PLATFORM_KEY", raising=False)

    with pytest.raises(NotConfiguredError, match="GPU_PLATFORM_KEY is not set"):
        Client()
    monkeypatch.setenv("GPU_PLATFORM_KEY", KEY)
    with Client() as client:
        assert [spec.name for spec in client.specs.list()] == ["t4.1"]
