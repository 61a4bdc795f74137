"""Only a leader's writes leave the process."""

import asyncio

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.kube.errors import UnreachableError
from gpu_platform.kube.fencing import GuardedClient, Leadership, NotLeaderError, always_leading, resource_of
from gpu_platform.kube.paths import CONFIG_MAPS
from tests.support.scripted_kube import StoredObjects
from tests.support.virtual_time import now, run_in_virtual_time

ONE = CONFIG_MAPS.item("one", "a")
BODY: Json = {"metadata": {"name": "one"}}


class Guarded:
    def __init__(self, leadership: Leadership) -> None:
        self.client = StoredObjects()
        self.written: list[tuple[str, str]] = []
        self.guarded = GuardedClient(self.client, leadership, lambda *write: self.written.append(write))


async def write_everything(client: GuardedClient) -> None:
    created = await client.create(CONFIG_MAPS.collection("a"), BODY)
    await client.replace(ONE, created)
    await client.patch(ONE, {"data": {}})
    await client.delete(ONE)


def test_a_leader_writes_and_every_write_is_counted() -> None:
    guarded = Guarded(always_leading())
    run_in_virtual_time(write_everything(guarded.guarded))

    assert [method for method, _ in guarded.client.requests] == ["create", "replace", "patch", "delete"]
    assert guarded.written == [
        ("create", "configmaps"),
        ("update", "configmaps"),
        ("patch", "configmaps"),
        ("delete", "configmaps"),
    ]


@pytest.mark.parametrize("verb", ["create", "replace", "patch", "delete"])
def test_whoever_does_not_lead_sends_nothing(verb: str) -> None:
    guarded = Guarded(Leadership())

    async def main() -> None:
        write = getattr(guarded.guarded, verb)
        with pytest.raises(NotLeaderError):
            await (write(ONE) if verb == "delete" else write(ONE, BODY))

    run_in_virtual_time(main())
    assert guarded.client.requests == []
    assert guarded.written == []


def test_whoever_does_not_lead_may_still_look() -> None:
    guarded = Guarded(Leadership())

    async def main() -> Json:
        await guarded.client.create(CONFIG_MAPS.collection("a"), BODY)
        return await guarded.guarded.get(ONE)

    assert run_in_virtual_time(main())["metadata"]["name"] == "one"


class SlowClient(StoredObjects):
    """As if the connection took its time."""

    async def _begin(self, method: str, path: str) -> None:
        await asyncio.sleep(8)
        await super()._begin(method, path)


def test_a_write_is_not_waited_for_beyond_the_deadline() -> None:
    async def main() -> None:
        leadership = Leadership(now)
        leadership.begin(epoch=1, deadline=5.0)
        client = SlowClient()
        with pytest.raises(NotLeaderError, match="ran out before create"):
            await GuardedClient(client, leadership).create(CONFIG_MAPS.collection("a"), BODY)
        assert now() == pytest.approx(5.0)
        assert client.requests == []

    run_in_virtual_time(main())


def test_a_slow_write_does_not_end_a_term_that_was_renewed_meanwhile() -> None:
    async def main() -> None:
        leadership = Leadership(now)
        leadership.begin(epoch=1, deadline=5.0)
        write = asyncio.create_task(GuardedClient(SlowClient(), leadership).create(CONFIG_MAPS.collection("a"), BODY))
        await asyncio.sleep(4)
        leadership.extend(14.0)
        with pytest.raises(UnreachableError, match="not answered within 5 s"):
            await write
        leadership.check()

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/namespaces/a/pods", "pods"),
        ("/api/v1/namespaces/a/pods/b", "pods"),
        ("/api/v1/namespaces/a/pods/b/status", "pods/status"),
        ("/apis/apps/v1/namespaces/a/deployments/b/scale", "deployments/scale"),
        ("/apis/runtime.lokiwager.io/v1alpha1/gpuspecs/g1.1", "gpuspecs"),
        ("/api/v1/namespaces", "namespaces"),
        ("/api/v1/namespaces/a", "namespaces"),
        ("/api/v1/namespaces/a/status", "namespaces/status"),
        ("/api/v1/namespaces/status/pods", "pods"),
    ],
)
def test_the_resource_of_a_path(path: str, resource: str) -> None:
    assert resource_of(path) == resource
