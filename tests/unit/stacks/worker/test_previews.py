"""Previews: each is run once, ends with what Pulumi says, and is taken over from a worker that died."""

import copy
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import cast

import pytest

from gpu_platform.controller.loop import Done, RequeueAfter, Result
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import PREVIEW_RETENTION
from gpu_platform.domain.stacks import PreviewResult, PreviewStep, PropertyChange, StackAddress, StackKind
from gpu_platform.domain.units import GPUUnitSpec, accepted_text
from gpu_platform.kube import ConflictError, PatchType
from gpu_platform.kube.paths import GPU_UNITS, OPERATIONS
from stacks.runner import Fault, RunnerStoppedError, StackFailedError, StackRunner
from stacks.worker.metrics import WorkerMetrics
from stacks.worker.observe import StackWorld
from stacks.worker.previews import PreviewsController, keys_of_preview
from tests.support.builders import NOW, make_unit
from tests.support.scripted_kube import StoredObjects

HOME = "runtime-instance"
KEY = (HOME, "op-1")
LONGEST_RUN = timedelta(seconds=120)
CHANGE = PropertyChange(path="spec.image", kind="update", old="example/edited", new="example/train")
STEP = PreviewStep(op="update", resource="demo", type="gpuplatform:index:GpuUnit", properties=(CHANGE,))
FOUND = PreviewResult(changes={"update": 1, "same": 1}, steps=(STEP,))


