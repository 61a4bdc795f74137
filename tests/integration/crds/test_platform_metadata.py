"""A user with every right to a tenant's custom resources but `manage` meets the admission policy."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_platform.adapters.kube import KubeClient, KubeError, open_client
from gpu_platform.adapters.kube.paths import GPU_STORAGES, GPU_UNITS, NAMESPACES, OPERATIONS
from gpu_platform.domain import names
from gpu_platform.domain.gpu_units import GPUUnitSpec
from gpu_platform.domain.unit_requests import accepted_text
from infra.objects.roles import PROGRAM_ROLE, tenant_role
from tests.support.clusters import RunningCluster
from tests.support.namespaces import create_namespace
from tests.support.samples import load_sample
from tests.support.service_accounts import bind, create_account, grant, write_kubeconfig
from tests.support.unit_programs import create_project, wish
from tests.support.units_and_stock import INSTANCES, STOCK, ensure_spec, find, get_unit, stock_pool, unit_body
from tests.support.units_api import spec_body
from tests.support.waiting import eventually

Json = dict[str, Any]
Attack = Callable[[KubeClient, str], Awaitable[Any]]

EVE = "eve"
FORBIDDEN = 403
KINDS = ("gpuunits", "gpustorages", "gpufunctions", "stockpools", "operations")
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"]
UNIT, STORAGE = "mine", "held"


@pytest.fixture
async def eve(cluster: RunningCluster, kube: KubeClient, namespace: str, tmp_path: Path) -> AsyncIterator[KubeClient]:
    """A client that may do everything with the custom resources of the namespace, but manage them. There are a stopped
    unit with an accepted spec, an Operation, and a storage."""
    await create_account(kube, EVE, namespace)
    resources = [*KINDS, *(f"{kind}/status" for kind in KINDS)]
    await grant(kube, EVE, namespace, [{"apiGroups": [names.GROUP], "resources": resources, "verbs": VERBS}])
    unit = unit_body(UNIT, namespace=namespace, running=False)
    accepted = accepted_text(GPUUnitSpec.model_validate(unit["spec"]))
    unit["metadata"]["annotations"] = {names.ANNOTATION_ACCEPTED_SPEC: accepted}
    await kube.create(GPU_UNITS.collection(namespace), unit)
    await kube.create(OPERATIONS.collection(namespace), operation(namespace))
    metadata = {"name": STORAGE, "finalizers": [names.STORAGE_FINALIZER]}
    storage = {"apiVersion": names.API_VERSION, "kind": "GPUStorage", "metadata": metadata, "spec": {"size": "1Gi"}}
    await kube.create(GPU_STORAGES.collection(namespace), storage)
    async with await open_client(await write_kubeconfig(cluster, kube, EVE, tmp_path / "eve", namespace)) as client:
        yield client


def operation(namespace: str, **metadata: Any) -> Json:
    sample = load_sample("Operation")
    return {**sample, "metadata": {"name": sample["metadata"]["name"], "namespace": namespace, **metadata}}


async def change_unit(kube: KubeClient, namespace: str, change: Json, part: str | None = None) -> Json:
    return await kube.patch(GPU_UNITS.item(UNIT, namespace, part), change)


def annotate(value: str | None) -> Attack:
    metadata = {"annotations": {names.ANNOTATION_ACCEPTED_SPEC: value}}
    return lambda kube, namespace: change_unit(kube, namespace, {"metadata": metadata})


def create_with(**metadata: Json) -> Attack:
    async def create(kube: KubeClient, namespace: str) -> None:
        body = unit_body("planted", namespace=namespace, running=False)
        body["metadata"] |= metadata
        await kube.create(GPU_UNITS.collection(namespace), body)

    return create


async def create_operation(kube: KubeClient, namespace: str) -> None:
    await kube.create(OPERATIONS.collection(namespace), operation(namespace, name="forged"))


async def delete_operation(kube: KubeClient, namespace: str) -> None:
    await kube.delete(OPERATIONS.item(operation(namespace)["metadata"]["name"], namespace))


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
    "an Operation": create_operation,
    "an Operation that is changed": label_operation,
    "an Operation that is deleted": delete_operation,
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
