"""P6: what a call costs that finds no worker: until there is a worker unit, and until it is answered."""

import tempfile
import time
from functools import partial
from pathlib import Path

from gpu_platform.devcluster.credentials import credentials_file
from gpu_platform.domain.names import LABEL_UNIT, worker_name
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_UNITS, PODS
from gpu_platform.nats.permissions import QueueUser
from tests.bench.figures import Figure, Goal, p50
from tests.bench.rest import Rest, open_rest
from tests.bench.sightings import is_named, seen, watching
from tests.bench.startup import pool_is_refilled
from tests.bench.workloads import SPEC as SPEC_WITHOUT_STOCK
from tests.bench.workloads import Bench
from tests.support.function_workers import WorkerPlace
from tests.support.functions import SPEC, function_object, wait_function_reason
from tests.support.units_and_stock import INSTANCES, stock_pool
from tests.support.waiting import eventually

FUNCTION, BARE = "p6", "p6-bare"
"""One that the platform brings workers for, and one whose worker is started by hand."""

RUNS = 5
IDLE_SECONDS = 1
PAYLOAD = {"text": "to be or not to be"}


async def measure_cold(bench: Bench) -> list[Figure]:
    """The two take turns. Before each call there is no worker, and the stock is full."""
    made: list[float] = []
    answered: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory(prefix="gpu-bench-") as root:
        credentials = credentials_file(bench.directory, QueueUser.PLATFORM)
        place = WorkerPlace(Path(root), bench.record.nats_url, "default", BARE, nats_credentials=credentials)
        async with (
            stock_pool(bench.kube, FUNCTION, 1, specName=SPEC),
            function_object(bench.kube, FUNCTION, idleTimeoutSeconds=IDLE_SECONDS, maxWorkers=1),
            function_object(bench.kube, BARE, specName=SPEC_WITHOUT_STOCK),
            open_rest(bench.record) as rest,
            watching(bench.kube, GPU_UNITS.collection(INSTANCES)) as units,
        ):
            await wait_function_reason(bench.kube, BARE, "FunctionReady")
            for number in range(RUNS):
                await eventually(partial(has_no_pods, bench.kube))
                await pool_is_refilled(bench.kube, FUNCTION, 1)
                made_at = units.expect(lambda item: is_named(item, worker_name(FUNCTION, 0), INSTANCES))
                began_at = time.perf_counter()
                await _call(rest, FUNCTION, number)
                answered.append(time.perf_counter() - began_at)
                made.append(await seen(made_at) - began_at)
                bare.append(await _time_bare_start(rest, place, number))
    ratio = Goal(2.0, of_ratio=True)
    return [
        Figure("P6", "call from zero → worker unit is made, p50", p50(made), "s", RUNS, goal=Goal(0.1)),
        Figure("P6", "call from zero → answer, p50 ÷ bare start", p50(answered), "s", RUNS, p50(bare), ratio),
    ]


async def has_no_pods(kube: KubeClient) -> bool:
    """A worker on its way out may still take a call."""
    selector = {"labelSelector": f"{LABEL_UNIT}={worker_name(FUNCTION, 0)}"}
    return not (await kube.get(PODS.collection(INSTANCES), selector))["items"]


async def _time_bare_start(rest: Rest, place: WorkerPlace, number: int) -> float:
    """Start the worker's two processes at once with the call, and wait for its answer."""
    began_at = time.perf_counter()
    async with place.worker(f"bare-{number}"):
        await _call(rest, place.function, number)
        return time.perf_counter() - began_at


async def _call(rest: Rest, function: str, number: int) -> None:
    body = {"serverlessRequestID": function, "invocationID": f"{function}-{number}", "mode": "sync"}
    await rest.post("/api/v1/serverless/invocations", {**body, "payload": PAYLOAD, "timeoutSeconds": 60}, 200)
