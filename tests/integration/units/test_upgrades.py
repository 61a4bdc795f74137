"""A newer version of the platform over running units: none of them restarts.

The units are as an earlier version left them (`deployments_0_1_0.yaml`), with one more difference, so that their
templates are never those of today.
"""

import secrets
from collections.abc import AsyncIterator
from functools import partial

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.kube import KubeClient, PatchType
from gpu_platform.kube.paths import DEPLOYMENTS, GPU_UNITS, PODS
from reconciler.guarded_writes import MANAGER
from tests.support.audit_log import AuditLog
from tests.support.cluster_processes import frozen, restart_reconciler
from tests.support.clusters import RunningCluster
from tests.support.earlier_version import EARLIER, OLD_GRACE_SECONDS, earlier_deployment, earlier_status
from tests.support.units_and_stock import (
    INSTANCES,
    STOCK,
    create_unit,
    delete_unit,
    unit_body,
    wait_unit_phase,
)
from tests.support.waiting import NotYet, eventually

CASES = {"plain": INSTANCES, "placeholder": INSTANCES, "stock": STOCK}


@pytest.fixture
async def running_units(kube: KubeClient, cluster: RunningCluster) -> AsyncIterator[dict[str, Json]]:
    """Units that run, by case, which the reconciler of this version has not seen yet until the fixture is there.

    The names are new each time: Kubernetes collects the Deployments of deleted units only later.
    """
    units: dict[str, Json] = {}
    suffix = secrets.token_hex(3)
    with frozen(cluster, "reconciler"):
        for case, namespace in CASES.items():
            name = f"upgrade-{case}-{suffix}"
            body = unit_body(name, namespace=namespace)
            units[case] = await create_unit(kube, {**body, "spec": EARLIER[case]["spec"]})
            deployment = earlier_deployment(case, units[case], older=True)
            await kube.create(DEPLOYMENTS.collection(namespace), deployment, MANAGER)
            status = GPU_UNITS.item(name, namespace, "status")
            await kube.patch(status, {"status": earlier_status(case)})
        for unit in units.values():
            await eventually(partial(find_ready_pod, kube, unit))
    yield units
    for unit in units.values():
        await delete_unit(kube, unit["metadata"]["name"], unit["metadata"]["namespace"])


async def pod_of(kube: KubeClient, unit: Json) -> Json:
    selector = {"labelSelector": f"{names.LABEL_UNIT_UID}={unit['metadata']['uid']}"}
    [pod] = (await kube.get(PODS.collection(unit["metadata"]["namespace"]), selector))["items"]
    return dict(pod)


async def find_ready_pod(kube: KubeClient, unit: Json) -> Json | NotYet:
    selector = {"labelSelector": f"{names.LABEL_UNIT_UID}={unit['metadata']['uid']}"}
    pods = (await kube.get(PODS.collection(unit["metadata"]["namespace"]), selector))["items"]
    ready = [pod for pod in pods if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]]
    return dict(ready[0]) if len(ready) == len(pods) == 1 else NotYet([pod["status"] for pod in pods])


async def deployment_of(kube: KubeClient, unit: Json) -> Json:
    metadata = unit["metadata"]
    return await kube.get(DEPLOYMENTS.item(names.child_name(metadata["name"]), metadata["namespace"]))


def grace_of(item: Json) -> int:
    """Of a pod or a pod template: by it today's templates are told from the earlier ones."""
    grace: int = item["spec"]["terminationGracePeriodSeconds"]
    return grace


async def test_an_upgraded_platform_restarts_no_running_unit(
    kube: KubeClient, cluster: RunningCluster, running_units: dict[str, Json]
) -> None:
    pods = {case: await pod_of(kube, unit) for case, unit in running_units.items()}

    async def are_adopted() -> bool | NotYet:
        deployments = {case: await deployment_of(kube, unit) for case, unit in running_units.items()}
        missing = [case for case, each in deployments.items() if names.ANNOTATION_TEMPLATE not in annotations_of(each)]
        return not missing or NotYet(f"{missing} have no record")

    await eventually(are_adopted)
    for unit in running_units.values():
        metadata = unit["metadata"]
        await wait_unit_phase(kube, metadata["name"], "Ready", metadata["namespace"])
    log = AuditLog.from_here(cluster.directory.audit_log)
    units = len((await kube.get(GPU_UNITS.collection()))["items"])
    await restart_reconciler(cluster, passes=units)

    children = {names.child_name(unit["metadata"]["name"]) for unit in running_units.values()}
    assert [event for event in log.writes() if event["objectRef"].get("name") in children] == []
    for case, unit in running_units.items():
        pod = await pod_of(kube, unit)
        assert pod["metadata"]["uid"] == pods[case]["metadata"]["uid"]
        assert grace_of(pod) == OLD_GRACE_SECONDS


async def test_an_old_template_is_put_back_after_an_edit_and_replaced_at_the_next_update_and_start(
    kube: KubeClient, running_units: dict[str, Json]
) -> None:
    plain, placeholder = running_units["plain"], running_units["placeholder"]
    before = (await deployment_of(kube, plain))["spec"]["template"]
    edit = {"spec": {"template": {"spec": {"containers": [{"name": "runtime-worker", "image": "evil"}]}}}}
    path = DEPLOYMENTS.item(names.child_name(plain["metadata"]["name"]), INSTANCES)

    async def is_put_back() -> bool | NotYet:
        template = (await deployment_of(kube, plain))["spec"]["template"]
        return template == before or NotYet(template)

    await eventually(lambda: _has_record(kube, plain))
    await kube.patch(path, edit, PatchType.STRATEGIC, {"fieldManager": "kubectl-edit"})
    await eventually(is_put_back)

    await kube.patch(GPU_UNITS.item(plain["metadata"]["name"], INSTANCES), {"spec": {"image": "example/newer"}})
    name = GPU_UNITS.item(placeholder["metadata"]["name"], INSTANCES)
    await kube.patch(name, {"spec": {"running": False}})
    await wait_unit_phase(kube, placeholder["metadata"]["name"], "Stopped")
    assert grace_of((await deployment_of(kube, placeholder))["spec"]["template"]) == OLD_GRACE_SECONDS
    await kube.patch(name, {"spec": {"running": True}})

    for unit in (plain, placeholder):
        await eventually(partial(_runs_todays_template, kube, unit))


async def _runs_todays_template(kube: KubeClient, unit: Json) -> bool | NotYet:
    pod = await find_ready_pod(kube, unit)
    return pod if isinstance(pod, NotYet) else grace_of(pod) != OLD_GRACE_SECONDS or NotYet(pod)


async def _has_record(kube: KubeClient, unit: Json) -> bool:
    return names.ANNOTATION_TEMPLATE in annotations_of(await deployment_of(kube, unit))
