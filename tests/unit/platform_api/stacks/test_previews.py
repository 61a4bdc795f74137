"""Previews as jobs: one at a time for each unit, so many for each tenant, and the same for equal requests."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpu_platform.api_models.stacks import PreviewView
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import PREVIEW_RETENTION, operation_name
from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.domain.tenants import Role
from gpu_platform.domain.units import GPUUnitSpec, accepted_text
from gpu_platform.kube import UnreachableError
from gpu_platform.kube.informer import WatchEvent, WatchTiming
from gpu_platform.kube.paths import OPERATIONS
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.http.errors import ApiError
from platform_api.objects.tenant_limits import ObjectLimits
from platform_api.stacks.previews import UNSEEN, ActivePreviews, PreviewService, build_preview, is_shared
from platform_api.stacks.service import view_preview
from tests.support.builders import NOW, make_unit
from tests.support.scripted_kube import StoredObjects

SPEC = accepted_text(GPUUnitSpec(spec_name="g1.1", image="example/train"))
ALICE = Caller(key_id="k", tenant="default", roles=frozenset({Role.EDITOR}))
BOB = Caller(key_id="b", tenant="bob", roles=frozenset({Role.EDITOR}))
LIMIT = 20


class ApiServer(StoredObjects):
    """Gives new objects what an API server gives them."""

    async def create(
        self, path: str, body: Json, params: Mapping[str, str] | None = None, *, timeout: float = 10.0
    ) -> Json:
        given = {"uid": f"uid-{body['metadata']['name']}", "creationTimestamp": NOW.isoformat()}
        return await super().create(path, {**body, "metadata": {**body["metadata"], **given}}, params, timeout=timeout)


class Platform:
    """An API process; its watch tells only what a test makes it tell."""

    def __init__(self, server: ApiServer | None = None) -> None:
        self.server = server or ApiServer()
        self.now = NOW
        self.operations = 1_000
        cluster = Cluster(self.server, WatchTiming(timedelta(minutes=10)))
        self._cache = cluster.operations
        self._cache._synced.set()
        self.previews = PreviewService(
            cluster.client,
            ActivePreviews(self._cache, self._tell_time),
            ObjectLimits(cluster, lambda _: TenantLimits(operations=self.operations)),
        )

    def _tell_time(self) -> datetime:
        return self.now

    async def ask(
        self, operation_id: str | None = None, unit: Json | None = None, caller: Caller = ALICE, limit: int = LIMIT
    ) -> tuple[PreviewView, bool]:
        accepted = await self.previews.accept(caller, unit or accepted_unit(), operation_id, limit)
        return accepted.item, accepted.is_new

    def watch(self) -> None:
        """Everything that there is by now, and nothing that was deleted."""
        for item in self.server.store.objects.values():
            self._cache._take(WatchEvent("ADDED", {**item, "metadata": dict(item["metadata"])}))

    def set_status(self, preview: PreviewView, caller: Caller = ALICE, **status: Any) -> None:
        path = OPERATIONS.item(operation_name(caller.tenant, preview.operation_id), caller.namespace)
        self.server.store.objects[path] = {**self.server.store.objects[path], "status": status}
        version = f"{self.server.store.objects[path]['metadata']['resourceVersion']}0"
        self.server.store.objects[path]["metadata"]["resourceVersion"] = version


def accepted_unit(name: str = "demo", generation: int = 1, namespace: str = ALICE.namespace) -> Json:
    unit = make_unit(name, namespace)
    unit["metadata"] |= {"annotations": {names.ANNOTATION_ACCEPTED_SPEC: SPEC}, "generation": generation}
    return unit


async def test_a_preview_is_recorded_and_found_by_its_operation_id() -> None:
    platform = Platform()
    asked, is_new = await platform.ask("team/ci 7")
    assert is_new
    assert asked.to_json() == {
        "operationID": "team/ci 7",
        "unit": "demo",
        "phase": "Pending",
        "createdAt": "2030-01-01T12:00:00Z",
    }
    assert await platform.previews.get(ALICE, "demo", "team/ci 7") == asked


async def test_a_tenant_with_all_its_operations_gets_no_further_preview_but_its_earlier_ones() -> None:
    platform = Platform()
    asked, _ = await platform.ask("first")
    platform.watch()
    platform.operations = 1
    assert await platform.ask("first") == (asked, False)
    with pytest.raises(ApiError) as refused:
        await platform.ask("second", unit=accepted_unit("other"))
    assert (refused.value.status, refused.value.code) == (403, "quota_exceeded")


@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_preview_that_is_asked_for_again_is_the_same(is_watched: bool) -> None:
    platform = Platform()
    first, _ = await platform.ask("again")
    if is_watched:
        platform.watch()
    assert await platform.ask("again") == (first, False)
    platform.set_status(first, phase="Succeeded", result={"changes": {"same": 1}})
    shown, is_new = await platform.ask("again", limit=0)
    assert (shown.phase, is_new) == ("Succeeded", False)


@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_request_without_an_operation_id_gets_the_preview_that_waits(is_watched: bool) -> None:
    platform = Platform()
    first, _ = await platform.ask()
    if is_watched:
        platform.watch()
    assert await platform.ask() == (first, False)
    assert await platform.ask(unit=accepted_unit(generation=2)) == (first, False)


async def test_a_crowd_of_requests_at_the_same_time_is_one_preview() -> None:
    platform = Platform()
    answers = await asyncio.gather(*(platform.ask() for _ in range(50)))
    assert len({preview.operation_id for preview, _ in answers}) == 1
    assert sum(is_new for _, is_new in answers) == 1
    assert len(platform.server.store.objects) == 1


async def test_a_second_operation_id_is_refused_with_the_name_of_the_running_preview() -> None:
    platform = Platform()
    first, _ = await platform.ask("ci/1 a")
    for phase in ("Pending", "Running"):
        platform.set_status(first, phase=phase)
        with pytest.raises(ApiError) as refused:
            await platform.ask("second")
        assert (refused.value.status, refused.value.code) == (409, "operation_conflict")
        assert f"is {phase}, with the operationID 'ci/1 a'" in refused.value.message
        assert "GET /api/v1/gpu-units/demo/previews/ci%2F1%20a" in refused.value.message


async def test_a_unit_that_was_changed_since_a_preview_began_needs_the_next_one() -> None:
    platform = Platform()
    first, _ = await platform.ask()
    platform.set_status(first, phase="Running")
    shown, is_new = await platform.ask()
    assert (shown.operation_id, is_new) == (first.operation_id, False)
    with pytest.raises(ApiError) as refused:
        await platform.ask(unit=accepted_unit(generation=2))
    assert refused.value.status == 409
    assert first.operation_id in refused.value.message


@pytest.mark.parametrize(
    ("status", "request_", "shared"),
    [
        ({}, {"generation": 1}, True),
        ({"phase": "Pending"}, {}, True),
        ({"phase": "Running"}, {"generation": 3}, True),
        ({"phase": "Running"}, {"generation": 2}, False),
        ({"phase": "Running"}, {}, False),
    ],
)
def test_a_preview_is_shared_while_it_speaks_of_the_unit_as_it_is(status: Json, request_: Json, shared: bool) -> None:
    operation = build_preview(ALICE, accepted_unit(), "op")
    operation = {**operation, "spec": {**operation["spec"], "request": request_}, "status": status}
    assert is_shared(operation, accepted_unit(generation=3)) is shared


@pytest.mark.parametrize("is_watched", [True, False])
async def test_the_end_of_a_preview_counts_before_the_watch_shows_it(is_watched: bool) -> None:
    platform = Platform()
    first, _ = await platform.ask(limit=1)
    if is_watched:
        platform.watch()
    platform.set_status(first, phase="Succeeded")
    second, is_new = await platform.ask("next", limit=1)
    assert (second.operation_id, is_new) == ("next", True)


async def test_a_tenant_has_as_many_previews_as_its_limit_and_others_have_theirs() -> None:
    platform = Platform()

    async def status_of(name: str) -> int:
        try:
            await platform.ask(unit=accepted_unit(name), limit=3)
        except ApiError as error:
            return error.status
        return 202

    answers = await asyncio.gather(*(status_of(f"u{number}") for number in range(10)))
    assert sorted(answers) == [202] * 3 + [429] * 7
    platform.watch()
    with pytest.raises(ApiError, match="the tenant has 3 previews that wait or run") as refused:
        await platform.ask(unit=accepted_unit("u99"), limit=3)
    assert (refused.value.code, refused.value.headers["Retry-After"]) == ("too_many_requests", "2")
    assert await status_of("u0") == 202, "that of this unit is shared, and not one more"
    _, is_new = await platform.ask(unit=accepted_unit(namespace=BOB.namespace), caller=BOB, limit=1)
    assert is_new


async def test_previews_that_ended_make_place_for_others() -> None:
    platform = Platform()
    first, _ = await platform.ask(limit=1)
    platform.set_status(first, phase="Failed")
    platform.watch()
    assert (await platform.ask(unit=accepted_unit("other"), limit=1))[1]


async def test_previews_of_other_api_processes_count() -> None:
    one = Platform()
    other = Platform(one.server)
    first, _ = await one.ask()
    other.watch()
    assert await other.ask() == (first, False)
    with pytest.raises(ApiError) as refused:
        await other.ask(unit=accepted_unit("more"), limit=1)
    assert refused.value.status == 429


async def test_a_preview_that_could_not_be_recorded_does_not_count() -> None:
    platform = Platform()

    def away(method: str, path: str) -> None:
        if method == "create":
            raise UnreachableError(0, "Timeout", path)

    platform.server.fault = away
    with pytest.raises(UnreachableError):
        await platform.ask(limit=1)
    platform.server.fault = lambda _method, _path: None
    assert (await platform.ask(unit=accepted_unit("other"), limit=1))[1]


async def test_a_preview_that_the_watch_never_shows_counts_for_a_minute() -> None:
    platform = Platform()
    await platform.ask(limit=1)
    platform.server.store.objects.clear()
    with pytest.raises(ApiError):
        await platform.ask(unit=accepted_unit("other"), limit=1)
    platform.now += UNSEEN
    assert (await platform.ask(unit=accepted_unit("other"), limit=1))[1]


async def test_nothing_is_accepted_before_the_previews_are_listed() -> None:
    platform = Platform()
    platform._cache._synced.clear()
    with pytest.raises(ApiError) as refused:
        await platform.ask()
    assert (refused.value.status, platform.server.requests) == (503, [])


@pytest.mark.parametrize("other", [accepted_unit("other"), {**accepted_unit(), "metadata": {"uid": "later"}}])
async def test_an_operation_id_of_another_units_preview_is_a_conflict(other: Json) -> None:
    platform = Platform()
    await platform.ask("used")
    unit = {**other, "metadata": {**accepted_unit()["metadata"], **other["metadata"]}}
    with pytest.raises(ApiError) as refused:
        await platform.ask("used", unit)
    assert (refused.value.status, refused.value.code) == (409, "operation_conflict")


async def test_a_unit_that_is_being_deleted_is_not_previewed() -> None:
    unit = accepted_unit()
    unit["metadata"]["deletionTimestamp"] = NOW.isoformat()
    platform = Platform()
    with pytest.raises(ApiError) as refused:
        await platform.ask(unit=unit)
    assert (refused.value.status, platform.server.requests) == (409, [])


@pytest.mark.parametrize(("unit", "operation_id"), [("demo", "never asked"), ("other", "asked")])
async def test_a_preview_that_was_not_asked_for_is_not_found(unit: str, operation_id: str) -> None:
    platform = Platform()
    await platform.ask("asked")
    with pytest.raises(ApiError) as refused:
        await platform.previews.get(ALICE, unit, operation_id)
    assert (refused.value.status, refused.value.code) == (404, "preview_not_found")


async def test_another_request_is_no_preview() -> None:
    platform = Platform()
    operation = build_preview(ALICE, accepted_unit(), "rent")
    path = OPERATIONS.item(operation_name("default", "rent"), ALICE.namespace)
    platform.server.store.objects[path] = {**operation, "spec": {**operation["spec"], "kind": "CreateUnit"}}
    with pytest.raises(ApiError) as refused:
        await platform.previews.get(ALICE, "demo", "rent")
    assert refused.value.code == "preview_not_found"


EARLIER_RELEASE = {
    "apiVersion": "runtime.lokiwager.io/v1alpha1",
    "kind": "Operation",
    "metadata": {
        "name": "op-41edfdb1fc748c30cec49cb8f9c590f1890b8a6d",
        "namespace": "runtime-instance",
        "creationTimestamp": NOW.isoformat(),
        "resourceVersion": "1",
        "uid": "uid-old",
    },
    "spec": {
        "operationID": "old",
        "kind": "PreviewUnit",
        "requestHash": "0a76b947710b7bd65893d09490ed6e824d5f5c903e6b24289cbf1c74723af43c",
        "request": {},
        "target": {"kind": "GPUUnit", "namespace": "runtime-instance", "name": "demo", "uid": "uid-demo"},
    },
}
"""A preview as the release before this one recorded it."""


async def test_a_preview_of_an_earlier_release_is_replayed_and_counts() -> None:
    platform = Platform()
    path = OPERATIONS.item(operation_name("default", "old"), ALICE.namespace)
    platform.server.store.objects[path] = EARLIER_RELEASE
    platform.watch()
    for operation_id in ("old", None):
        shown, is_new = await platform.ask(operation_id)
        assert (shown.operation_id, is_new) == ("old", False)
    with pytest.raises(ApiError) as refused:
        await platform.ask(unit=accepted_unit("other"), limit=1)
    assert refused.value.status == 429


def test_a_preview_at_its_end_shows_what_it_found() -> None:
    change = {"path": "spec.image", "kind": "update", "old": "example/edited", "new": "example/train"}
    step = {"op": "update", "resource": "demo", "type": "gpuplatform:index:GpuUnit", "properties": [change]}
    operation = build_preview(ALICE, accepted_unit(), "seen")
    operation["metadata"]["creationTimestamp"] = NOW.isoformat()
    operation["status"] = {
        "phase": "Succeeded",
        "finishedAt": NOW.isoformat(),
        "expiresAt": (NOW + PREVIEW_RETENTION).isoformat(),
        "result": {"changes": {"update": 1, "same": 1}, "steps": [step]},
    }
    view = view_preview(operation).to_json()
    assert (view["phase"], view["changes"], view["steps"]) == ("Succeeded", {"update": 1, "same": 1}, [step])
