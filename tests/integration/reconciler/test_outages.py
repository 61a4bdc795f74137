"""The reconciler's controllers when processes die, sleep or lose the API server: nothing is lost, nothing done twice.

In a cluster of its own without the supervised reconciler, so that every write has a known author.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from gpu_platform.adapters.kube import KubeClient, open_client
from gpu_platform.adapters.kube.paths import DEPLOYMENTS, GPU_UNITS
from gpu_platform.domain import names
from tests.support.audit_log import AuditLog
from tests.support.bootstrap import bootstrap
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.controllers import compact, restart_api_server
from tests.support.daemons import Daemon, running_daemon
from tests.support.tcp_proxy import TcpProxy, write_kubeconfig_through
from tests.support.units_and_stock import INSTANCES, create_unit, delete_unit, find, unit_body, wait_unit_phase
from tests.support.waiting import eventually

Json = dict[str, Any]

LEADS_WITHIN = 90
"""Seconds. The last test's leader was killed, so that its Lease must end first."""

TAKEOVER_SECONDS = 20
SLEEP_SECONDS = 30
FROZEN_SECONDS = 90
REFUSED_SECONDS = 20
HEALED_WITHIN = 75
CONNECTIONS_IN_AN_OUTAGE = 200
"""Nine caches and a lease that try again with growing delays: far fewer than a busy loop would make."""


@pytest.fixture(scope="module")
def bare() -> Iterator[RunningCluster]:
    with running_cluster(nodes=1, platform=False) as cluster:
        bootstrap(cluster)
        yield cluster


@pytest.fixture
async def api(bare: RunningCluster) -> AsyncIterator[KubeClient]:
    async with await open_client(bare.kubeconfig) as client:
        yield client


def reconciler(log: Path, kubeconfig: Path) -> AbstractAsyncContextManager[Daemon]:
    settings = {"KUBECONFIG": str(kubeconfig), "PROBE_ADDRESS": "127.0.0.1:0", "METRICS_ADDRESS": "127.0.0.1:0"}
    return running_daemon(
        "reconciler", log, {f"GPU_PLATFORM_RECONCILER_{key}": value for key, value in settings.items()}
    )


async def test_when_the_leader_is_killed_the_other_acts_within_twenty_seconds(
    bare: RunningCluster, api: KubeClient, tmp_path: Path
) -> None:
    async with reconciler(tmp_path / "first", bare.kubeconfig) as first:
        await first.says("leader.started", within=LEADS_WITHIN)
        async with reconciler(tmp_path / "second", bare.kubeconfig) as second:
            await second.says("reconciler.started")
            first.signal(signal.SIGKILL)
            await create_unit(api, unit_body("orphaned"))
            await eventually(lambda: find(api, _deployment("orphaned")), within=TAKEOVER_SECONDS)
            await wait_unit_phase(api, "orphaned", "Ready")
            await delete_unit(api, "orphaned")


async def test_a_leader_that_slept_through_its_lease_changes_nothing_when_it_wakes(
    bare: RunningCluster, api: KubeClient, tmp_path: Path
) -> None:
    async with reconciler(tmp_path / "sleeper", bare.kubeconfig) as sleeper:
        await sleeper.says("leader.started", within=LEADS_WITHIN)
        async with reconciler(tmp_path / "heir", bare.kubeconfig) as heir:
            await heir.says("reconciler.started")
            units = [f"slept-{number}" for number in range(20)]
            creating = asyncio.gather(*(create_unit(api, unit_body(name, gpu=0, memory="1Gi")) for name in units))
            await asyncio.sleep(0.1)
            sleeper.signal(signal.SIGSTOP)
            asleep_since = time.monotonic()
            await creating
            for name in units:
                await wait_unit_phase(api, name, "Ready", within=180)
            await asyncio.sleep(SLEEP_SECONDS - (time.monotonic() - asleep_since))
            log = AuditLog.from_here(bare.directory.audit_log)
            sleeper.signal(signal.SIGCONT)
            await sleeper.says("leader.lost")
            await asyncio.sleep(3)
            # One write may have been on its way to the socket when it fell asleep: that one meets a conflict.
            assert log.changes(f"gpu-platform-reconciler/{sleeper.pid}") == []
            assert len(log.writes(f"gpu-platform-reconciler/{sleeper.pid}")) <= 1
            for name in units:
                await delete_unit(api, name)


@pytest.mark.parametrize("outage", ["frozen for 90 s and its versions forgotten", "refused for 20 s"])
async def test_every_change_during_an_outage_is_applied_soon_after_it(
    bare: RunningCluster, api: KubeClient, tmp_path: Path, outage: str
) -> None:
    """Among them a deletion, which no later event will ever tell of."""
    async with TcpProxy(bare.record.ports["kube-apiserver"]) as proxy:
        kubeconfig = write_kubeconfig_through(proxy, bare.kubeconfig, tmp_path / "kubeconfig")
        async with reconciler(tmp_path / "log", kubeconfig) as daemon:
            await daemon.says("leader.started", within=LEADS_WITHIN)
            for name in ("edited", "robbed", "removed"):
                await create_unit(api, unit_body(name))
            for name in ("edited", "robbed", "removed"):
                await wait_unit_phase(api, name, "Ready")
            before = proxy.accepted
            await (_freeze(bare, api, proxy) if outage.startswith("frozen") else _refuse(api, proxy))
            assert proxy.accepted - before < CONNECTIONS_IN_AN_OUTAGE
            healed_at = time.monotonic()
            await wait_unit_phase(api, "new", "Ready", within=HEALED_WITHIN)
            await eventually(lambda: _image_is(api, "edited", "example/other"), within=HEALED_WITHIN)
            await eventually(lambda: find(api, _deployment("robbed")), within=HEALED_WITHIN)
            assert time.monotonic() - healed_at < HEALED_WITHIN
            assert await find(api, _deployment("removed")) is None
            for name in ("new", "edited", "robbed"):
                await delete_unit(api, name)


async def _freeze(bare: RunningCluster, api: KubeClient, proxy: TcpProxy) -> None:
    frozen_at = time.monotonic()
    proxy.freeze()
    await _change_the_world(api)
    await compact(bare)
    await restart_api_server(bare, api)
    await asyncio.sleep(FROZEN_SECONDS - (time.monotonic() - frozen_at))
    proxy.thaw(forget=True)


async def _refuse(api: KubeClient, proxy: TcpProxy) -> None:
    proxy.refuse()
    await _change_the_world(api)
    await asyncio.sleep(REFUSED_SECONDS)
    proxy.thaw()


async def _change_the_world(api: KubeClient) -> None:
    await create_unit(api, unit_body("new"))
    await api.patch(GPU_UNITS.item("edited", INSTANCES), {"spec": {"image": "example/other"}})
    await api.delete(_deployment("robbed"))
    await delete_unit(api, "removed")


async def _image_is(api: KubeClient, unit: str, image: str) -> bool:
    deployment = await api.get(_deployment(unit))
    return bool(deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image)


def _deployment(unit: str) -> str:
    return DEPLOYMENTS.item(names.child_name(unit), INSTANCES)
