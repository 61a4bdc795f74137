"""The number of a tenant's objects: refused at accept, by the quota behind it, and never in the way of a deletion."""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator
from datetime import datetime

import httpx
import pytest

from gpu_platform.devcluster.definitions import DEFINITIONS, field_manager
from gpu_platform.devcluster.record import read_status
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import operation_name
from gpu_platform.domain.tenant_limits import QUOTA, TenantLimits
from gpu_platform.domain.tenants import Role
from gpu_platform.domain.units import GPUUnitSpec, accepted_text
from gpu_platform.kube import KubeClient, KubeError
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_UNITS, OPERATIONS, RESOURCE_QUOTAS, ResourcePath
from tests.support.api import UNITS, api_process, code_of, open_api, wait_ready
from tests.support.audit_log import AuditLog
from tests.support.clusters import RunningCluster
from tests.support.functions import FUNCTIONS, build_function_request, post_function
from tests.support.namespaces import change_limits, limit_objects, wait_counted
from tests.support.storages import STORAGES, build_storage_request
from tests.support.tenants import Tenant, tenant
from tests.support.units_and_stock import (
    STOCK,
    create_unit,
    ensure_spec,
    find,
    ready_condition,
    stock_pool,
    unit_body,
    wait_pool_available,
)
from tests.support.units_api import SPEC, rest_unit, spec_body
from tests.support.waiting import NotYet, eventually

LIMITS = TenantLimits(units=2, storages=2, functions=2, operations=8)
API_AGENT = "gpu-platform-api"
CONFLICT = 409
COLLECTIONS = {"units": UNITS, "storages": STORAGES, "functions": FUNCTIONS}


@pytest.fixture(scope="module", autouse=True)
async def spec(kube: KubeClient) -> None:
    await ensure_spec(kube, spec_body(SPEC))


