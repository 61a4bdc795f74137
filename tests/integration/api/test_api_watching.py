"""Many units at once: page by page, narrowed down, or as they change, without losing one."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_UNITS
from tests.support.api import UNITS, api_process, code_of, open_api, scrape, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.controllers import compact
from tests.support.server_events import EventStream, ServerEvent, watching
from tests.support.tenants import Tenant, tenant
from tests.support.units_and_stock import create_unit, delete_unit, unit_body, wait_unit_phase
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
async def made_tenant(kube: KubeClient, cluster: RunningCluster) -> AsyncIterator[Tenant]:
    """A tenant of its own, so that no other units are among the events."""
    async with tenant(kube, cluster.record.platform_url, Role.EDITOR) as made:
        yield made


@pytest.fixture
async def acme(kube: KubeClient, made_tenant: Tenant) -> AsyncIterator[Tenant]:
    """A tenant without units."""
    yield made_tenant
    units = GPU_UNITS.collection(made_tenant.namespace)
    await kube.delete(units)

    async def has_none() -> bool:
        return not (await kube.get(units))["items"]

    await eventually(has_none)


async def park(kube: KubeClient, owner: Tenant, name: str, **spec: Any) -> None:
    """A stopped unit: it needs neither stock nor a pod."""
    await create_unit(kube, unit_body(name, namespace=owner.namespace, running=False, **spec))
    await wait_unit_phase(kube, name, "Stopped", owner.namespace)


async def change(kube: KubeClient, owner: Tenant, name: str, image: str) -> None:
    await kube.patch(GPU_UNITS.item(name, owner.namespace), {"spec": {"image": image}})


def shows(name: str, unit: str, image: str | None = None) -> Any:
    def is_it(event: ServerEvent) -> bool:
        is_named = (event.name, event.data.get("name")) == (name, unit)
        return is_named and image in (None, event.data.get("image"))

    return is_it


async def test_pages_show_every_unit_once(kube: KubeClient, acme: Tenant) -> None:
    names = [f"unit-{number}" for number in range(5)]
    for name in names:
        await create_unit(kube, unit_body(name, namespace=acme.namespace, running=False))
    seen: list[str] = []
    sizes: list[int] = []
    token: str | None = None
    while token or not sizes:
        page = (await acme.api.get(UNITS, params={"limit": 2} | ({"continue": token} if token else {}))).json()
        seen += [unit["name"] for unit in page["data"]]
        sizes.append(len(page["data"]))
        token = page.get("continue")
    assert sizes == [2, 2, 1]
    assert seen == names


async def test_a_list_is_narrowed_down_by_spec_and_phase(kube: KubeClient, acme: Tenant) -> None:
    await park(kube, acme, "simulated")
    await park(kube, acme, "local", specName="host.1")

    async def listed(**params: str) -> list[str]:
        return [unit["name"] for unit in (await acme.api.get(UNITS, params=params)).json()["data"]]

    assert await listed() == ["local", "simulated"]
    assert await listed(specName="host.1") == ["local"]
    assert await listed(specName="unknown.1") == []
    assert await listed(phase="Stopped") == ["local", "simulated"]
    assert await listed(phase="Ready") == []
    assert await listed(phase="Stopped", specName="g1.1") == ["simulated"]


@pytest.mark.parametrize("token", ["nonsense", "%00", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"])
async def test_a_token_that_nobody_gave_out_is_a_400(acme: Tenant, token: str) -> None:
    answer = await acme.api.get(UNITS, params={"limit": 1, "continue": token})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")


async def test_a_filter_cannot_smuggle_in_another_one(acme: Tenant) -> None:
    answer = await acme.api.get(UNITS, params={"specName": "g1.1,metadata.namespace=runtime-stock"})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")


async def test_a_watch_shows_what_is_there_and_then_every_change_with_its_id(kube: KubeClient, acme: Tenant) -> None:
    await park(kube, acme, "first")
    async with watching(acme.api, UNITS) as stream:
        [there] = await stream.until_id()
        assert shows("added", "first")(there)
        assert there.data["phase"] == "Stopped"
        await change(kube, acme, "first", "example/new")
        await stream.until(shows("modified", "first", "example/new"))
        await create_unit(kube, unit_body("second", namespace=acme.namespace, running=False))
        await stream.until(shows("added", "second"))
        await delete_unit(kube, "first", acme.namespace)
        events = await stream.until(shows("deleted", "first"))
        assert all(event.id and event.id.isdecimal() for event in events)


async def test_a_watch_shows_nobody_elses_units(kube: KubeClient, acme: Tenant) -> None:
    async with watching(acme.api, UNITS) as stream:
        assert await stream.until_id() == []
        await create_unit(kube, unit_body("foreign", running=False))
        await create_unit(kube, unit_body("own", namespace=acme.namespace, running=False))
        [event] = await stream.until(shows("added", "own"))
        assert event.data["namespace"] == acme.namespace
    await delete_unit(kube, "foreign")


async def test_whoever_comes_back_with_the_last_id_has_missed_nothing(kube: KubeClient, acme: Tenant) -> None:
    for name in ("kept", "removed"):
        await park(kube, acme, name)
    async with watching(acme.api, UNITS) as stream:
        await stream.until_id()
        last_seen = stream.last_id
    assert last_seen is not None
    await change(kube, acme, "kept", "example/meanwhile")
    await create_unit(kube, unit_body("new", namespace=acme.namespace, running=False))
    await delete_unit(kube, "removed", acme.namespace)
    async with watching(acme.api, UNITS, last_seen) as stream:
        events = await stream.until(shows("deleted", "removed"))
        assert any(shows("modified", "kept", "example/meanwhile")(event) for event in events)
        assert any(shows("added", "new")(event) for event in events)
        assert not any(shows("added", "kept")(event) for event in events)


async def test_a_list_that_was_cut_off_is_shown_again_as_a_whole(kube: KubeClient, acme: Tenant) -> None:
    """An id in the middle of the list would make the caller believe that it has seen all of it."""
    for name in ("one", "two", "three"):
        await park(kube, acme, name)
    async with watching(acme.api, UNITS) as stream:
        first = await stream.next()
        assert first is not None
        assert first.name == "added"
        assert stream.last_id is None
    async with watching(acme.api, UNITS, stream.last_id) as again:
        assert {event.data["name"] for event in await again.until_id()} == {"one", "two", "three"}


async def test_whoever_comes_back_too_late_is_told_and_gets_everything_again(
    kube: KubeClient, cluster: RunningCluster, acme: Tenant
) -> None:
    await park(kube, acme, "still-there")
    await compact(cluster)
    async with watching(acme.api, UNITS, "1") as stream:
        resync, unit = await read(stream, 2)
        assert (resync.name, resync.id, resync.data) == ("resync", None, {})
        assert shows("added", "still-there")(unit)
        await change(kube, acme, "still-there", "example/new")
        await stream.until(shows("modified", "still-there", "example/new"))


async def read(stream: EventStream, count: int) -> list[ServerEvent]:
    events: list[ServerEvent] = []
    while len(events) < count:
        if (event := await stream.next()) is not None:
            events.append(event)
    return events


async def test_a_watch_that_has_nothing_to_say_is_answered_all_the_same(acme: Tenant) -> None:
    async with watching(acme.api, UNITS) as stream:
        await stream.until_id()
        last_seen = stream.last_id
    # How soon: see test_streams.
    async with watching(acme.api, UNITS, last_seen):
        pass


async def test_an_id_that_is_none_is_a_400(acme: Tenant) -> None:
    answer = await acme.api.get(UNITS, params={"watch": "true"}, headers={"Last-Event-ID": "yesterday"})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert answer.json()["error"]["details"][0]["field"] == "Last-Event-ID"


async def test_only_so_many_streams_are_open_and_one_that_ends_makes_room(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    settings = {"GPU_PLATFORM_API_MAX_STREAMS": "1"}
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log", settings) as (_, url),
        open_api(url, cluster.record.api_key) as api,
    ):
        await wait_ready(api)
        async with watching(api, UNITS) as stream:
            await stream.until_id()
            refused = await api.get(UNITS, params={"watch": "true"})
            assert (refused.status_code, code_of(refused)) == (429, "too_many_requests")
            assert int(refused.headers["retry-after"]) >= 1
            assert (await api.get(UNITS)).status_code == 200
        await wait_for_room(api)


async def wait_for_room(api: httpx.AsyncClient) -> None:
    """The server learns of a closed connection a moment later."""

    async def has_room() -> bool:
        async with api.stream("GET", UNITS, params={"watch": "true"}) as answer:
            return answer.status_code == 200

    async def is_closed() -> bool:
        return "gpu_platform_api_streams 0.0" in await scrape(api)

    await eventually(has_room)
    await eventually(is_closed)