class ApiServer(StoredObjects):
    """Patches the status of what was seen, and nothing else."""

    async def patch(
        self,
        path: str,
        body: Json | list[Json],
        patch_type: PatchType = PatchType.MERGE,  # noqa: ARG002 - the signature is that of the real client
        params: Mapping[str, str] | None = None,  # noqa: ARG002
        *,
        timeout: float = 10.0,  # noqa: ARG002
    ) -> Json:
        assert isinstance(body, dict)
        await self._begin("patch", path)
        stored = self._find(path.removesuffix("/status"))
        if body["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]:
            raise ConflictError(409, "Conflict", path)
        status = {**stored.get("status", {}), **body["status"]}
        return self._store(path.removesuffix("/status"), {**stored, "status": status})


class Runner:
    def __init__(self, run: Callable[[], PreviewResult]) -> None:
        self._run = run
        self.asked: list[StackAddress] = []
        self.threads: list[str] = []

    def preview(self, address: StackAddress, program: Callable[[], None]) -> PreviewResult:
        assert callable(program)
        self.asked.append(address)
        self.threads.append(threading.current_thread().name)
        return self._run()


class _Cache:
    def __init__(self, server: StoredObjects) -> None:
        self._server = server

    def get(self, namespace: str, name: str) -> Json | None:
        return copy.deepcopy(self._server.store.objects.get(OPERATIONS.item(name, namespace)))


class _World:
    def __init__(self, server: StoredObjects) -> None:
        self.operations = _Cache(server)


class Worker:
    """A controller on a server that holds one unit and one preview of it."""

    def __init__(self, run: Callable[[], PreviewResult] = lambda: FOUND, status: Json | None = None) -> None:
        self.server = ApiServer()
        self.runner = Runner(run)
        self.now: datetime = NOW
        unit = make_unit()
        text = accepted_text(GPUUnitSpec(spec_name="g1.1", image="example/train"))
        unit["metadata"]["annotations"] = {names.ANNOTATION_ACCEPTED_SPEC: text}
        self.server.store.objects[GPU_UNITS.item("demo", HOME)] = unit
        self.server.store.objects[OPERATIONS.item("op-1", HOME)] = operation(status)

    @property
    def unit(self) -> Json:
        return self.server.store.objects[GPU_UNITS.item("demo", HOME)]

    @property
    def status(self) -> Json:
        status: Json = self.server.store.objects[OPERATIONS.item("op-1", HOME)]["status"]
        return status

    async def reconcile(self) -> Result:
        world = cast(StackWorld, _World(self.server))
        runner = cast(StackRunner, self.runner)
        with ThreadPoolExecutor(1, thread_name_prefix="pulumi") as executor:
            controller = PreviewsController(
                world, self.server, runner, executor, LONGEST_RUN, WorkerMetrics(), lambda: self.now
            )
            return await controller.reconcile(*KEY)


def operation(status: Json | None = None, kind: str = "PreviewUnit") -> Json:
    target = {"kind": "GPUUnit", "namespace": HOME, "name": "demo", "uid": "uid-demo"}
    metadata = {"name": "op-1", "namespace": HOME, "uid": "uid-op", "resourceVersion": "5"}
    spec = {"operationID": "mine", "kind": kind, "requestHash": "a" * 64, "target": target}
    return {"metadata": metadata, "spec": spec, "status": status or {}}


def test_only_previews_are_looked_at() -> None:
    assert list(keys_of_preview(operation())) == [KEY]
    assert list(keys_of_preview(operation(kind="CreateUnit"))) == []


async def test_a_preview_ends_with_what_pulumi_found_and_is_kept_for_an_hour() -> None:
    worker = Worker()
    assert await worker.reconcile() == Done()
    change = {"path": "spec.image", "kind": "update", "old": "example/edited", "new": "example/train"}
    step = {"op": "update", "resource": "demo", "type": "gpuplatform:index:GpuUnit", "properties": [change]}
    assert worker.status == {
        "phase": "Succeeded",
        "startedAt": "2030-01-01T12:00:00Z",
        "finishedAt": "2030-01-01T12:00:00Z",
        "expiresAt": (NOW + PREVIEW_RETENTION).isoformat().replace("+00:00", "Z"),
        "result": {"changes": {"update": 1, "same": 1}, "steps": [step]},
    }
    assert worker.runner.asked == [StackAddress(StackKind.GPU_UNIT, "default", "demo")]
    assert worker.runner.threads[0].startswith("pulumi")


async def test_it_is_marked_as_running_before_pulumi_runs() -> None:
    phases: list[str] = []

    def run() -> PreviewResult:
        phases.append(worker.status["phase"])
        return FOUND

    worker = Worker(run)
    await worker.reconcile()
    assert phases == ["Running"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_preview_at_its_end_is_left_alone(phase: str) -> None:
    worker = Worker(status={"phase": phase})
    assert await worker.reconcile() == Done()
    assert worker.server.requests == []


async def test_another_workers_preview_is_left_to_it_until_it_must_be_dead() -> None:
    worker = Worker(status={"phase": "Running", "startedAt": NOW.isoformat()})
    worker.now = NOW + timedelta(seconds=20)
    assert await worker.reconcile() == RequeueAfter(timedelta(seconds=100), "another worker has it")
    assert worker.server.requests == []
    worker.now = NOW + LONGEST_RUN
    assert await worker.reconcile() == Done()
    assert worker.status["phase"] == "Succeeded"


async def test_of_two_workers_that_want_to_begin_one_does() -> None:
    worker = Worker()

    def be_faster(method: str, path: str) -> None:
        if method == "patch" and path.endswith("/status"):
            worker.server.store.objects[OPERATIONS.item("op-1", HOME)]["metadata"]["resourceVersion"] = "6"

    worker.server.fault = be_faster
    assert await worker.reconcile() == Done()
    assert (worker.runner.asked, worker.status) == ([], {})


async def test_a_result_that_comes_too_late_changes_nothing() -> None:
    def run() -> PreviewResult:
        stored = worker.server.store.objects[OPERATIONS.item("op-1", HOME)]
        stored["metadata"]["resourceVersion"] = "99"
        stored["status"] = {"phase": "Failed", "reason": "NoWorker"}
        return FOUND

    worker = Worker(run)
    assert await worker.reconcile() == Done()
    assert worker.status == {"phase": "Failed", "reason": "NoWorker"}


@pytest.mark.parametrize(
    ("fault", "reason"), [(Fault.PROVIDER, "Provider"), (Fault.NOT_FOUND, "NotFound"), (Fault.TIMEOUT, "Timeout")]
)
async def test_a_preview_that_fails_says_why(fault: Fault, reason: str) -> None:
    def run() -> PreviewResult:
        raise StackFailedError(fault, "in words")

    worker = Worker(run)
    assert await worker.reconcile() == Done()
    assert (worker.status["phase"], worker.status["reason"], worker.status["message"]) == ("Failed", reason, "in words")
    assert "expiresAt" in worker.status


async def test_a_preview_that_a_stopping_worker_did_not_run_is_free_for_the_next_one() -> None:
    def run() -> PreviewResult:
        raise RunnerStoppedError

    worker = Worker(run)
    assert await worker.reconcile() == Done()
    assert worker.status["phase"] == "Pending"
    worker.runner = Runner(lambda: FOUND)
    await worker.reconcile()
    assert worker.status["phase"] == "Succeeded"


async def test_a_unit_that_is_gone_is_not_previewed_nor_is_a_later_one_of_its_name() -> None:
    worker = Worker()
    worker.unit["metadata"]["uid"] = "uid-later"
    await worker.reconcile()
    assert (worker.status["phase"], worker.status["reason"], worker.runner.asked) == ("Failed", "UnitGone", [])


async def test_a_unit_that_has_no_stack_by_now_is_not_previewed() -> None:
    worker = Worker()
    worker.unit["metadata"]["annotations"] = {}
    await worker.reconcile()
    assert (worker.status["phase"], worker.status["reason"], worker.runner.asked) == ("Failed", "NoStack", [])