@pytest.fixture(scope="module")
async def strict_url(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """An API whose tenants may have little; the cluster's own has the defaults."""
    limits = {name: getattr(LIMITS, name) for name in LIMITS.model_fields_set}
    settings = {"GPU_PLATFORM_API_TENANT_LIMITS": json.dumps(limits)}
    log = tmp_path_factory.mktemp("strict") / "api.log"
    async with api_process(cluster.api_kubeconfig, log, settings) as (_, url), open_api(url, None) as probe:
        await wait_ready(probe)
        yield url


@pytest.fixture
async def strict(kube: KubeClient, strict_url: str) -> AsyncIterator[Tenant]:
    """A tenant of the strict API. Its namespace has no quota: what is refused, the API refuses."""
    async with tenant(kube, strict_url, Role.EDITOR) as each:
        yield each


@pytest.fixture
async def bounded(kube: KubeClient, cluster: RunningCluster) -> AsyncIterator[Tenant]:
    """A tenant of the cluster's API with a quota: what is refused, Kubernetes refuses."""
    async with tenant(kube, cluster.record.platform_url, Role.EDITOR) as each:
        await limit_objects(kube, each.namespace, LIMITS)
        yield each


def build_impossible(kind: str) -> Json:
    """A request that is refused in any case, and first by a limit that is reached."""
    if kind == "units":
        return rest_unit("impossible", specName="no-such-spec")
    if kind == "functions":
        return build_function_request("impossible", specName="no-such-spec")
    return build_storage_request("impossible", prepare={"fromStorageName": "no-such-storage"})


async def wait_refused(api: httpx.AsyncClient, kind: str, limit: str) -> str:
    """Once the API's caches show what was made; returns the sentence."""

    async def is_refused() -> str | NotYet:
        answer = await api.post(COLLECTIONS[kind], json=build_impossible(kind))
        assert answer.status_code in (400, 403, 404), answer.text
        message: str = answer.json()["error"]["message"]
        is_limit = code_of(answer) == "quota_exceeded" and f"its limit {limit} is" in message
        return message if is_limit else NotYet(answer.text)

    return await eventually(is_refused)


async def list_names(kube: KubeClient, path: ResourcePath, namespace: str) -> set[str]:
    return {each["metadata"]["name"] for each in (await kube.get(path.collection(namespace)))["items"]}


async def make_stopped_units(kube: KubeClient, owner: Tenant, count: int) -> None:
    """Units that were accepted and take no stock."""
    for number in range(count):
        body = unit_body(f"stopped-{number}", namespace=owner.namespace, running=False)
        accepted = accepted_text(GPUUnitSpec.model_validate(body["spec"]))
        body["metadata"]["annotations"] = {names.ANNOTATION_ACCEPTED_SPEC: accepted}
        await create_unit(kube, body)


@pytest.mark.parametrize("kind", ["functions", "storages"])
async def test_the_limit_of_a_kind_is_reached_and_replays_and_deletions_go_on(
    kube: KubeClient, strict: Tenant, kind: str
) -> None:
    collection = COLLECTIONS[kind]
    build = build_function_request if kind == "functions" else build_storage_request
    first, second, third = (build(name) for name in ("first", "second", "third"))
    for body in (first, second):
        assert (await strict.api.post(collection, json=body)).status_code == 201
    message = await wait_refused(strict.api, kind, kind)
    assert f"the tenant has 2 {kind}, and its limit {kind} is 2" in message

    refused = await strict.api.post(collection, json=third)

    assert (refused.status_code, code_of(refused)) == (403, "quota_exceeded")
    written = await list_names(kube, OPERATIONS, strict.namespace)
    assert written == {operation_name(strict.name, body["operationID"]) for body in (first, second)}
    assert (await strict.api.post(collection, json=first)).status_code == 200
    assert (await strict.api.delete(f"{collection}/first")).status_code == 204

    async def is_accepted() -> bool | NotYet:
        answer = await strict.api.post(collection, json=third)
        return answer.status_code in (200, 201) or NotYet(answer.text)

    await eventually(is_accepted)


async def test_at_the_limit_of_units_no_stock_is_claimed(kube: KubeClient, strict: Tenant) -> None:
    await make_stopped_units(kube, strict, 2)
    await wait_refused(strict.api, "units", "units")

    async with stock_pool(kube, "spared", 1, specName=SPEC):
        await wait_pool_available(kube, "spared", 1)
        before = (await kube.get(GPU_UNITS.item("spared-0", STOCK)))["metadata"]["resourceVersion"]
        refused = await strict.api.post(UNITS, json=rest_unit("third"))
        assert (refused.status_code, code_of(refused)) == (403, "quota_exceeded")
        assert await list_names(kube, OPERATIONS, strict.namespace) == set()
        assert (await kube.get(GPU_UNITS.item("spared-0", STOCK)))["metadata"]["resourceVersion"] == before


async def test_objects_made_and_deleted_for_ever_leave_as_many_records_as_the_limit(
    kube: KubeClient, strict: Tenant
) -> None:
    """What grows etcd: a tenant that deletes what it makes has no objects, and records of all of them."""
    kept = await post_function(strict.api, "kept")
    await make_stopped_units(kube, strict, 1)
    numbers = itertools.count()

    async def is_refused_for_its_records() -> str | NotYet:
        name = f"churn-{next(numbers)}"
        made = await strict.api.post(FUNCTIONS, json=build_function_request(name))
        if made.status_code == 201:
            assert (await strict.api.delete(f"{FUNCTIONS}/{name}")).status_code == 204
            return NotYet(made.text)
        assert code_of(made) == "quota_exceeded", made.text
        message: str = made.json()["error"]["message"]
        # Until those before are gone, it may be the limit of functions.
        return message if "its limit operations is 8" in message else NotYet(message)

    assert "kept for 7 days" in await eventually(is_refused_for_its_records)
    records = await list_names(kube, OPERATIONS, strict.namespace)
    # The last deletion is beyond it; so is what the cache did not show in time.
    assert LIMITS.operations <= len(records) <= LIMITS.operations + 4

    for path, body in (
        (f"{UNITS}/stopped-0/start", None),
        (f"{UNITS}/stopped-0/preview", {"operationID": "look"}),
        (STORAGES, build_storage_request("more")),
    ):
        refused = await strict.api.post(path, json=body)
        assert (refused.status_code, code_of(refused)) == (403, "quota_exceeded"), (path, refused.text)
    assert await list_names(kube, OPERATIONS, strict.namespace) == records

    assert (await strict.api.post(f"{UNITS}/stopped-0/stop")).status_code == 200
    replay = await strict.api.post(FUNCTIONS, json=build_function_request("kept"))
    assert (replay.status_code, replay.json()["data"]["name"]) == (200, kept["name"])
    for path in (f"{FUNCTIONS}/kept", f"{UNITS}/stopped-0"):
        deleted = await strict.api.delete(path)
        assert deleted.status_code == 204, deleted.text
    again = await strict.api.post(FUNCTIONS, json=build_function_request("kept"))
    assert (again.status_code, code_of(again)) == (409, "operation_conflict")


async def test_of_two_requests_for_the_last_place_the_quota_lets_one_in(kube: KubeClient, bounded: Tenant) -> None:
    """The API lets both in: its own limit is larger, as it is for a process whose cache is behind."""
    await make_stopped_units(kube, bounded, 1)
    async with stock_pool(kube, "contested", 2, specName=SPEC):
        await wait_pool_available(kube, "contested", 2)
        answers = await asyncio.gather(*(bounded.api.post(UNITS, json=rest_unit(name)) for name in ("one", "two")))
        assert sorted(answer.status_code for answer in answers) == [201, 403], [answer.text for answer in answers]
        [refused] = [answer for answer in answers if answer.status_code == 403]
        assert code_of(refused) == "quota_exceeded"
        assert "the tenant has 2 units, and its limit units is 2" in refused.json()["error"]["message"]
        [made] = [answer.json()["data"]["name"] for answer in answers if answer.status_code == 201]
        lost = rest_unit("two" if made == "one" else "one")
        assert (
            await find(kube, OPERATIONS.item(operation_name(bounded.name, lost["operationID"]), bounded.namespace))
            is None
        )
        await expect_free_stock(kube, lost["name"], bounded)

        replay = await bounded.api.post(UNITS, json=rest_unit(made))
        assert replay.status_code == 200
        await wait_units_counted(kube, bounded, 2)
        with pytest.raises(KubeError, match="exceeded quota: platform-object-counts"):
            await create_unit(kube, unit_body("by-hand", namespace=bounded.namespace, running=False))
        assert (await bounded.api.delete(f"{UNITS}/{made}")).status_code == 204


async def wait_units_counted(kube: KubeClient, owner: Tenant, count: int) -> None:
    """The quota controller counts again when an object is deleted, from caches that may lack the latest objects, and
    corrects itself with its next count."""

    async def is_counted() -> bool | NotYet:
        quota = await kube.get(RESOURCE_QUOTAS.item(QUOTA, owner.namespace))
        used = quota["status"]["used"]
        return used[f"count/{GPU_UNITS.plural}.{names.GROUP}"] == str(count) or NotYet(used)

    await eventually(is_counted)


async def expect_free_stock(kube: KubeClient, name: str, owner: Tenant) -> None:
    """No stock is claimed for this unit."""
    holder = names.claim_holder(owner.namespace, name)
    stock = (await kube.get(GPU_UNITS.collection(STOCK)))["items"]
    claims = [each["metadata"].get("annotations", {}).get(names.ANNOTATION_CLAIMED_BY) for each in stock]
    assert holder not in claims


async def test_creations_go_on_while_others_change_the_counts(
    kube: KubeClient, bounded: Tenant, cluster: RunningCluster
) -> None:
    """The API server gives a creation up with a conflict of the quota when others were faster a few times. Functions
    are made until one was accepted in spite of that. Where all tries of a creation lose, as they may against two
    writers without a pause, the caller is told to try again."""
    await change_limits(kube, bounded.namespace, TenantLimits())
    path = RESOURCE_QUOTAS.item(QUOTA, bounded.namespace)
    log = AuditLog.from_here(cluster.directory.audit_log)
    numbers = itertools.count()
    accepted: set[str] = set()

    async def write_without_end(writer: int) -> None:
        for number in itertools.count():
            await kube.patch(path, {"metadata": {"annotations": {f"writer-{writer}": str(number)}}})

    async def is_accepted_after_a_conflict() -> bool:
        request = build_function_request(f"counted-{next(numbers)}")
        made = await impatient.post(FUNCTIONS, json=request)
        if made.status_code == 201:
            accepted.update((request["name"], operation_name(bounded.name, request["operationID"])))
        else:
            assert (made.status_code, code_of(made)) == (503, "service_unavailable"), made.text
        return any(is_conflict_of_quota(event, bounded.namespace, accepted) for event in log.writes(API_AGENT))

    writers = [asyncio.create_task(write_without_end(number)) for number in range(2)]
    try:
        # A client that repeats what is answered with 503 would hide that the API does not.
        async with open_api(str(bounded.api.base_url), bounded.key, patience=0) as impatient:
            await eventually(is_accepted_after_a_conflict)
        assert not any(writer.done() for writer in writers)
    finally:
        for writer in writers:
            writer.cancel()


def is_conflict_of_quota(event: Json, namespace: str, names_: set[str]) -> bool:
    status, target = event["responseStatus"], event["objectRef"]
    is_counted = status["code"] == CONFLICT and "resourcequotas" in status.get("message", "")
    return is_counted and target.get("namespace") == namespace and target.get("name") in names_


async def test_a_quota_full_of_operations_hides_no_replay(kube: KubeClient, bounded: Tenant) -> None:
    await post_function(bounded.api, "kept")
    full = LIMITS.model_copy(update={"operations": 0, "units": 1, "storages": 0, "functions": 0})
    await change_limits(kube, bounded.namespace, full)

    replay = await bounded.api.post(FUNCTIONS, json=build_function_request("kept"))

    assert replay.status_code == 200, replay.text
    refused = await bounded.api.post(FUNCTIONS, json=build_function_request("more"))
    assert (refused.status_code, code_of(refused)) == (403, "quota_exceeded")
    assert (
        "its limit operations is 1, with the reserve for deletions; they are the records"
        in refused.json()["error"]["message"]
    )


async def test_a_function_whose_worker_is_refused_says_why_and_has_it_once_there_is_room(
    kube: KubeClient, bounded: Tenant
) -> None:
    await make_stopped_units(kube, bounded, 2)
    async with stock_pool(kube, "workless", 1, specName=SPEC):
        await wait_pool_available(kube, "workless", 1)
        await post_function(bounded.api, "busy", minWorkers=1, maxWorkers=1)
        path = GPU_FUNCTIONS.item("busy", bounded.namespace)

        async def is_refused() -> str | NotYet:
            function = await kube.get(path)
            if (function.get("status") or {}).get("phase") != "Failed":
                return NotYet(function.get("status"))
            return str(ready_condition(function)["message"])

        assert "its limit units is 2" in await eventually(is_refused)
        assert ready_condition(await kube.get(path))["reason"] == "WorkerFailed"
        await expect_free_stock(kube, names.worker_name("busy", 0), bounded)

        await change_limits(kube, bounded.namespace, LIMITS.model_copy(update={"units": 3}))
        # A function that was changed is tried at once, another one within a minute.
        assert (await bounded.api.put(f"{FUNCTIONS}/busy", json={"idleTimeoutSeconds": 77})).status_code == 200
        await eventually(lambda: find(kube, GPU_UNITS.item(names.worker_name("busy", 0), bounded.namespace)))
        records = await list_names(kube, OPERATIONS, bounded.namespace)
        worker = f"{UNITS}/{names.worker_name('busy', 0)}"
        assert (await bounded.api.delete(worker)).status_code == 204
        assert await list_names(kube, OPERATIONS, bounded.namespace) == records
        assert (await bounded.api.delete(f"{FUNCTIONS}/busy")).status_code == 204


async def test_what_kubernetes_has_not_counted_yet_is_asked_for_again(kube: KubeClient, bounded: Tenant) -> None:
    """As after the first bootstrap of a cluster."""
    status = RESOURCE_QUOTAS.item(QUOTA, bounded.namespace, "status")
    async with open_api(str(bounded.api.base_url), bounded.key, patience=0) as impatient:

        async def is_told() -> httpx.Response | NotYet:
            await kube.patch(status, {"status": {"used": None}})
            answer = await impatient.post(FUNCTIONS, json=build_function_request("early"))
            if answer.status_code == 201:
                await impatient.delete(f"{FUNCTIONS}/early")
                await kube.delete(OPERATIONS.item(operation_name(bounded.name, "op-early"), bounded.namespace))
            return answer if answer.status_code == 503 else NotYet(answer.text)

        told = await eventually(is_told)
        assert (code_of(told), told.headers["Retry-After"]) == ("service_unavailable", "5")
        assert "has not counted" in told.json()["error"]["message"]
        later = await bounded.api.post(FUNCTIONS, json=build_function_request("later"))
        assert later.status_code == 201, later.text


async def test_a_cluster_that_is_bootstrapped_at_its_start_knows_our_kinds_before_it_counts(
    kube: KubeClient, cluster: RunningCluster
) -> None:
    """A controller manager that starts before them refuses every creation for as long as it does not know them."""
    [manager] = [each for each in read_status(cluster.directory).processes if each.name == "kube-controller-manager"]
    assert manager.started_at is not None
    for definition in (await kube.get(DEFINITIONS.collection()))["items"]:
        metadata = definition["metadata"]
        if definition["spec"]["group"] != names.GROUP:
            continue
        assert datetime.fromisoformat(metadata["creationTimestamp"]).timestamp() <= manager.started_at
        # The bootstrap owns them alone: it can remove fields, too.
        managers = {each["manager"] for each in metadata["managedFields"] if each["operation"] == "Apply"}
        assert managers == {field_manager(metadata["name"])}
    [bootstrapped, *_] = re.findall(r"up: .*", cluster.directory.log_of("bootstrap").read_text())
    assert re.fullmatch(r"up: \d+ create, in \d+ s", bootstrapped)
    await wait_counted(kube)
