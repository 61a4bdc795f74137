"""Follows what the workers of functions write, and keeps their last lines in NATS, where they outlive the workers.

A worker that is killed has no time to hand over its log, and its pod takes it along. So each log is read as it grows,
and what is new is written once a second. What the kubelet has not handed out before a node is lost is lost with it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpu_platform.clock import Backoff
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import key_of
from gpu_platform.domain.tenants import tenant_of
from gpu_platform.domain.worker_logs import LINES, LineSplitter, Position, find_surplus, keep_last, parse_line
from gpu_platform.kube import KubeClient, KubeError
from gpu_platform.kube.paths import PODS
from gpu_platform.nats.connection import JetStream, obey_cancellation
from gpu_platform.nats.errors import OutdatedError, QueueUnavailableError
from gpu_platform.nats.worker_logs import WorkerLog, ensure_log_stream, find_log, list_logs, remove_logs, write_log
from reconciler.informers import World
from reconciler.units.resources import CONTAINER

log = logging.getLogger(__name__)

Function = tuple[str, str]
"""Tenant and name."""

WRITE_SECONDS = 1.0
"""Between two writes of a log that grows."""

SILENCE_SECONDS = 3_600.0
"""A worker may write nothing for a long time."""

PACE_SECONDS = 0.1
PACED_PODS = 5
"""Between two reads of a log, while so many are followed; with more of them each waits longer. All logs together cost
an eighth of a core at most (2.5 ms for 500 lines): workers that write more are read later than they write, and do not
keep the reconciler from its work."""

RETRY = Backoff(first=1.0, longest=30.0)
LIMIT = 500
"""Logs that are followed at once: each is a connection to the API server. Those beyond it are not kept."""


@dataclass(eq=False)
class Entry:
    """The last lines of a worker, of whichever pod. A pod that ends may write beside the one that follows it."""

    function: Function
    worker: str
    lines: tuple[str, ...]
    pod_uid: str | None
    """Of the pod that wrote the last line."""

    sequence: int | None
    """Of the entry in NATS, as this process has read or written it; None when another process has changed it."""

    is_written: bool = True

    def add(self, lines: Sequence[str], pod_uid: str) -> None:
        if lines:
            self.lines = keep_last((*self.lines, *lines))
            self.pod_uid, self.is_written = pod_uid, False


@dataclass(eq=False)
class FollowedPod:
    function: Function
    worker: str
    pod: Json
    position: Position | None = None
    task: asyncio.Task[None] | None = None

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])


class WorkerLogs:
    def __init__(self, world: World, open_logs: Callable[[int], Awaitable[KubeClient]], replicas: int) -> None:
        """`open_logs` makes a client with so many connections: streams that never end would use up those of others."""
        self._world = world
        self._open_logs = open_logs
        self._replicas = replicas
        self._pods: dict[str, FollowedPod] = {}
        """By uid."""

        self._entries: dict[tuple[Function, str], Entry] = {}
        """What could not be written stays for the next connection."""

    async def follow(self, js: JetStream) -> None:
        """While there is a connection."""
        await ensure_log_stream(js, self._replicas)
        obey_cancellation()
        functions: frozenset[Function] = frozenset()
        async with await self._open_logs(LIMIT) as client:
            try:
                while True:
                    functions = await self._forget_deleted(js, functions)
                    self._follow_new(js, client)
                    await self._write(js)
                    await asyncio.sleep(WRITE_SECONDS)
            finally:
                await _stop(self._pods.values())

    async def _forget_deleted(self, js: JetStream, before: frozenset[Function]) -> frozenset[Function]:
        """Lines of a function go with it; those that a restart of this process missed, after a day."""
        now = frozenset((tenant, name) for tenant, name, _ in self._functions())
        for function in before - now:
            gone = [each for each in self._pods.values() if each.function == function]
            await _stop(gone)
            for each in gone:
                del self._pods[each.uid]
            self._entries = {key: entry for key, entry in self._entries.items() if entry.function != function}
            await remove_logs(js, *function)
            obey_cancellation()
        return now

    def _functions(self) -> Iterator[tuple[str, str, str]]:
        """Tenant, name and namespace."""
        for namespace, name in map(key_of, self._world.functions.objects()):
            if (tenant := tenant_of(namespace)) is not None:
                yield tenant, name, namespace

    def _follow_new(self, js: JetStream, client: KubeClient) -> None:
        for tenant, name, namespace in self._functions():
            for unit in self._world.workers_of(namespace, name):
                for pod in self._world.pods_of(unit):
                    found = FollowedPod((tenant, name), unit["metadata"]["name"], pod)
                    if found.uid not in self._pods and _has_begun(pod) and len(self._pods) < LIMIT:
                        self._pods[found.uid] = found
        for each in self._pods.values():
            if each.task is None:
                each.task = asyncio.create_task(self._read(js, client, each))

    async def _write(self, js: JetStream) -> None:
        for entry in tuple(self._entries.values()):
            if not entry.is_written:
                await self._write_entry(js, entry)
                obey_cancellation()
        self._pods = {uid: each for uid, each in self._pods.items() if each.task is None or not each.task.done()}
        living = {(each.function, each.worker) for each in self._pods.values()}
        self._entries = {key: each for key, each in self._entries.items() if key in living or not each.is_written}

    async def _write_entry(self, js: JetStream, entry: Entry) -> None:
        if not entry.sequence:
            entry.sequence = (await find_log(js, *entry.function, entry.worker)).sequence
            await self._make_room(js, entry.function)
        lines = entry.lines
        log_now = WorkerLog(entry.worker, lines, entry.sequence, entry.pod_uid)
        try:
            entry.sequence = await write_log(js, *entry.function, log_now)
            entry.is_written = entry.lines is lines
        except OutdatedError:
            # A leader before us wrote late. Ours are the later lines, and are written in a second.
            entry.sequence = None

    async def _make_room(self, js: JetStream, function: Function) -> None:
        """For an entry that is new."""
        living = {worker for of, worker in self._entries if of == function}
        kept = [each.worker for each in await list_logs(js, *function)]
        for worker in find_surplus(kept, living):
            await remove_logs(js, *function, worker)

    async def _read(self, js: JetStream, client: KubeClient, each: FollowedPod) -> None:
        """Until its pod is gone."""
        try:
            entry = await self._open_entry(js, each)
            quiet_reads = 0
            while (pod := self._find_pod(each.pod)) is not None:
                has_news = False
                if _has_restarted(pod):
                    has_news = await self._read_once(client, each, entry, {"previous": "true"})
                has_news = await self._read_once(client, each, entry, {"follow": "true"}) or has_news
                # The log of a container that has ended can be read again at once, and says the same.
                quiet_reads = 0 if has_news else quiet_reads + 1
                await asyncio.sleep(RETRY.delay(max(quiet_reads, 1)))
        except QueueUnavailableError as error:
            log.warning("queue.away", extra={"error": str(error)})
        except Exception:
            log.exception("worker-logs.failed", extra={"worker": each.worker})

    async def _open_entry(self, js: JetStream, each: FollowedPod) -> Entry:
        key = (each.function, each.worker)
        if key not in self._entries:
            kept = await find_log(js, *each.function, each.worker)
            found = Entry(each.function, each.worker, kept.lines, kept.pod_uid, kept.sequence)
            # Another pod of this worker may have been faster.
            self._entries.setdefault(key, found)
        entry = self._entries[key]
        if each.position is None:
            # Lines of an earlier pod say nothing about this one: its node may have another clock.
            each.position = Position(entry.lines if entry.pod_uid == each.uid else ())
        return entry

    async def _read_once(self, client: KubeClient, each: FollowedPod, entry: Entry, options: dict[str, str]) -> bool:
        """Whether there was a new line. It may not have begun, its node may be away, its pod may be gone."""
        position = each.position or Position()
        is_new, splitter = position.find_new(), LineSplitter()
        has_news = False

        def take(lines: Sequence[bytes]) -> None:
            nonlocal has_news
            # Of many lines, the others would not be kept anyway.
            found = [line for line in map(parse_line, lines[-LINES:]) if is_new(line)]
            for line in found:
                position.advance(line)
            entry.add(found, each.uid)
            has_news = has_news or bool(found)

        path = PODS.of(each.pod, "log")
        params = {"container": CONTAINER, "timestamps": "true", "tailLines": str(LINES), **options}
        try:
            async for piece in client.chunks(path, params, silence=SILENCE_SECONDS):
                take(splitter.split(piece))
                await asyncio.sleep(PACE_SECONDS * max(1.0, len(self._pods) / PACED_PODS))
        except KubeError as error:
            log.debug("worker-logs.unreadable", extra={"worker": each.worker, "error": error.message})
        finally:
            take(splitter.finish())
        return has_news

    def _find_pod(self, pod: Json) -> Json | None:
        found = self._world.pods.get(*key_of(pod))
        return found if found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"] else None


async def _stop(pods: Iterable[FollowedPod]) -> None:
    """To read them. Another task may begin where these end."""
    tasks = [each.task for each in pods if each.task is not None]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for each in pods:
        each.task = None


def _status_of(pod: Json) -> Json:
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return next((each for each in statuses if each["name"] == CONTAINER), {})


def _has_begun(pod: Json) -> bool:
    status = _status_of(pod)
    return bool({"running", "terminated"} & set(status.get("state") or ())) or _has_restarted(pod)


def _has_restarted(pod: Json) -> bool:
    return bool(_status_of(pod).get("restartCount"))
