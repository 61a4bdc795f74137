"""A user with every right to a tenant's custom resources but `manage` meets the admission policy."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stacks import SPECS, StackKind
from gpu_platform.domain.units import accepted_text
from gpu_platform.kube import ConflictError, KubeClient, KubeError, open_client
from gpu_platform.kube.paths import (
    GPU_FUNCTIONS,
    GPU_STORAGES,
    GPU_UNITS,
    NAMESPACES,
    OPERATIONS,
    STOCK_POOLS,
    ResourcePath,
)
from infra.components.access import PROGRAM_ROLE, tenant_role
from tests.support.admission import BINDINGS
from tests.support.clusters import RunningCluster
from tests.support.namespaces import create_namespace
from tests.support.samples import load_sample
from tests.support.service_accounts import bind, create_account, grant, write_kubeconfig
from tests.support.unit_programs import create_project, wish
from tests.support.units_and_stock import INSTANCES, STOCK, ensure_spec, find, get_unit, stock_pool, unit_body
from tests.support.units_api import spec_body
from tests.support.waiting import NotYet, eventually

Attack = Callable[[KubeClient, str], Awaitable[Any]]

EVE = "eve"
FORBIDDEN = 403
KINDS = ("gpuunits", "gpustorages", "gpufunctions", "stockpools", "operations")
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
UNIT, STORAGE, FUNCTION, POOL = "mine", "held", "words", "warm"
LIMIT = 1_000
POLICY_BINDING = BINDINGS.item("gpu-platform-metadata")


@pytest.fixture
async def eve(cluster: RunningCluster, kube: KubeClient, namespace: str, tmp_path: Path) -> AsyncIterator[KubeClient]:
    """A client that may do everything with the custom resources of the namespace, but manage them. There are a stopped
    unit, a function and a pool with accepted specs, an Operation, and a storage."""
    await create_account(kube, EVE, namespace)
    resources = [*KINDS, *(f"{kind}/status" for kind in KINDS)]
    await grant(kube, EVE, namespace, [{"apiGroups": [names.GROUP], "resources": resources, "verbs": VERBS}])
    unit = unit_body(UNIT, namespace=namespace, running=False)
    function = build_object("GPUFunction", FUNCTION, {"specName": "g1.1", "image": "example/words"})
    pool = build_object("StockPool", POOL, {"specName": "g1.1", "replicas": 0})
    for kind, path, body in (
        (StackKind.GPU_UNIT, GPU_UNITS, unit),
        (StackKind.GPU_FUNCTION, GPU_FUNCTIONS, function),
        (StackKind.STOCK_POOL, STOCK_POOLS, pool),
    ):
        accepted = accepted_text(SPECS[kind].model_validate(body["spec"]))
        body["metadata"]["annotations"] = {names.ANNOTATION_ACCEPTED_SPEC: accepted}
        await kube.create(path.collection(namespace), body)
    await kube.create(OPERATIONS.collection(namespace), operation(namespace))
    storage = build_object("GPUStorage", STORAGE, {"size": "1Gi"}, finalizers=[names.STORAGE_FINALIZER])
    await kube.create(GPU_STORAGES.collection(namespace), storage)
    async with await open_client(await write_kubeconfig(cluster, kube, EVE, tmp_path / "eve", namespace)) as client:
        yield client


def build_object(kind: str, name: str, spec: Json, **metadata: Any) -> Json:
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def operation(namespace: str, **metadata: Any) -> Json:
    sample = load_sample("Operation")
    return {**sample, "metadata": {"name": sample["metadata"]["name"], "namespace": namespace, **metadata}}


async def change_unit(kube: KubeClient, namespace: str, change: Json, part: str | None = None) -> Json:
    return await kube.patch(GPU_UNITS.item(UNIT, namespace, part), change)


def annotate(value: str | None, path: ResourcePath = GPU_UNITS, name: str = UNIT) -> Attack:
    change = {"metadata": {"annotations": {names.ANNOTATION_ACCEPTED_SPEC: value}}}
    return lambda kube, namespace: kube.patch(path.item(name, namespace), change)


async def replace_unit(
    kube: KubeClient, namespace: str, change: Callable[[Json], Any], part: str | None = None
) -> None:
    async def is_replaced() -> bool:
        unit = await kube.get(GPU_UNITS.item(UNIT, namespace))
        change(unit)
        try:
            await kube.replace(GPU_UNITS.item(UNIT, namespace, part), unit)
        except ConflictError:
            # The reconciler writes it, too.
            return False
        return True

    await eventually(is_replaced)


async def replace_accepted_spec(kube: KubeClient, namespace: str) -> None:
    accepted = {names.ANNOTATION_ACCEPTED_SPEC: '{"gpu": 8}'}
    await replace_unit(kube, namespace, lambda unit: unit["metadata"]["annotations"].update(accepted))


async def replace_status(kube: KubeClient, namespace: str) -> None:
    await replace_unit(kube, namespace, lambda unit: unit.update(status={"phase": "Ready"}), "status")


async def refer_to_function(kube: KubeClient, namespace: str) -> Json:
    function = await kube.get(GPU_FUNCTIONS.item(FUNCTION, namespace))
    return names.owner_reference("GPUFunction", FUNCTION, function["metadata"]["uid"])


async def pose_as_worker(kube: KubeClient, namespace: str) -> None:
    await change_unit(kube, namespace, {"metadata": {"ownerReferences": [await refer_to_function(kube, namespace)]}})


async def create_worker(kube: KubeClient, namespace: str) -> None:
    await create_with(ownerReferences=[await refer_to_function(kube, namespace)])(kube, namespace)


def create_with(**metadata: Any) -> Attack:
    async def create(kube: KubeClient, namespace: str) -> None:
        body = unit_body("planted", namespace=namespace, running=False)
        body["metadata"] |= metadata
        await kube.create(GPU_UNITS.collection(namespace), body)

    return create


async def create_operation(kube: KubeClient, namespace: str) -> None:
    await kube.create(OPERATIONS.collection(namespace), operation(namespace, name="forged"))


async def delete_operation(kube: KubeClient, namespace: str) -> None:
    await kube.delete(OPERATIONS.item(operation(namespace)["metadata"]["name"], namespace))


async def delete_all_operations(kube: KubeClient, namespace: str) -> None:
    await kube.delete(OPERATIONS.collection(namespace))


async def label_operation(kube: KubeClient, namespace: str) -> None:
    path = OPERATIONS.item(operation(namespace)["metadata"]["name"], namespace)
    await kube.patch(path, {"metadata": {"labels": {"own": "label"}}})


async def remove_finalizer(kube: KubeClient, namespace: str) -> None:
    await kube.patch(GPU_STORAGES.item(STORAGE, namespace), {"metadata": {"finalizers": None}})


ATTACKS: dict[str, Attack] = {
    "an accepted spec that was never accepted": annotate('{"gpu": 8}'),
    "no accepted spec any more": annotate(None),
    "a unit that is born with provenance": create_with(annotations={names.ANNOTATION_SOURCE_STOCK_NAME: "stock-0"}),
    "a unit that is born as another's worker": create_with(labels={names.LABEL_FUNCTION: "other"}),
    "a label of the platform": lambda kube, namespace: change_unit(
        kube, namespace, {"metadata": {"labels": {names.LABEL_STOCK_STATE: names.STOCK_FREE}}}
    ),
    "a finalizer of the platform": lambda kube, namespace: change_unit(
        kube, namespace, {"metadata": {"finalizers": [names.STORAGE_FINALIZER]}}
    ),
    "no finalizer of the platform any more": remove_finalizer,
    "a status": lambda kube, namespace: change_unit(kube, namespace, {"status": {"phase": "Ready"}}, "status"),
    "an accepted spec by PUT": replace_accepted_spec,
    "an accepted spec of a function": annotate('{"minWorkers": 8}', GPU_FUNCTIONS, FUNCTION),
    "an accepted spec of a pool": annotate('{"replicas": 8}', STOCK_POOLS, POOL),
    "a status by PUT": replace_status,
    "a unit that poses as a worker": pose_as_worker,
    "a unit that is born as a worker": create_worker,
    "an Operation": create_operation,
    "an Operation that is changed": label_operation,
    "an Operation that is deleted": delete_operation,
    "all Operations that are deleted": delete_all_operations,
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_platform_metadata_takes_the_verb_manage(
    attack: Attack, eve: KubeClient, kube: KubeClient, namespace: str
) -> None:
    with pytest.raises(KubeError, match=f"serviceaccount:{namespace}:{EVE} needs the verb manage on ") as refused:
        await attack(eve, namespace)
    assert refused.value.status == FORBIDDEN

    await grant(kube, EVE, namespace, [{"apiGroups": [names.GROUP], "resources": list(KINDS), "verbs": ["manage"]}])

    async def is_allowed() -> bool:
        try:
            await attack(eve, namespace)
        except KubeError as error:
            if error.status != FORBIDDEN:
                raise
            return False
        return True

    # The API server learns of a new role a moment later.
    await eventually(is_allowed)


async def test_everything_else_of_a_custom_resource_is_its_tenants(eve: KubeClient, namespace: str) -> None:
    await change_unit(eve, namespace, {"metadata": {"annotations": {"team": "red"}, "labels": {"team": "red"}}})
    await change_unit(eve, namespace, {"spec": {"image": "example/other"}})
    await eve.create(GPU_UNITS.collection(namespace), unit_body("other", namespace=namespace, running=False))
    await eve.delete(GPU_UNITS.item("other", namespace))
    await eve.delete(GPU_UNITS.item(UNIT, namespace))


def build_entries(field: str, count: int) -> Any:
    keys = [f"example.com/k{number}" for number in range(count)]
    if field == "ownerReferences":
        # None of them is a controller. Without such objects the garbage collector would delete the owned one.
        reference = {"apiVersion": "v1", "kind": "Namespace", "name": "default"}
        return [{**reference, "uid": str(UUID(int=number))} for number in range(count)]
    return keys if field == "finalizers" else dict.fromkeys(keys, "")


@pytest.mark.parametrize("field", ["annotations", "labels", "finalizers", "ownerReferences"])
async def test_what_takes_the_policy_too_long_is_refused_before_it_is_there(
    field: str, eve: KubeClient, kube: KubeClient, namespace: str
) -> None:
    """More would make every update of the object too slow: it takes time with the square of the number."""
    refusal = f"at most {LIMIT} {field} are allowed"
    for client in (eve, kube):
        with pytest.raises(KubeError, match=refusal):
            await create_with(**{field: build_entries(field, LIMIT + 1)})(client, namespace)
        with pytest.raises(KubeError, match=refusal):
            await change_unit(client, namespace, {"metadata": {field: build_entries(field, LIMIT + 1)}})


async def test_an_object_that_has_too_many_labels_already_is_updated_and_deleted(
    eve: KubeClient, kube: KubeClient, namespace: str
) -> None:
    """As an earlier version let them in. Here the policy lets them in for a moment."""
    many = build_entries("labels", 2 * LIMIT)
    await kube.patch(POLICY_BINDING, {"spec": {"validationActions": ["Warn"]}})
    try:
        await eventually(lambda: is_accepted(eve, namespace, many))
    finally:
        await kube.patch(POLICY_BINDING, {"spec": {"validationActions": ["Deny"]}})
    await eventually(lambda: is_refused(eve, namespace, many))

    await change_unit(kube, namespace, {"status": {"phase": "Stopped"}}, "status")
    await change_unit(eve, namespace, {"spec": {"image": "example/other"}})
    await change_unit(eve, namespace, {"metadata": {"labels": {"example.com/k0": None}}})
    await eve.delete(GPU_UNITS.item(UNIT, namespace))


async def is_accepted(kube: KubeClient, namespace: str, labels: Json) -> bool:
    try:
        await change_unit(kube, namespace, {"metadata": {"labels": labels}})
    except KubeError:
        return False
    return True


async def is_refused(kube: KubeClient, namespace: str, labels: Json) -> bool:
    body = unit_body("probe", namespace=namespace, running=False)
    body["metadata"]["labels"] = labels
    try:
        await kube.create(GPU_UNITS.collection(namespace), body, {"dryRun": "All"})
    except KubeError:
        return True
    return False


async def test_the_garbage_collector_frees_what_a_function_owns(
    eve: KubeClient, kube: KubeClient, namespace: str
) -> None:
    """It has no right to manage them."""
    await pose_as_worker(kube, namespace)
    await eve.delete(GPU_FUNCTIONS.item(FUNCTION, namespace), {"propagationPolicy": "Orphan"})

    async def is_free() -> bool | NotYet:
        owners = (await kube.get(GPU_UNITS.item(UNIT, namespace)))["metadata"].get("ownerReferences")
        return not owners or NotYet(owners)

    await eventually(is_free)


async def test_a_namespace_is_deleted_with_its_operations(kube: KubeClient) -> None:
    """The namespace controller has no right to manage them."""
    namespace = f"{names.INSTANCE_NAMESPACE_PREFIX}recorded"
    await create_namespace(kube, namespace)
    await kube.create(OPERATIONS.collection(namespace), operation(namespace))
    await kube.delete(NAMESPACES.item(namespace))

    async def is_gone() -> bool:
        return await find(kube, NAMESPACES.item(namespace)) is None

    await eventually(is_gone)


async def test_a_program_with_the_documented_roles_rents_changes_and_returns_a_unit(
    cluster: RunningCluster, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    """And is refused without them."""
    await create_account(kube, "program", namespace)
    kubeconfig = await write_kubeconfig(cluster, kube, "program", tmp_path / "program", namespace)
    await ensure_spec(kube, spec_body("program.1"))
    async with stock_pool(kube, "program", 1, specName="program.1"):
        project = create_project(cluster, tmp_path, **wish("by-program", specName="program.1"))
        project.environment["KUBECONFIG"] = str(kubeconfig)
        assert "forbidden" in project.fail("up", "--yes", "--skip-preview")
        await bind(kube, "program", namespace, "ClusterRole", tenant_role(PROGRAM_ROLE), within=INSTANCES)
        await bind(kube, "program", namespace, "Role", PROGRAM_ROLE, within=STOCK)

        project.up()

        assert (await get_unit(kube, "by-program"))["spec"]["specName"] == "program.1"
        project.destroy()
        await eventually(lambda: is_unit_gone(kube))


async def is_unit_gone(kube: KubeClient) -> bool:
    return await find(kube, GPU_UNITS.item("by-program", INSTANCES)) is None
