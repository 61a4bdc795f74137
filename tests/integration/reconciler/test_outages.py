"""Reconcilers that die, freeze or lose the API server: nothing is lost, and nothing is done twice.

The cluster's own reconciler is frozen meanwhile, so that every write has a known author. Those of the tests compete for
a short Lease of their own. The promised times (20 s, 75 s) are asserted in virtual time: `test_leader_election.py` and
`test_informer_watch.py`.
"""

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from gpu_platform.domain import names
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import DEPLOYMENTS, GPU_UNITS, LEASES
from tests.support.audit_log import AuditLog
from tests.support.cluster_processes import frozen
from tests.support.clusters import RunningCluster
from tests.support.controllers import compact, restart_api_server
from tests.support.daemons import Daemon, running_daemon
from tests.support.fault_report import FaultReport
from tests.support.tcp_proxy import TcpProxy, write_kubeconfig_through
from tests.support.units_and_stock import INSTANCES, create_unit, delete_unit, find, unit_body, wait_unit_phase
from tests.support.waiting import eventually

LEASE_SECONDS = 5
WATCH_SECONDS = 2
ATTEMPTS = 6
"""New connections of a reconciler during an outage: it has noticed, and tries again."""

CONNECTIONS_IN_AN_OUTAGE = 200
"""Nine caches and a lease that try again with growing delays: far fewer than a busy loop would make."""


@dataclass(frozen=True)
class Ground:
    cluster: RunningCluster
    directory: Path
    lease: str

    def reconciler(self, name: str, kubeconfig: Path | None = None) -> AbstractAsyncContextManager[Daemon]:
        settings = {
            "KUBECONFIG": str(kubeconfig or self.cluster.kubeconfig),
            "PROBE_ADDRESS": "127.0.0.1:0",
            "METRICS_ADDRESS": "127.0.0.1:0",
            "LEASE_NAME": self.lease,
            "LEASE_SECONDS": str(LEASE_SECONDS),
            "WATCH_SECONDS": str(WATCH_SECONDS),
        }
        environment = {f"GPU_PLATFORM_RECONCILER_{key}": value for key, value in settings.items()}
        return running_daemon("reconciler", self.directory / f"{name}.log", environment)


@pytest.fixture(scope="module", autouse=True)
def alone(cluster: RunningCluster) -> Iterator[None]:
    with frozen(cluster, "reconciler"):
        yield


@pytest.fixture
async def ground(cluster: RunningCluster, kube: KubeClient, tmp_path: Path) -> AsyncIterator[Ground]:
    lease = f"outages-{secrets.token_hex(4)}"
    yield Ground(cluster, tmp_path, lease)
    if await find(kube, LEASES.item(lease, names.SYSTEM_NAMESPACE)):
        await kube.delete(LEASES.item(lease, names.SYSTEM_NAMESPACE))


async def test_when_the_leader_is_killed_the_other_one_acts(
    ground: Ground, kube: KubeClient, faults: FaultReport
) -> None:
    async with ground.reconciler("first") as first:
        await first.says("leader.started")
        async with ground.reconciler("second") as second:
            await second.says("reconciler.started")
            first.signal(signal.SIGKILL)
            assert await first.ends() == -signal.SIGKILL
            faults.hit("leader killed")
            await create_unit(kube, unit_body("orphaned"))
            await wait_unit_phase(kube, "orphaned", "Ready")
            assert (await second.says("leader.started"))["epoch"] > (await first.says("leader.started"))["epoch"]
            await delete_unit(kube, "orphaned")


