"""The platform's processes as their own ServiceAccounts, and all that a tenant does with a unit."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gpu_platform.domain import names
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_STORAGES, GPU_UNITS, SERVICE_ACCOUNTS, STOCK_POOLS, ResourcePath
from infra.components.access import RBAC, RBAC_GROUP
from infra.components.processes import API, RECONCILER, STACK_WORKER
from tests.support.api import UNITS, api_process, open_api, unit_request, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.daemons import running_daemon
from tests.support.functions import FUNCTIONS, build_function_request
from tests.support.namespaces import ROLE_BINDINGS
from tests.support.ssh_blocks import ssh_block
from tests.support.stack_workers import (
    StackPlace,
    expect_stack_deleted,
    function_stack,
    pool_stack,
    stack_worker,
    storage_stack,
    unit_stack,
    wait_recorded,
)
from tests.support.storages import STORAGES, build_mounts, build_storage_request
from tests.support.units_and_stock import find, wait_unit_phase
from tests.support.waiting import eventually

ROLES = ResourcePath(RBAC, "roles")

POOLS = "/api/v1/operator/stockpools"
TOKENS = ("open-sesame", "open-again")


async def use_a_unit(api: httpx.AsyncClient, kube: KubeClient) -> None:
    """All that a tenant can do with one."""
    unit = f"{UNITS}/boot"
    ports = {"template": {"ports": [{"name": "http", "port": 8000}]}}
    assert (await api.post(UNITS, json=unit_request("boot", **ports))).status_code == 201
    await wait_unit_phase(kube, "boot", "Ready")

    async def is_told() -> bool:
        return bool((await api.get(f"{unit}/events")).json()["data"] != [])

    await eventually(is_told)
    assert (await api.post(f"{unit}/stop")).status_code == 200
    await wait_unit_phase(kube, "boot", "Stopped")

    async def started() -> bool:
        return (await api.post(f"{unit}/start")).status_code == 200

    await eventually(started)
    await wait_unit_phase(kube, "boot", "Ready")
    await use_ssh(api, unit)
    assert (await api.delete(unit)).status_code in (200, 202, 204)

    async def is_gone() -> bool:
        return (await api.get(unit)).status_code == 404

    await eventually(is_gone)


async def use_ssh(api: httpx.AsyncClient, unit: str) -> None:
    """Into the unit: with a token, with another one, and no longer."""

    async def has_ssh(phase: str | None) -> bool:
        view = (await api.get(unit)).json()["data"]
        return bool(view["phase"] == "Ready" and (view.get("sshStatus") or {}).get("phase") == phase)

    for token in TOKENS:
        assert (await api.put(unit, json={"ssh": ssh_block(token=token)})).status_code == 200
        await eventually(lambda: has_ssh("Ready"))
    assert (await api.put(unit, json={"ssh": {"enabled": False}})).status_code == 200
    await eventually(lambda: has_ssh(None))


async def use_a_storage(api: httpx.AsyncClient, kube: KubeClient) -> None:
    """Made and recorded, mounted by a unit, grown, given back, and deleted."""
    storage, unit = f"{STORAGES}/boot-data", f"{UNITS}/boot-user"
    assert (await api.post(STORAGES, json=build_storage_request("boot-data"))).status_code == 201
    made = await kube.get(GPU_STORAGES.item("boot-data", names.DEFAULT_INSTANCE_NAMESPACE))
    accepted = made["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC]
    await wait_recorded(kube, storage_stack("boot-data"), accepted)

    async def mounted() -> bool:
        request = unit_request("boot-user", storageMounts=build_mounts("boot-data"))
        return (await api.post(UNITS, json=request)).status_code in (200, 201)

    await eventually(mounted)
    assert (await api.put(storage, json={"size": "2Gi"})).status_code == 200
    # There is nothing to repeat: recorded, and taken back.
    assert (await api.post(f"{storage}/recover", json={"operationID": "boot-again"})).status_code == 400
    assert (await api.delete(storage)).status_code == 409
    assert (await api.put(unit, json={"storageMounts": []})).status_code == 200

    async def is_deleted() -> bool:
        return (await api.delete(storage)).status_code == 204

    await eventually(is_deleted)
    await expect_stack_deleted(kube, storage_stack("boot-data"))
    assert (await api.delete(unit)).status_code == 204
    await expect_stack_deleted(kube, unit_stack("boot-user"))


async def keep_stacks(api: httpx.AsyncClient, kube: KubeClient) -> None:
    """All that the stack worker does for a unit, a function and a pool, from first to last; and a preview."""
    ssh = ssh_block(token=TOKENS[0])
    assert (await api.post(UNITS, json=unit_request("kept", ssh=ssh))).status_code == 201
    unit = await wait_unit_phase(kube, "kept", "Ready")
    await wait_recorded(kube, unit_stack("kept"), unit["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC])
    asked = await api.post(f"{UNITS}/kept/preview")
    assert asked.status_code == 202
    preview = f"{UNITS}/kept/previews/{asked.json()['data']['operationID']}"

    async def is_previewed() -> bool:
        return bool((await api.get(preview)).json()["data"]["phase"] == "Succeeded")

    await eventually(is_previewed, every=0.2)
    await kube.delete(GPU_UNITS.item("kept", names.DEFAULT_INSTANCE_NAMESPACE))
    put_back = await eventually(lambda: _other_than(kube, unit))
    assert put_back["spec"] == unit["spec"]
    request = {"operationID": "kept-pool", "name": "kept-pool", "specName": unit["spec"]["specName"], "replicas": 0}
    assert (await api.post(POOLS, json=request)).status_code == 202
    pool = await eventually(lambda: find(kube, STOCK_POOLS.item("kept-pool", names.STOCK_NAMESPACE)))
    accepted = pool["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC]
    await wait_recorded(kube, pool_stack("kept-pool"), accepted)
    function = build_function_request("kept-words", specName=unit["spec"]["specName"])
    assert (await api.post(FUNCTIONS, json=function)).status_code == 201
    words = await kube.get(GPU_FUNCTIONS.item("kept-words", names.DEFAULT_INSTANCE_NAMESPACE))
    accepted = words["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC]
    await wait_recorded(kube, function_stack("kept-words"), accepted)
    assert (await api.put(f"{FUNCTIONS}/kept-words", json={"queueLimit": 5})).status_code == 200
    assert (await api.delete(f"{FUNCTIONS}/kept-words")).status_code == 204
    assert (await api.delete(f"{UNITS}/kept")).status_code == 204
    assert (await api.delete(f"{POOLS}/kept-pool")).status_code == 204
    for address in (unit_stack("kept"), function_stack("kept-words"), pool_stack("kept-pool")):
        await expect_stack_deleted(kube, address)


async def _other_than(kube: KubeClient, unit: dict[str, Any]) -> dict[str, Any] | None:
    found = await find(kube, GPU_UNITS.item(unit["metadata"]["name"], unit["metadata"]["namespace"]))
    return found if found is not None and found["metadata"]["uid"] != unit["metadata"]["uid"] else None


async def rent_from_one_that_dies(
    cluster: RunningCluster, kube: KubeClient, directory: Path, key: str, name: str
) -> None:
    """An API process claims stock and is gone; the reconciler makes the unit."""
    kubeconfig = await write_kubeconfig(cluster, kube, API, directory / "dying.kubeconfig")
    async with (
        api_process(kubeconfig, directory / "dying.log", fault="api.stock-claimed") as (daemon, url),
        open_api(url, key) as api,
    ):
        await wait_ready(api)
        with pytest.raises(httpx.TransportError):
            await api.post(UNITS, json=unit_request(name))
        await daemon.ends()
    await eventually(lambda: find(kube, GPU_UNITS.item(name, names.DEFAULT_INSTANCE_NAMESPACE)))
    await wait_unit_phase(kube, name, "Ready")


@asynccontextmanager
async def running_platform(
    cluster: RunningCluster, kube: KubeClient, directory: Path, key: str
) -> AsyncIterator[httpx.AsyncClient]:
    """The processes, each as its own ServiceAccount, and a client with this key."""
    kubeconfigs = {
        account: await write_kubeconfig(cluster, kube, account, directory / f"{account}.kubeconfig")
        for account in (API, RECONCILER, STACK_WORKER)
    }
    reconciler = {
        "GPU_PLATFORM_RECONCILER_KUBECONFIG": str(kubeconfigs[RECONCILER]),
        "GPU_PLATFORM_RECONCILER_METRICS_ADDRESS": "127.0.0.1:0",
        "GPU_PLATFORM_RECONCILER_PROBE_ADDRESS": "127.0.0.1:0",
    }
    async with (
        running_daemon("reconciler", directory / "reconciler.log", reconciler),
        stack_worker(cluster, StackPlace(directory), settings={"KUBECONFIG": str(kubeconfigs[STACK_WORKER])}),
        api_process(kubeconfigs[API], directory / "api.log") as (_, url),
        open_api(url, key) as api,
    ):
        await wait_ready(api)
        yield api


async def write_kubeconfig(
    cluster: RunningCluster, kube: KubeClient, account: str, path: Path, namespace: str = names.SYSTEM_NAMESPACE
) -> Path:
    """Access as this ServiceAccount, by a token."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = await kube.create(SERVICE_ACCOUNTS.item(account, namespace, "token"), body)
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    [user] = document["users"]
    user["user"] = {"token": token["status"]["token"]}
    path.write_text(yaml.safe_dump(document))
    return path


async def create_account(kube: KubeClient, name: str, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await kube.create(SERVICE_ACCOUNTS.collection(namespace), body)


async def grant(kube: KubeClient, account: str, namespace: str, rules: list[dict[str, list[str]]]) -> None:
    """Allows a ServiceAccount of this namespace what the rules say, in this namespace."""
    role = {"metadata": {"generateName": "granted-"}, "rules": rules}
    made = await kube.create(ROLES.collection(namespace), role)
    await bind(kube, account, namespace, "Role", made["metadata"]["name"])


async def bind(
    kube: KubeClient, account: str, namespace: str, kind: str, role: str, *, within: str | None = None
) -> None:
    """Binds a ServiceAccount of `namespace` to a role in the namespace `within`, by default its own."""
    body = {
        "metadata": {"generateName": "bound-"},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
    await kube.create(ROLE_BINDINGS.collection(within or namespace), body)
