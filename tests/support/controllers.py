"""What the tests of the machinery need: a cache behind a proxy, pairs of daemons, a hand that changes things."""

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
from kubernetes.aio import client as aio_client

from gpu_platform.devcluster.credentials import admin_tls
from gpu_platform.devcluster.record import ProcessStatus, read_status
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import GoneError, KubeClient, KubeError, NotFoundError, open_client
from gpu_platform.kube.informer import ObjectCache, WatchTiming
from gpu_platform.kube.paths import CONFIG_MAPS, NAMESPACES
from tests.support.clusters import RunningCluster
from tests.support.daemons import Daemon, running_daemon
from tests.support.mirror_daemon import LABEL, mirrored
from tests.support.tcp_proxy import TcpProxy, write_kubeconfig_through
from tests.support.waiting import NotYet, eventually

WATCH_SECONDS = 2
LEASE_SECONDS = 60
"""Longer than any test lasts: who leads after another one was handed the Lease."""

EXPIRED = b'"code":410'
"""In a line of a watch: the server no longer knows the version from which it should go on."""


class CountingClient(KubeClient):
    """Notes which lists and watches were asked for, and how often a version was too old."""

    def __init__(self, api: aio_client.ApiClient) -> None:
        super().__init__(api)
        self.lists = 0
        self.watches = 0
        self.expired = 0

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 10.0) -> Json:
        self.lists += 1
        return await super().get(path, params, timeout=timeout)

    async def lines(
        self, path: str, params: Mapping[str, str] | None = None, *, silence: float
    ) -> AsyncGenerator[bytes, None]:
        self.watches += 1
        try:
            async with aclosing(super().lines(path, params, silence=silence)) as lines:
                async for line in lines:
                    self.expired += EXPIRED in line
                    yield line
        except GoneError:
            self.expired += 1
            raise


class Follower:
    """A cache of one namespace's ConfigMaps behind a proxy, and a hand that changes them on the other side."""

    def __init__(self, namespace: str, kube: KubeClient, proxy: TcpProxy, client: CountingClient) -> None:
        self.namespace = namespace
        self.proxy = proxy
        self.client = client
        timing = WatchTiming(life=timedelta(seconds=WATCH_SECONDS))
        self.cache = ObjectCache(client, CONFIG_MAPS, label_selector=f"followed={namespace}", timing=timing)
        self.deleted: set[str] = set()
        self.cache.on_change(self._note)
        self._kube = kube

    async def create(self, *names: str) -> None:
        for name in names:
            metadata = {"name": name, "labels": {"followed": self.namespace}}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            await self._kube.create(CONFIG_MAPS.collection(self.namespace), body)

    async def change(self, name: str) -> None:
        data = {"changed": secrets.token_hex(4)}
        await self._kube.patch(CONFIG_MAPS.item(name, self.namespace), {"data": data})

    async def delete(self, name: str) -> None:
        await self._kube.delete(CONFIG_MAPS.item(name, self.namespace))

    async def do_one_of_each(self, created: str, changed: str, deleted: str) -> None:
        await self.create(created)
        await self.change(changed)
        await self.delete(deleted)

    async def sees_everything(self) -> None:
        """Until the cache holds exactly what the API server holds."""
        listed = await self._kube.get(
            CONFIG_MAPS.collection(self.namespace), {"labelSelector": f"followed={self.namespace}"}
        )
        there = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}

        async def is_equal() -> bool:
            held = {
                item["metadata"]["name"]: item["metadata"]["resourceVersion"]
                for item in self.cache.objects(self.namespace)
            }
            return held == there

        await eventually(is_equal)

    def _note(self, old: Json | None, new: Json | None) -> None:
        if new is None and old is not None:
            self.deleted.add(old["metadata"]["name"])