async def test_a_leader_that_slept_through_its_lease_changes_nothing_when_it_wakes(
    ground: Ground, kube: KubeClient, faults: FaultReport
) -> None:
    async with ground.reconciler("sleeper") as sleeper:
        await sleeper.says("leader.started")
        async with ground.reconciler("heir") as heir:
            await heir.says("reconciler.started")
            units = [f"slept-{number}" for number in range(20)]
            creating = asyncio.gather(*(create_unit(kube, unit_body(name, gpu=0, memory="1Gi")) for name in units))
            # In the middle of its work.
            await eventually(lambda: find(kube, _deployment(units[0])), every=0.005)
            sleeper.signal(signal.SIGSTOP)
            await creating
            for name in units:
                await wait_unit_phase(kube, name, "Ready")
            log = AuditLog.from_here(ground.cluster.directory.audit_log)
            sleeper.signal(signal.SIGCONT)
            await sleeper.says("leader.lost")
            faults.hit("leader frozen")
            # A whole unit later it had every chance to write.
            await create_unit(kube, unit_body("slept-after"))
            await wait_unit_phase(kube, "slept-after", "Ready")
            # One write may have been on its way to the socket when it fell asleep: that one meets a conflict.
            assert log.changes(f"gpu-platform-reconciler/{sleeper.pid}") == []
            assert len(log.writes(f"gpu-platform-reconciler/{sleeper.pid}")) <= 1
            # It is a candidate again, and leads when the other one ends.
            heir.signal(signal.SIGTERM)
            assert await heir.ends() == 0
            for name in (*units, "slept-after"):
                await delete_unit(kube, name)
            await create_unit(kube, unit_body("slept-again"))
            await wait_unit_phase(kube, "slept-again", "Ready")
            await delete_unit(kube, "slept-again")


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.faults)])
async def test_a_reconciler_that_slept_alone_leads_again(
    ground: Ground, kube: KubeClient, faults: FaultReport, times: int
) -> None:
    """With everything that it does while it leads: controllers, scaler and sweep."""
    async with ground.reconciler("alone") as alone:
        await alone.says("leader.started")
        for _ in range(times):
            terms = await _count_terms(kube, ground.lease)
            alone.signal(signal.SIGSTOP)
            await asyncio.sleep(LEASE_SECONDS)
            alone.signal(signal.SIGCONT)
            await eventually(partial(_has_more_terms, kube, ground.lease, terms))
            faults.hit("leader frozen")
        await create_unit(kube, unit_body("led-again"))
        await wait_unit_phase(kube, "led-again", "Ready")
        await delete_unit(kube, "led-again")
        faults.held("the reconciler leads again")


@pytest.mark.parametrize("outage", ["frozen and its versions forgotten", "refused"])
async def test_every_change_during_an_outage_is_applied_after_it(
    ground: Ground, kube: KubeClient, faults: FaultReport, outage: str
) -> None:
    """Among them a deletion, which no later event will ever tell of."""
    async with TcpProxy(ground.cluster.record.ports["kube-apiserver"]) as proxy:
        kubeconfig = write_kubeconfig_through(proxy, ground.cluster.kubeconfig, ground.directory / "kubeconfig")
        async with ground.reconciler("cut-off", kubeconfig) as daemon:
            await daemon.says("leader.started")
            for name in ("edited", "robbed", "removed"):
                await create_unit(kube, unit_body(name))
            for name in ("edited", "robbed", "removed"):
                await wait_unit_phase(kube, name, "Ready")
            before = proxy.accepted
            await (_freeze(ground, kube, proxy) if outage.startswith("frozen") else _refuse(daemon, kube, proxy))
            faults.hit(outage)
            assert proxy.accepted - before < CONNECTIONS_IN_AN_OUTAGE
            await wait_unit_phase(kube, "new", "Ready")
            await eventually(lambda: _image_is(kube, "edited", "example/other"))
            await eventually(lambda: find(kube, _deployment("robbed")))
            await eventually(partial(_is_collected, kube, "removed"))
            for name in ("new", "edited", "robbed"):
                await delete_unit(kube, name)


async def _is_collected(kube: KubeClient, unit: str) -> bool:
    """Kubernetes' own garbage collector removes it, and has to follow the cluster again first."""
    return await find(kube, _deployment(unit)) is None


async def _freeze(ground: Ground, kube: KubeClient, proxy: TcpProxy) -> None:
    proxy.freeze()
    before = proxy.accepted
    await _change_the_world(kube)
    await compact(ground.cluster)
    await restart_api_server(ground.cluster, kube)

    async def is_noticed() -> bool:
        return proxy.accepted >= before + ATTEMPTS

    await eventually(is_noticed)
    proxy.thaw(forget=True)


async def _refuse(daemon: Daemon, kube: KubeClient, proxy: TcpProxy) -> None:
    proxy.refuse()
    await _change_the_world(kube)
    await daemon.says("leader.lost")
    proxy.thaw()


async def _change_the_world(kube: KubeClient) -> None:
    await create_unit(kube, unit_body("new"))
    await kube.patch(GPU_UNITS.item("edited", INSTANCES), {"spec": {"image": "example/other"}})
    await kube.delete(_deployment("robbed"))
    await delete_unit(kube, "removed")


async def _image_is(kube: KubeClient, unit: str, image: str) -> bool:
    deployment = await kube.get(_deployment(unit))
    return bool(deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image)


async def _count_terms(kube: KubeClient, lease: str) -> int:
    found = await kube.get(LEASES.item(lease, names.SYSTEM_NAMESPACE))
    return int(found["spec"]["leaseTransitions"])


async def _has_more_terms(kube: KubeClient, lease: str, terms: int) -> bool:
    return await _count_terms(kube, lease) > terms


def _deployment(unit: str) -> str:
    return DEPLOYMENTS.item(names.child_name(unit), INSTANCES)
