"""The route class: what an endpoint declares is what is read, answered and described; and every route uses it."""

import inspect
import re
from collections import Counter
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from gpu_platform.api_models.envelope import Envelope, Page
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.value import Value
from platform_api.app import ROUTERS, build_routes
from platform_api.http.bodies import read_json_body
from platform_api.http.errors import forbidden
from platform_api.http.openapi import describe
from platform_api.http.routes import Answer, BodyOf, Route, find_answer_model

OPERATION_ID = re.compile(r"[a-z]+(_[a-z]+)+")
VERBS = {
    *("browse", "call", "cancel", "create", "delete", "get", "invoke", "list", "preview", "purge", "recover"),
    *("redrive", "restart", "retry", "seed", "start", "stop", "update"),
}


class Wish(Value):
    word: str = "nothing"


class View(Value):
    word: str
    unknown: str | None = None


async def admitted(key: Annotated[str, Header()] = "") -> str:
    if not key:
        raise forbidden("no key")
    return key


Key = Annotated[str, Depends(admitted)]
router = APIRouter(route_class=Route)


@router.post("/said", status_code=201, responses={200: {"description": "Said before"}})
async def say(key: Key, body: Wish) -> Answer[Envelope[View]]:
    return Answer(Envelope(data=View(word=body.word)), 201 if body.word == "new" else 200, {"ETag": key})


@router.post("/may-be-said")
async def may_say(_: Key, body: Wish = Wish(word="silence")) -> Envelope[View]:  # noqa: B008 - it is frozen
    return Envelope(data=View(word=body.word))


@router.post("/read")
async def read(_: Key, request: Annotated[Request, BodyOf(Wish)]) -> Envelope[View]:
    return Envelope(data=View(word=(await read_json_body(request)).decode()))


@router.get("/page")
async def page(_: Key, *, is_stream: bool = False) -> Page[View] | Response:
    return Response("streamed") if is_stream else Page(data=(View(word="a"),), continue_="b")


@router.get("/encoded")
async def encoded(_: Key) -> Answer[Envelope[View]]:
    return Answer(Envelope(data=View(word="a")), content=b'{"data":{"word":"as it was stored"}}')


@router.delete("/gone", status_code=204)
async def forget(_: Key) -> None:
    return None


@pytest.fixture
def api() -> httpx.AsyncClient:
    app = build_routes()
    app.include_router(router)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", headers={"key": "k"})


def described() -> Json:
    app = FastAPI()
    app.state.routers = (router,)
    app.include_router(router)
    return describe(app)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("POST", "/said", {"word": "new"}, 201, '{"data":{"word":"new"}}'),
        ("POST", "/said", {"word": "old"}, 200, '{"data":{"word":"old"}}'),
        ("POST", "/may-be-said", {"word": "new"}, 200, '{"data":{"word":"new"}}'),
        ("POST", "/may-be-said", None, 200, '{"data":{"word":"silence"}}'),
        ("POST", "/read", 7, 200, '{"data":{"word":"7"}}'),
        ("GET", "/page", None, 200, '{"data":[{"word":"a"}],"continue":"b"}'),
        ("GET", "/page?is_stream=true", None, 200, "streamed"),
        ("GET", "/encoded", None, 200, '{"data":{"word":"as it was stored"}}'),
        ("DELETE", "/gone", None, 204, ""),
    ],
)
async def test_an_answer_is_the_model_that_the_endpoint_returns(
    api: httpx.AsyncClient, method: str, path: str, body: Json | None, status: int, text: str
) -> None:
    answer = await api.request(method, path, json=body)
    assert (answer.status_code, answer.text) == (status, text)


async def test_an_answer_has_its_own_headers(api: httpx.AsyncClient) -> None:
    assert (await api.post("/said", json={})).headers["etag"] == "k"


@pytest.mark.parametrize("path", ["/said", "/may-be-said"])
@pytest.mark.parametrize(
    ("content", "content_type", "field"),
    [
        (b'{"word": 7}', "application/json", "word"),
        (b'{"other": "x"}', "application/json", "other"),
        (b"{", "application/json", ""),
        (b"{}", "text/plain", "Content-Type"),
    ],
)
async def test_a_wrong_body_is_a_400(
    api: httpx.AsyncClient, path: str, content: bytes, content_type: str, field: str
) -> None:
    answer = await api.post(path, content=content, headers={"content-type": content_type})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert [detail["field"] for detail in answer.json()["error"]["details"]] == [field]


async def test_a_body_is_required_unless_it_has_a_default(api: httpx.AsyncClient) -> None:
    assert (await api.post("/said")).status_code == 400
    assert (await api.post("/may-be-said")).status_code == 200


async def test_a_body_is_read_after_its_caller_was_admitted(api: httpx.AsyncClient) -> None:
    for path in ("/said", "/may-be-said", "/read"):
        answer = await api.post(path, content=b"not JSON", headers={"key": ""})
        assert answer.status_code == 403, path


def test_the_description_has_the_body_and_the_answers() -> None:
    document = described()
    said, may_be_said = document["paths"]["/said"]["post"], document["paths"]["/may-be-said"]["post"]
    assert said["requestBody"]["required"] is True
    assert may_be_said["requestBody"]["required"] is False
    assert document["components"]["schemas"]["Wish"]["additionalProperties"] is False
    for status in ("200", "201"):
        schema = said["responses"][status]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/Envelope_View_"}
    assert "content" not in document["paths"]["/gone"]["delete"]["responses"]["204"]


def all_routes() -> list[APIRoute]:
    routes = [route for each in ROUTERS if each.include_in_schema for route in each.routes]
    assert all(isinstance(route, APIRoute) for route in routes)
    return [route for route in routes if isinstance(route, APIRoute)]


@pytest.mark.parametrize("route", all_routes(), ids=lambda route: f"{min(route.methods)} {route.path}")
def test_every_documented_answer_is_what_the_endpoint_returns(route: APIRoute) -> None:
    """The type checker holds an endpoint to its annotation; what is documented comes from there and nowhere else."""
    assert isinstance(route, Route)
    returned = inspect.unwrap(route.endpoint).__annotations__["return"]
    assert route.response_model == find_answer_model(returned)
    for status, response in route.responses.items():
        assert status == (route.status_code or 200) or response["model"] == route.response_model
    if route.response_model is None:
        assert route.status_code == 204 or returned is Response


def operation_ids() -> list[Any]:
    paths = describe(build_routes())["paths"].values()
    return [operation["operationId"] for methods in paths for operation in methods.values()]


def test_operation_ids_are_unique() -> None:
    assert {each: count for each, count in Counter(operation_ids()).items() if count > 1} == {}


@pytest.mark.parametrize("operation_id", operation_ids())
def test_an_operation_id_is_a_verb_and_a_noun(operation_id: str) -> None:
    assert OPERATION_ID.fullmatch(operation_id)
    assert operation_id.partition("_")[0] in VERBS
