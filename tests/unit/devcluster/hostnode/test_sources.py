"""What a pod refers to, and quantities as the downward API counts them."""

from typing import Any, cast

import pytest

from gpu_platform.devcluster.hostnode.sources import (
    CannotStartError,
    Reference,
    SourceReader,
    config_map,
    count_in,
    secret,
)
from gpu_platform.kube import KubeClient, KubeError, NotFoundError
from tests.unit.devcluster.hostnode.builders import NOW, make_pod, seconds

TOKEN = Reference("Token", "vault", 600)
FORBIDDEN = KubeError(403, "Forbidden", "no relationship found between node and object")
MISSING = NotFoundError(404, "NotFound", "not found")


class FakeApi:
    """Answers each request with the next of its answers; the last one stays."""

    def __init__(self, *answers: dict[str, Any] | KubeError) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, dict[str, Any] | None]] = []

    async def get(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        self.requests.append((path, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KubeError):
            raise answer
        return answer

    create = get


def reader(api: FakeApi) -> SourceReader:
    return SourceReader(cast(KubeClient, api), make_pod(serviceAccountName="robot"))


def issued(text: str) -> dict[str, Any]:
    return {"spec": {"expirationSeconds": 600}, "status": {"token": text}}


async def test_texts_and_bytes_are_read() -> None:
    settings = {"data": {"color": "blue"}, "binaryData": {"raw": "AAE="}}
    assert await reader(FakeApi(settings)).read([config_map("c")], NOW) == {
        config_map("c"): {"color": b"blue", "raw": b"\x00\x01"}
    }
    assert await reader(FakeApi({"data": {"key": "czNjcmV0"}})).read([secret("s")], NOW) == {
        secret("s"): {"key": b"s3cret"}
    }
    assert await reader(FakeApi({})).read([secret("s")], NOW) == {secret("s"): {}}


async def test_what_does_not_exist_is_nothing_rather_than_an_error() -> None:
    api = FakeApi(MISSING)
    assert await reader(api).read([config_map("c")], NOW) == {config_map("c"): None}
    assert len(api.requests) == 1


async def test_a_token_is_bound_to_the_pod_and_kept_for_most_of_its_life() -> None:
    api = FakeApi(issued("first"), issued("second"))
    source = reader(api)
    assert await source.read([TOKEN], NOW) == {TOKEN: {"token": b"first"}}
    [(path, body)] = api.requests
    assert path == "/api/v1/namespaces/space/serviceaccounts/robot/token"
    assert body is not None
    assert body["spec"]["audiences"] == ["vault"]
    assert body["spec"]["boundObjectRef"]["name"] == "pod"
    assert await source.read([TOKEN], NOW + seconds(479)) == {TOKEN: {"token": b"first"}}
    assert await source.read([TOKEN], NOW + seconds(480)) == {TOKEN: {"token": b"second"}}


@pytest.mark.parametrize(("error", "reference"), [(FORBIDDEN, config_map("c")), (MISSING, TOKEN)])
async def test_an_api_server_that_does_not_know_the_pod_yet_is_asked_again(
    error: KubeError, reference: Reference
) -> None:
    api = FakeApi(error, error, issued("late") | {"data": {}})
    assert (await reader(api).read([reference], NOW))[reference] is not None
    assert len(api.requests) == 3


@pytest.mark.parametrize(("error", "asked"), [(FORBIDDEN, 3), (KubeError(500, "InternalError", "no"), 1)])
async def test_an_api_server_that_does_not_answer_keeps_the_container_waiting(error: KubeError, asked: int) -> None:
    api = FakeApi(error)
    with pytest.raises(CannotStartError, match="the API server does not give"):
        await reader(api).read([secret("s")], NOW)
    assert len(api.requests) == asked


@pytest.mark.parametrize(
    ("quantity", "divisor", "want"),
    [
        ("2Gi", "1Mi", 2048),
        ("1500m", "1", 2),
        ("1500m", "1m", 1500),
        ("1", "0", 1),
        ("2", "1", 2),
    ],
)
def test_a_quantity_is_counted_in_its_divisor_and_rounded_up(quantity: str, divisor: str, want: int) -> None:
    assert count_in(quantity, divisor) == want
