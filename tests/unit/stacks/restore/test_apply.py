"""What a restore reads out of a state, writes into index and ledger, waits for, and ends with."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpu_platform.domain.functions import GPUFunctionSpec
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import OperationKind, OperationSpec
from gpu_platform.domain.stack_plan import Action, Records, plan_stack
from gpu_platform.domain.stacks import Intent, StackAddress, StackKind, StackRecord
from gpu_platform.domain.stock import PoolRequest, StockPoolSpec, StockUnitsRequest, seed_pool_name
from gpu_platform.domain.storages import GPUStorageSpec
from gpu_platform.domain.tenant_limits import TenantLimits, build_hard
from gpu_platform.domain.units import GPUUnitSpec, accepted_text
from gpu_platform.domain.value import Value
from gpu_platform.kube import KubeClient, KubeError, UnreachableError
from stacks.restore.__main__ import choose_exit_code
from stacks.restore.apply import build_creation, build_record_to_hold
from stacks.restore.plan import Kept, NotKept, Outcome, Result, find_salt, parse_checkpoint
from stacks.restore.process import (
    COUNTED_SECONDS,
    SILENT_SECONDS,
    STALL_SECONDS,
    count_wanted,
    wait_for_counts,
    wait_for_stock,
)
from stacks.restore.report import Lines, Telling
from stacks.runner.backend import list_files, shard_of
from stacks.runner.workspace import parse_listing

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
HASH = "ab" * 32
UNANSWERED = UnreachableError(0, "Timeout", "no answer")
UNIT = StackAddress(StackKind.GPU_UNIT, "acme", "train")
POOL = StackAddress(StackKind.STOCK_POOL, "stock", "warm")
SPEC = GPUUnitSpec(spec_name="g1.1", image="example/train")
FUNCTION = StackAddress(StackKind.GPU_FUNCTION, "acme", "words")
STORAGE = StackAddress(StackKind.GPU_STORAGE, "acme", "weights")
STORAGE_SPEC = GPUStorageSpec(size="10Gi")
POOL_SPEC = StockPoolSpec(spec_name="g1.1", replicas=3)
FUNCTION_SPEC = GPUFunctionSpec(spec_name="g1.1", image="example/words", min_workers=1)


def state(*resources: Json, **latest: Any) -> Json:
    root = {"type": "pulumi:pulumi:Stack", "urn": "urn"}
    manifest = {"time": "2026-11-16T12:00:00Z"}
    return {"version": 3, "checkpoint": {"latest": {"manifest": manifest, "resources": [root, *resources], **latest}}}


def resource(**inputs: Any) -> Json:
    said = {"tenant": "acme", "name": "train", "spec": SPEC.to_json(), "operationID": "op-1", "requestHash": HASH}
    return {"type": "gpuplatform:index:GpuUnit", "inputs": {**said, **inputs}, "outputs": {"uid": "u1"}}


def intent(address: StackAddress = UNIT, spec: Value = SPEC) -> Intent:
    return Intent(address, "u1", accepted_text(spec), "op-1", HASH)


def test_a_state_says_what_was_accepted_for_its_one_object() -> None:
    assert parse_checkpoint(UNIT, state(resource())) == Kept(intent(), NOW)
    older = {**resource(), "delete": True, "outputs": {"uid": "u0"}}
    assert parse_checkpoint(UNIT, state(older, resource())) == Kept(intent(), NOW)
    said = {
        "tenant": "acme",
        "name": "words",
        "spec": FUNCTION_SPEC.to_json(),
        "operationID": "op-1",
        "requestHash": HASH,
    }
    function = {"type": "gpuplatform:index:GpuFunction", "inputs": said, "outputs": {"uid": "u1"}}
    assert parse_checkpoint(FUNCTION, state(function)) == Kept(intent(FUNCTION, FUNCTION_SPEC), NOW)
    assert not Kept(intent(FUNCTION, FUNCTION_SPEC), NOW).runs
    said = {"tenant": "acme", "name": "weights", "spec": STORAGE_SPEC.to_json(), "operationID": "op-1"}
    storage = {
        "type": "gpuplatform:index:GpuStorage",
        "inputs": {**said, "requestHash": HASH},
        "outputs": {"uid": "u1"},
    }
    kept = parse_checkpoint(STORAGE, state(storage))
    assert kept == Kept(intent(STORAGE, STORAGE_SPEC), NOW)
    assert isinstance(kept, Kept)
    # It needs neither stock nor an entry of the catalogue.
    assert (kept.runs, kept.spec_name) == (False, None)
    pool = {"type": "gpuplatform:index:StockPool", "inputs": {"name": "warm", "spec": POOL_SPEC.to_json()}}
    assert parse_checkpoint(POOL, state(pool)) == Kept(Intent(POOL, "", accepted_text(POOL_SPEC), "", ""), NOW)


@pytest.mark.parametrize("empty", [None, {}, {"checkpoint": {}}, state(), state(resources=None)])
def test_a_state_without_an_object_is_empty(empty: Json | None) -> None:
    read = parse_checkpoint(UNIT, empty)
    assert isinstance(read, NotKept)
    assert read.is_empty


@pytest.mark.parametrize(
    "broken",
    [
        {"checkpoint": []},
        state(resources=[{}]),
        state({"type": "gpuplatform:index:GpuUnit"}),
        state(resource(spec={"image": "example/train"})),
        state(resource(spec={"specName": "g1.1", "image": {"ciphertext": "v1:x"}})),
        state(resource(name="other")),
        state(resource(tenant="other")),
    ],
)
def test_a_state_that_says_something_else_is_not_taken_for_empty(broken: Json) -> None:
    read = parse_checkpoint(UNIT, broken)
    assert isinstance(read, NotKept)
    assert not read.is_empty


def test_the_salt_is_that_of_the_passphrase() -> None:
    assert find_salt(state(secrets_providers={"type": "passphrase", "state": {"salt": "v1:x"}})) == "v1:x"
    assert find_salt(state(secrets_providers={"type": "cloud", "state": {"url": "kms"}})) is None
    assert find_salt(state()) is None
    assert find_salt(None) is None


def test_a_restore_that_dies_leaves_a_stack_that_no_worker_removes() -> None:
    kept = Kept(intent(), None)
    for before in (None, StackRecord(UNIT, "u1", error="begun, and failed", failures=3)):
        held = build_record_to_hold(kept, before, NOW)
        assert held.intent == intent()
        assert held.error is None
        assert plan_stack(Records(None, held)) is Action.NOTHING
        assert plan_stack(Records(None, held, is_accepted=True)) is Action.PUT_BACK
    known = replace(build_record_to_hold(kept, None, NOW), uid="u0")
    assert build_record_to_hold(kept, known, NOW) == known


def test_the_ledger_knows_the_request_again_by_its_hash() -> None:
    unit = build_creation(intent())
    assert (unit.kind, unit.operation_id, unit.request_hash) == (OperationKind.CREATE_UNIT, "op-1", HASH)
    assert unit.target.to_json() == {"kind": "GPUUnit", "namespace": "runtime-instance-acme", "name": "train"}


def test_the_ledger_knows_a_function_too_and_the_operations_controller_needs_no_more() -> None:
    made = build_creation(intent(FUNCTION, FUNCTION_SPEC))
    assert (made.kind, made.request_hash, made.request) == (OperationKind.CREATE_FUNCTION, HASH, {})
    assert made.target.to_json() == {"kind": "GPUFunction", "namespace": "runtime-instance-acme", "name": "words"}


def test_the_ledger_knows_a_storage_too() -> None:
    made = build_creation(intent(STORAGE, STORAGE_SPEC))
    assert (made.kind, made.request_hash, made.request) == (OperationKind.CREATE_STORAGE, HASH, {})
    assert made.target.to_json() == {"kind": "GPUStorage", "namespace": "runtime-instance-acme", "name": "weights"}


def test_the_ledger_can_be_finished_by_the_operations_controller() -> None:
    made = build_creation(intent(POOL, POOL_SPEC))
    assert made.kind is OperationKind.CREATE_STOCK_POOL
    assert PoolRequest.model_validate(made.request) == PoolRequest(name="warm", spec_name="g1.1", replicas=3)
    seeded = replace(POOL, name=seed_pool_name("g1.1", "op-1"))
    made = build_creation(intent(seeded, POOL_SPEC))
    assert made.kind is OperationKind.SEED_STOCK_UNITS
    assert StockUnitsRequest.model_validate(made.request) == StockUnitsRequest(spec_name="g1.1", replicas=3)
    assert OperationSpec.model_validate(made.to_json()) == made


def test_a_pool_gives_no_more_than_it_holds() -> None:
    pools = [{"spec": {"specName": "a", "replicas": 2}}, {"spec": {"specName": "a", "replicas": 1}}]
    assert count_wanted(Counter(a=2, b=1), pools) == Counter(a=2)
    assert count_wanted(Counter(a=9), pools) == Counter(a=3)


class Stock(KubeClient):
    """Pools of `g1.1` whose free units come as the script says; then no more do."""

    def __init__(self, replicas: int, *counts: int) -> None:
        self._pool = {"spec": {"specName": "g1.1", "replicas": replicas}}
        self._counts = list(counts)
        self.time = 0.0

    async def get(self, path: str, params: Any = None, *, timeout: float = 10.0) -> Json:  # noqa: ARG002 - the client's own
        if path.endswith("stockpools"):
            return {"items": [self._pool]}
        self.time += 1
        count = self._counts.pop(0) if len(self._counts) > 1 else self._counts[0]
        return {"items": [self._unit(number) for number in range(count)]}

    def _unit(self, number: int) -> Json:
        metadata = {"name": f"warm-{number}", "creationTimestamp": "2026-11-16T12:00:00Z"}
        return {"metadata": metadata, "spec": {"specName": "g1.1"}, "status": {"phase": "Ready"}}


@pytest.mark.parametrize(
    ("stock", "lacking", "longest"),
    [(Stock(5, 0, 1, 2), 0, 4), (Stock(1, 1), 1, 2), (Stock(5, 0), 2, STALL_SECONDS + 2)],
)
async def test_stock_is_waited_for_until_it_is_there_or_no_more_comes(
    stock: Stock, lacking: int, longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stacks.restore.process.STOCK_LOOK_SECONDS", 0)
    units = [Kept(intent(), None)] * 2
    assert await wait_for_stock(stock, units, Telling(), lambda: stock.time) == lacking
    assert stock.time <= longest


class Quotas(KubeClient, Telling):
    """A tenant's quota that is counted after so many looks, each a second apart, of which the first fail."""

    def __init__(self, uncounted: int, failures: int = 0, error: KubeError = UNANSWERED) -> None:
        self._uncounted = uncounted
        self._failures = failures
        self._error = error
        self.time = 0.0
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)

    async def get(self, path: str, params: Any = None, *, timeout: float = 10.0) -> Json:  # noqa: ARG002 - the client's own
        hard = build_hard(TenantLimits())
        used = dict.fromkeys(hard, "0") if self.time >= self._uncounted else {}
        self.time += 1
        if self.time <= self._failures:
            raise self._error
        return {
            "items": [
                {
                    "metadata": {"namespace": "runtime-instance-acme"},
                    "spec": {"hard": hard},
                    "status": {"hard": hard, "used": used},
                }
            ]
        }