class Ground:
    """What every story needs: the cluster, a client that nothing disturbs, a place for files."""

    def __init__(self, cluster: RunningCluster, kube: KubeClient, directory: Path) -> None:
        self.cluster = cluster
        self.kube = kube
        self._directory = directory

    @asynccontextmanager
    async def namespace(self) -> AsyncIterator[str]:
        name = f"test-{secrets.token_hex(4)}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.kube.create(NAMESPACES.collection(), body)
        yield name
        await self.kube.delete(NAMESPACES.item(name))

    @asynccontextmanager
    async def follower(self) -> AsyncIterator[Follower]:
        """With the ConfigMaps one, two and three, synced."""
        port = self.cluster.record.ports["kube-apiserver"]
        async with self.namespace() as namespace, TcpProxy(port) as proxy:
            kubeconfig = write_kubeconfig_through(proxy, self.cluster.kubeconfig, self._directory / namespace)
            async with await open_client(kubeconfig) as client:
                follower = Follower(namespace, self.kube, proxy, CountingClient(client._api))
                await follower.create("one", "two", "three")
                running = asyncio.create_task(follower.cache.run())
                await follower.sees_everything()
                yield follower
                running.cancel()
                await asyncio.wait({running})

    @asynccontextmanager
    async def daemon(self, namespace: str) -> AsyncIterator[Daemon]:
        settings = {
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "LEASE_NAMESPACE": namespace,
            "LEASE_NAME": "mirror",
            "LEASE_SECONDS": str(LEASE_SECONDS),
            "METRICS_ADDRESS": "127.0.0.1:0",
            "PROBE_ADDRESS": "127.0.0.1:0",
        }
        environment = {f"GPU_PLATFORM_RECONCILER_{name}": value for name, value in settings.items()}
        environment["MIRROR_NAMESPACE"] = namespace
        log = self._directory / f"daemon-{secrets.token_hex(4)}.log"
        async with running_daemon("tests.support.mirror_daemon", log, environment) as daemon:
            await daemon.says("reconciler.started")
            yield daemon

    @asynccontextmanager
    async def two_daemons(self) -> AsyncIterator[tuple[str, Daemon, Daemon]]:
        """In a namespace of their own; the first one leads."""
        async with self.namespace() as namespace, self.daemon(namespace) as first:
            await first.says("leader.started")
            async with self.daemon(namespace) as second:
                yield namespace, first, second

    async def set_label(self, namespace: str, name: str, value: str) -> None:
        labels = {"metadata": {"name": name, "labels": {LABEL: value}}}
        try:
            await self.kube.patch(CONFIG_MAPS.item(name, namespace), labels)
        except NotFoundError:
            await self.kube.create(CONFIG_MAPS.collection(namespace), labels)

    async def is_mirrored(self, namespace: str, name: str, when: Callable[[str | None, int, int], bool]) -> None:
        """Until the annotations (value, step, pid) are as asked for."""

        async def look() -> bool | NotYet:
            seen = mirrored(await self.kube.get(CONFIG_MAPS.item(name, namespace)))
            return when(*seen) or NotYet(seen)

        await eventually(look)


async def compact(cluster: RunningCluster) -> None:
    """Make etcd forget every version but the present one."""
    url = f"https://127.0.0.1:{cluster.record.ports['etcd']}/v3"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=admin_tls(cluster.directory))) as etcd:
        async with etcd.post(f"{url}/maintenance/status", json={}) as answer:
            revision = (await answer.json())["header"]["revision"]
        async with etcd.post(f"{url}/kv/compaction", json={"revision": revision, "physical": True}) as answer:
            assert answer.status == 200, await answer.text()


async def restart_api_server(cluster: RunningCluster, kube: KubeClient) -> None:
    def api_server() -> ProcessStatus:
        return next(each for each in read_status(cluster.directory).processes if each.name == "kube-apiserver")

    restarts, pid = api_server().restarts, api_server().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    async def is_back() -> bool:
        try:
            await kube.get("/version", timeout=1)
        except KubeError:
            return False
        return api_server().restarts > restarts and api_server().state == "ready"

    await eventually(is_back)
