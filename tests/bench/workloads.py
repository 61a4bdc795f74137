"""What the measurements act on: units from stock, units without, and their bare counterparts."""

import time
from dataclasses import dataclass

from rich.console import Console

from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.record import ClusterRecord
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.units import Template, UnitRequest
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import DEPLOYMENTS, GPU_SPECS, NAMESPACES, SERVICE_ACCOUNTS
from tests.bench.rest import Rest
from tests.bench.sightings import Sightings, is_named, seen
from tests.support.audit_log import AuditLog
from tests.support.units_and_stock import INSTANCES, claim_oldest, create_unit, find, stock_of, unit_body
from tests.support.waiting import eventually

BARE = "bench-bare"
"""Namespace of the baselines: nothing in it is the platform's."""

SPEC = "g1.1"
TINY_SPEC = "bench.0"
"""Without GPUs and hardly any memory, so that a thousand fit on a few nodes."""

PORTS = {"ports": [{"name": "http", "port": 8000}]}
"""With a port, a unit has all its objects: policy, Service and Deployment."""


@dataclass(frozen=True)
class Bench:
    """What a measurement is given."""

    kube: KubeClient
    directory: ClusterDirectory
    record: ClusterRecord
    console: Console

    def audit_from_here(self) -> AuditLog:
        return AuditLog.from_here(self.directory.audit_log)

    def say(self, text: str) -> None:
        self.console.print(f"  {text}")


async def prepare(kube: KubeClient) -> None:
    """The baselines' namespace and the small spec."""
    await kube.create(NAMESPACES.collection(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BARE}})
    # Pods are refused until the controller manager has made the namespace's account.
    await eventually(lambda: find(kube, SERVICE_ACCOUNTS.item("default", BARE)))
    known = await kube.get(GPU_SPECS.item(SPEC))
    spec = {**known["spec"], "cpu": "10m", "memory": "16Mi", "gpu": 0}
    body = {"apiVersion": names.API_VERSION, "kind": "GPUSpec", "metadata": {"name": TINY_SPEC}, "spec": spec}
    await kube.create(GPU_SPECS.collection(), body)


async def time_rented_unit(rest: Rest, units: Sightings, name: str) -> float:
    """Send the request, and wait for the unit rather than for the answer, which may come later."""
    ready_at = units.expect(lambda item: is_named(item, name, INSTANCES) and is_ready_unit(item))
    request = UnitRequest(name=name, spec_name=SPEC, image="example/train", template=Template.model_validate(PORTS))
    started_at = time.perf_counter()
    await rest.time_post(request)
    return await seen(ready_at) - started_at


async def time_unit_from_stock(kube: KubeClient, units: Sightings, pool: str, name: str) -> float:
    """What accepting a unit does after its ledger: claim the oldest free stock, create the unit; then wait.

    The clock starts before the claim, because the reconciler begins with it.
    """
    candidates = await stock_of(kube, pool)
    ready_at = units.expect(lambda item: is_named(item, name, INSTANCES) and is_ready_unit(item))
    started_at = time.perf_counter()
    stock = await claim_oldest(kube, candidates, SPEC, names.claim_holder(INSTANCES, name), f"op-{name}")
    await create_unit(kube, unit_body(name, stock=stock, template=PORTS))
    return await seen(ready_at) - started_at


async def time_unit_without_stock(kube: KubeClient, units: Sightings, name: str) -> float:
    """The same unit, with nothing to take over: shows what the hand-off costs."""
    ready_at = units.expect(lambda item: is_named(item, name, INSTANCES) and is_ready_unit(item))
    started_at = time.perf_counter()
    await create_unit(kube, unit_body(name, template=PORTS))
    return await seen(ready_at) - started_at


async def time_bare_deployment(kube: KubeClient, deployments: Sightings, name: str) -> float:
    """Create a Deployment of a unit's size and wait until Kubernetes calls it Available."""
    spec = (await kube.get(GPU_SPECS.item(SPEC)))["spec"]
    available_at = deployments.expect(lambda item: is_named(item, name, BARE) and is_available_deployment(item))
    body = bare_deployment(name, spec)
    started_at = time.perf_counter()
    await kube.create(DEPLOYMENTS.collection(BARE), body)
    return await seen(available_at) - started_at


def is_ready_unit(unit: Json) -> bool:
    return bool(unit.get("status", {}).get("phase") == "Ready")


def is_available_deployment(deployment: Json) -> bool:
    conditions = deployment.get("status", {}).get("conditions", [])
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)


def bare_deployment(name: str, spec: Json) -> Json:
    amounts = {"cpu": spec["cpu"], "memory": spec["memory"], names.GPU_RESOURCE: str(spec["gpu"])}
    container = {
        "name": "main",
        "image": "example/train",
        "resources": {"requests": amounts, "limits": amounts},
        "ports": [{"name": "http", "containerPort": 8000}],
    }
    pod = {"nodeSelector": spec["nodeSelector"], "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": BARE},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    }
