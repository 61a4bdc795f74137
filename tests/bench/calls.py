"""P5: what a call costs beyond the messages that carry it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from gpu_platform.devcluster.credentials import credentials_file
from gpu_platform.domain.json_text import Json
from gpu_platform.nats.connection import QueueAccess, core_of, open_queue
from gpu_platform.nats.permissions import QueueUser
from tests.bench.figures import Figure, Goal, p50, p99
from tests.bench.rest import Rest, open_rest
from tests.bench.workloads import SPEC as SIMULATED
from tests.bench.workloads import Bench
from tests.support.functions import SPEC, function_object, wait_function_reason
from tests.support.units_and_stock import stock_pool

FUNCTION, IDLE = "p5", "p5-idle"
"""One with a worker, and one without: its calls are accepted, and that is all. The worker that they bring is simulated
and takes none; real ones would share the cores with what is measured."""

TURNS = 5
ACCEPTED = 200
"""Calls of one turn, by so many clients at once."""

CLIENTS = 8
SYNC = 40
RECORDS, QUEUE, CONSUMER = "BENCH_RECORDS", "BENCH_QUEUE", "bench"
PAYLOAD: Json = {"text": "to be or not to be"}
ABSENT = {"Nats-Expected-Last-Subject-Sequence": "0"}


async def measure_calls(bench: Bench) -> list[Figure]:
    numbers = count()
    async with (
        stock_pool(bench.kube, "p5", 1, specName=SPEC),
        function_object(bench.kube, FUNCTION, minWorkers=1),
        function_object(bench.kube, IDLE, queueLimit=1_000_000, specName=SIMULATED, maxWorkers=1),
        open_rest(bench.record) as rest,
        open_queue(_access(bench), "bench") as js,
        bare_worker(js) as bare,
    ):
        await wait_function_reason(bench.kube, FUNCTION, "FunctionReady", readyWorkers=1)
        await wait_function_reason(bench.kube, IDLE, "FunctionReady")

        async def accept() -> None:
            await _post(rest, IDLE, "async", next(numbers), 202)

        async def call() -> None:
            await _post(rest, FUNCTION, "sync", next(numbers), 200)

        async def be_refused() -> None:
            await _post(rest, IDLE, "no mode", next(numbers), 400)

        rates, refused_rates, bare_rates = [], [], []
        waits, bare_waits = [], []
        for _ in range(TURNS):
            bare_rates.append(await _rate(bare.accept))
            rates.append(await _rate(accept))
            refused_rates.append(await _rate(be_refused))
            bare_waits += [await _time(bare.call) for _ in range(SYNC)]
            waits += [await _time(call) for _ in range(SYNC)]
    accepted = Goal(0.5, of_ratio=True, at_least=True)
    answered = Goal(2, of_ratio=True)
    samples = TURNS * ACCEPTED
    return [
        Figure("P5", f"async calls accepted, {CLIENTS} clients", p50(rates), "/s", samples, p50(bare_rates), accepted),
        Figure(
            "P5", "  calls refused for their form, before the queue", p50(refused_rates), "/s", samples, p50(bare_rates)
        ),
        Figure("P5", "sync call of a warm function, p50", p50(waits), "s", len(waits), p50(bare_waits), answered),
        Figure("P5", "  and p99", p99(waits), "s", len(waits), p99(bare_waits)),
    ]


@dataclass
class Bare:
    """The same messages, by one process that does nothing else: record, queue, pull, put, notify."""

    js: JetStreamContext
    client: Client
    numbers: Iterator[int]

    async def accept(self) -> None:
        name = f"bare-{next(self.numbers)}"
        await self._record(f"bench.records.{name}")
        await self.js.publish(f"bench.idle.{name}")

    async def call(self) -> None:
        name = f"bare-{next(self.numbers)}"
        answered = asyncio.Event()

        async def hear(_: Msg) -> None:
            answered.set()

        subscription = await self.client.subscribe(f"bench.done.{name}", cb=hear)
        await self._record(f"bench.records.{name}")
        await self.js.publish(f"bench.queue.{name}")
        await answered.wait()
        await self.js.get_last_msg(RECORDS, f"bench.records.{name}")
        await subscription.unsubscribe()

    async def work(self) -> None:
        pull = await self.js.pull_subscribe_bind(durable=CONSUMER, stream=QUEUE)
        while True:
            with suppress(TimeoutError):
                [message] = await pull.fetch(1, timeout=60)
                name = message.subject.rpartition(".")[2]
                await self.js.publish(f"bench.records.{name}", b"begun" * 100)
                await self.js.publish(f"bench.records.{name}", b"done" * 100)
                await self.client.publish(f"bench.done.{name}")
                await message.ack_sync()

    async def _record(self, subject: str) -> None:
        await self.js.publish(subject, b"queued" * 100, headers=ABSENT)


@asynccontextmanager
async def bare_worker(js: JetStreamContext) -> AsyncIterator[Bare]:
    await js.add_stream(
        StreamConfig(
            name=RECORDS,
            subjects=["bench.records.>"],
            max_msgs_per_subject=1,
            storage=StorageType.FILE,
            allow_direct=True,
        )
    )
    await js.add_stream(
        StreamConfig(
            name=QUEUE,
            subjects=["bench.queue.>", "bench.idle.>"],
            retention=RetentionPolicy.WORK_QUEUE,
            storage=StorageType.FILE,
        )
    )
    await js.add_consumer(QUEUE, ConsumerConfig(durable_name=CONSUMER, filter_subject="bench.queue.>"))
    bare = Bare(js, core_of(js), count())
    working = asyncio.create_task(bare.work())
    try:
        yield bare
    finally:
        working.cancel()
        await asyncio.wait({working})
        await js.delete_stream(RECORDS)
        await js.delete_stream(QUEUE)


async def _rate(work: Callable[[], Awaitable[None]]) -> float:
    """Per second."""
    left = iter(range(ACCEPTED))

    async def lane() -> None:
        for _ in left:
            await work()

    started_at = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(CLIENTS)))
    return ACCEPTED / (time.perf_counter() - started_at)


async def _time(work: Callable[[], Awaitable[None]]) -> float:
    started_at = time.perf_counter()
    await work()
    return time.perf_counter() - started_at


async def _post(rest: Rest, function: str, mode: str, number: int, status: int) -> None:
    body = {"serverlessRequestID": function, "invocationID": f"p5-{number}", "mode": mode, "payload": PAYLOAD}
    await rest.post("/api/v1/serverless/invocations", body, status)


def _access(bench: Bench) -> QueueAccess:
    return QueueAccess(bench.record.nats_url, credentials_file(bench.directory, QueueUser.PLATFORM))
