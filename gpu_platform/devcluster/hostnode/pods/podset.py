"""All pods of the node: follows the API and keeps one worker per pod uid."""

import asyncio
import logging
import shutil
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

from gpu_platform.devcluster.hostnode.addresses import PodNetwork
from gpu_platform.devcluster.hostnode.launch.directory import PodDirectory, directory_name, is_directory_name
from gpu_platform.devcluster.hostnode.names import NODE_NAME, POD_ADDRESS_ANNOTATION
from gpu_platform.devcluster.hostnode.pods.run import ContainerRun
from gpu_platform.devcluster.hostnode.pods.worker import PodWorker, Surroundings
from gpu_platform.kube import WatchEvent, list_and_watch
from gpu_platform.kube.client import Json
from gpu_platform.kube.paths import PODS

RETRY_SECONDS = 1.0

STOP_SECONDS = 2.0
"""Grace for processes when the agent is told to stop: whoever stops it waits about 5 s for all of it."""

log = logging.getLogger(__name__)


class PodSet:
    def __init__(self, root: Path, network: PodNetwork, node: Surroundings) -> None:
        self._root = root
        self._network = network
        self._node = node
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._listed: set[str] = set()

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """The newest pod of that name: an older one may still be ending."""
        for worker in reversed(self._workers.values()):
            metadata = worker.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return worker
        return None

    async def run(self) -> None:
        while True:
            selector = {"fieldSelector": f"spec.nodeName={NODE_NAME}"}
            try:
                async with aclosing(list_and_watch(self._node.client, PODS.collection(), selector)) as events:
                    async for event in events:
                        self._take(event)
            except Exception:
                log.exception("following the node's pods failed")
            await asyncio.sleep(RETRY_SECONDS)

    async def stop(self) -> None:
        """End every process: SIGTERM, a short grace, SIGKILL. The pods' status is left for the next agent."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for run in self._runs():
            run.stop(0)
        await self._wait_for_ends(STOP_SECONDS)
        for run in self._runs():
            run.kill()
        await self._wait_for_ends(STOP_SECONDS / 4)

    def _runs(self) -> Iterator[ContainerRun]:
        for worker in self._workers.values():
            yield from worker.runs.values()

    async def _wait_for_ends(self, seconds: float) -> None:
        ends = [asyncio.create_task(run.ended.wait()) for run in self._runs()]
        if ends:
            _, late = await asyncio.wait(ends, timeout=seconds)
            for task in late:
                task.cancel()

    def _take(self, event: WatchEvent) -> None:
        match event.type:
            case "ADDED" | "MODIFIED":
                if event.listed:
                    self._listed.add(event.object["metadata"]["uid"])
                self._observe(event.object)
            case "DELETED":
                self._vanish(event.object["metadata"]["uid"])
            case "SYNCED":
                for uid in self._workers.keys() - self._listed:
                    self._vanish(uid)
                self._listed = set()
                self._remove_leftovers()

    def _observe(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._workers:
            self._workers[uid].observe(pod)
            return
        wish = (pod["metadata"].get("annotations") or {}).get(POD_ADDRESS_ANNOTATION)
        directory = PodDirectory(self._root / directory_name(uid))
        worker = PodWorker(pod, self._network.take(uid, wish), directory, self._node)
        self._workers[uid] = worker
        task = asyncio.create_task(worker.run(), name=f"pod {pod['metadata']['name']}")
        self._tasks[uid] = task
        task.add_done_callback(lambda _: self._forget(uid))

    def _vanish(self, uid: str) -> None:
        if uid in self._workers:
            self._workers[uid].vanish()

    def _forget(self, uid: str) -> None:
        # On the agent's way out the workers are cancelled, but their processes still have to be ended.
        if not self._tasks[uid].cancelled():
            del self._workers[uid], self._tasks[uid]
            self._network.give_back(uid)

    def _remove_leftovers(self) -> None:
        """Directories of pods that went away while no agent ran."""
        known = {directory_name(uid) for uid in self._workers}
        for path in self._root.iterdir():
            if is_directory_name(path.name) and path.name not in known:
                shutil.rmtree(path, ignore_errors=True)
