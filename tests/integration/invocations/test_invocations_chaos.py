"""Five thousand calls while everything that can die is killed: whatever was answered with 202 has exactly one end."""

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import httpx
import pytest

from gpu_platform.clock import now_utc
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient
from gpu_platform.nats.connection import QueueAccess, open_queue
from gpu_platform.nats.streams import ensure_consumer, ensure_streams
from gpu_platform.process import running
from reconciler.invocations_sweep import InvocationsSweep
from tests.support.api import open_api
from tests.support.clusters import RunningCluster
from tests.support.daemons import Daemon, running_daemon
from tests.support.fault_report import FaultReport
from tests.support.function_workers import WorkerPlace
from tests.support.functions import function_object
from tests.support.nats_server import QueueServer, queue_server
from tests.support.ports import free_port
from tests.support.waiting import eventually

CALLS = 5_000
CLIENTS = 16
WORKERS = 3
SEED = 20
ATTEMPTS = 50
"""More than a call can meet deaths here: every one of them comes to an answer."""

DEATHS = 12
"""At least."""

FUNCTION = "chaos"
INVOCATIONS = "/api/v1/serverless/invocations"
PATIENCE = 600.0


@dataclass
class Victims:
    server: QueueServer
    faults: FaultReport
    daemons: dict[str, Daemon] = field(default_factory=dict)
    deaths: Counter[str] = field(default_factory=Counter)

    async def are_enough(self) -> bool:
        return self.deaths.total() >= DEATHS

    async def kill_one(self, chance: random.Random) -> None:
        name = chance.choice(["nats-server", *sorted(self.daemons)])
        if name == "nats-server":
            self.server.kill()
            await asyncio.sleep(chance.uniform(0, 0.5))
            await self.server.start()
            self.note_death("nats")
        else:
            self.daemons[name].signal(signal.SIGKILL)

    def note_death(self, name: str) -> None:
        self.deaths[name.partition("-")[0]] += 1
        self.faults.hit(f"the death of {name.partition('-')[0]}")


@asynccontextmanager
async def chaos(victims: Victims, chance: random.Random) -> AsyncIterator[None]:
    is_over = asyncio.Event()

    async def kill_again_and_again() -> None:
        while not is_over.is_set():
            await victims.kill_one(chance)
            await asyncio.sleep(chance.uniform(2, 6))

    killing = asyncio.create_task(kill_again_and_again())
    try:
        yield
    finally:
        # Not in the middle of it: what was killed is to be started again.
        is_over.set()
        await killing


async def keep_alive(name: str, victims: Victims, start: Callable[[], AbstractAsyncContextManager[Daemon]]) -> None:
    """As Kubernetes does it."""
    while True:
        async with start() as daemon:
            victims.daemons[name] = daemon
            if await daemon.ends(within=PATIENCE) == -signal.SIGKILL:
                victims.note_death(name)


async def accepted(api: httpx.AsyncClient, number: int) -> None:
    """Asks until the call is accepted, as every caller should."""
    body = {
        "serverlessRequestID": FUNCTION,
        "invocationID": f"call-{number}",
        # One in a hundred takes its worker along.
        "payload": {"text": "a " * (number % 7), "crash": int(number % 100 == 0)},
    }
    while True:
        try:
            answer = await api.post(INVOCATIONS, json=body)
        except httpx.TransportError:
            answer = None
        if answer is not None and answer.status_code in (200, 202):
            return
        assert answer is None or answer.status_code in (429, 503), answer.text
        await asyncio.sleep(0.2)


async def read_all(api: httpx.AsyncClient, **filters: str) -> list[Json]:
    calls: list[Json] = []
    token: str | None = None
    while True:
        params = {**filters, "function": FUNCTION, "limit": "500", **({"continue": token} if token else {})}
        answer = await api.get(INVOCATIONS, params=params)
        answer.raise_for_status()
        calls += answer.json()["data"]
        token = answer.json().get("continue")
        if token is None:
            return calls


async def is_quiet(api: httpx.AsyncClient) -> bool:
    try:
        return not (await read_all(api, state="queued") or await read_all(api, state="running"))
    except httpx.HTTPError:
        return False


async def at_once(work: Callable[[int], Awaitable[None]], numbers: range, many: int) -> None:
    left = iter(numbers)

    async def lane() -> None:
        for number in left:
            await work(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(many):
            group.create_task(lane())


@pytest.mark.faults
@pytest.mark.timeout(6 * PATIENCE)
async def test_five_thousand_calls_survive_the_death_of_everything(
    cluster: RunningCluster, kube: KubeClient, tmp_path: Path, faults: FaultReport
) -> None:
    chance = random.Random(SEED)
    address = f"127.0.0.1:{free_port()}"
    async with (
        queue_server(tmp_path) as server,
        open_queue(QueueAccess(server.url), "chaos") as js,
        function_object(kube, FUNCTION, queueLimit=CALLS),
        open_api(f"http://{address}", cluster.record.api_key, patience=0) as api,
    ):
        await ensure_streams(js)
        await ensure_consumer(js, "default", FUNCTION, timedelta(seconds=3))
        victims = Victims(server, faults)
        place = WorkerPlace(tmp_path, server.url, "default", FUNCTION, attempts=ATTEMPTS)
        settings = {
            "GPU_PLATFORM_API_HTTP_ADDR": address,
            "GPU_PLATFORM_API_PROBE_ADDRESS": "127.0.0.1:0",
            "GPU_PLATFORM_API_METRICS_ADDRESS": "127.0.0.1:0",
            "GPU_PLATFORM_API_KUBECONFIG": str(cluster.api_kubeconfig),
            "GPU_PLATFORM_API_NATS_URL": server.url,
        }

        async def exists(_tenant: str, _function: str) -> bool:
            return True

        sweep = InvocationsSweep(js, exists, timedelta(hours=1), now_utc)
        names = [f"sidecar-{number}" for number in range(WORKERS)]
        lives = [
            keep_alive("api-0", victims, lambda: running_daemon("platform_api", tmp_path / "api.log", settings)),
            *(keep_alive(name, victims, partial(place.worker, name)) for name in names),
            sweep.run(),
        ]
        async with running(lives):
            async with chaos(victims, chance):
                await at_once(lambda number: accepted(api, number), range(CALLS), CLIENTS)
                await eventually(victims.are_enough, within=PATIENCE)
            await eventually(lambda: is_quiet(api), within=PATIENCE, every=1)
            calls = await read_all(api)
            again = await read_all(api)

    sys.stdout.write(f"deaths: {dict(victims.deaths)}, runs: {sum(call['attempts'] for call in calls)}\n")
    assert sorted(call["invocationID"] for call in calls) == sorted(f"call-{number}" for number in range(CALLS))
    assert Counter(call["state"] for call in calls) == {"succeeded": CALLS}
    assert calls == again
    faults.held("every accepted call is there", "every call has one end", "an end stays")