@pytest.mark.parametrize(
    ("quotas", "end", "looks"),
    [
        (Quotas(0), None, 1),
        (Quotas(300), None, 301),
        (Quotas(10_000), "does not count the objects in runtime-instance-acme yet: goes on", COUNTED_SECONDS + 2),
        # One that does not answer this time may answer the next.
        (Quotas(300, failures=10), None, 301),
        (Quotas(300, failures=1_000), "cannot be listed (0 Timeout: no answer): goes on", SILENT_SECONDS + 2),
        (Quotas(300, failures=1_000, error=KubeError(403, "Forbidden", "no right")), "no right): goes on", 1),
    ],
    ids=["counted", "soon", "never", "silent for a moment", "silent", "no right"],
)
async def test_a_restore_waits_until_tenants_objects_are_counted_and_says_when_it_gives_up(
    quotas: Quotas, end: str | None, looks: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stacks.restore.process.COUNTS_LOOK_SECONDS", 0)
    await wait_for_counts(quotas, quotas, lambda: quotas.time)
    assert quotas.time <= looks
    assert (end is None) == all("goes on" not in line for line in quotas.said)
    assert end is None or end in quotas.said[-1]


def test_the_stacks_of_a_root_are_found_by_their_files(tmp_path: Path) -> None:
    root = tmp_path / shard_of(UNIT.stack)
    states = root / ".pulumi" / "stacks" / "gpu-unit"
    states.mkdir(parents=True)
    (states / f"{UNIT.stack}.json.gz").write_bytes(gzip.compress(b"{}"))
    for other in (f"{UNIT.stack}.json.gz.bak", "acme.elsewhere.json", "nodot.json", "README"):
        (states / other).touch()
    assert list(list_files(root)) == [UNIT]
    assert list(list_files(tmp_path / "00")) == []


def test_the_stacks_that_the_cli_lists_are_ours_or_are_left() -> None:
    listed = [{"name": f"organization/{each}"} for each in (UNIT.full_name, POOL.full_name, "shop/prod", "shop/a.b")]
    assert list(parse_listing(json.dumps([*listed, {"name": "prod"}]))) == [UNIT, POOL]


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([], 0),
        ([Result.RESTORED, Result.THERE, Result.LEFT, Result.EMPTY], 0),
        ([Result.RESTORED, Result.FAILED], 1),
        ([Result.FAILED, Result.INTERRUPTED], 130),
    ],
)
def test_only_what_failed_or_was_interrupted_ends_with_a_code(results: list[Result], code: int) -> None:
    assert choose_exit_code([Outcome(UNIT, result) for result in results]) == code


def test_a_log_gets_a_line_for_each_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(Console())
    lines.begin("units", 30)
    for done in range(1, 31):
        lines.advance(done)
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == ["units: 0 of 30", "units: 3 of 30"]
    assert told[-1] == "units: 30 of 30"
    assert len(told) == 11
