"""What a restore does about one stack: every row of the table, and that no combination is left out."""

import itertools
from datetime import UTC, datetime

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stacks import Intent, Recorded, StackAddress, StackKind, StackRecord
from gpu_platform.domain.units import GPUUnitSpec, accepted_text
from stacks.restore.plan import Action, Kept, NotKept, Observed, choose, plan_restore

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
ADDRESS = StackAddress(StackKind.GPU_UNIT, "acme", "train")
SPEC = GPUUnitSpec(spec_name="g1.1", image="example/train")
OTHER_SPEC = SPEC.model_copy(update={"image": "example/other"})
HASH = "0" * 64

EMPTY = NotKept("nothing was recorded in it", is_empty=True)
UNREADABLE = NotKept("its state cannot be read")


def kept(uid: str = "new", operation_id: str = "op-train") -> Kept:
    return Kept(Intent(ADDRESS, uid, accepted_text(SPEC), operation_id, HASH if operation_id else ""), NOW)


def unit(accepted: str | None = accepted_text(SPEC), *, going: bool = False, owner: str | None = None) -> Json:
    annotations = {names.ANNOTATION_OWNER_STACK: owner} if owner else {}
    annotations |= {names.ANNOTATION_ACCEPTED_SPEC: accepted} if accepted is not None else {}
    metadata: Json = {"name": "train", "namespace": ADDRESS.namespace, "uid": "new", "annotations": annotations}
    metadata |= {"deletionTimestamp": "2026-11-16T12:00:00Z"} if going else {}
    return {"kind": "GPUUnit", "metadata": metadata, "spec": SPEC.to_json()}


def record(uid: str = "new", spec: GPUUnitSpec = SPEC) -> StackRecord:
    return StackRecord(ADDRESS, uid, Recorded(accepted_text(spec), "op-train", HASH, NOW))


KNOWN = Observed(kept(), unit(), record(), is_in_ledger=True)
GONE = Observed(kept("old"), None, None)


@pytest.mark.parametrize(
    ("observed", "action", "word"),
    [
        (Observed(EMPTY, None, None), Action.SKIP, "nothing was recorded"),
        (Observed(EMPTY, unit(), record()), Action.SKIP, "nothing was recorded"),
        (Observed(UNREADABLE, None, None), Action.REFUSE, "cannot be read"),
        (Observed(kept("old"), None, None, is_delete_asked=True), Action.LEAVE, "deletion was asked for"),
        (Observed(kept(), unit(), record(), is_delete_asked=True), Action.LEAVE, "deletion was asked for"),
        (Observed(kept(), unit(going=True), record()), Action.LEAVE, "being deleted"),
        (Observed(kept("old"), unit(owner="shop/prod"), None), Action.LEAVE, "shop/prod"),
        (Observed(kept("old"), unit(accepted=None), None), Action.LEAVE, "by hand"),
        (Observed(kept("old"), unit(accepted="no JSON"), None), Action.LEAVE, "by hand"),
        (Observed(kept(), unit(accepted_text(OTHER_SPEC)), record()), Action.LEAVE, "another accepted spec"),
        (Observed(kept(), unit('{"specName": 7}'), record()), Action.LEAVE, "cannot be read"),
        (KNOWN, Action.NOTHING, ""),
        (Observed(kept(operation_id=""), unit(), record()), Action.NOTHING, ""),
        (Observed(kept("old"), unit(), record(), is_in_ledger=True), Action.ADOPT, ""),
        (Observed(kept(), unit(), None, is_in_ledger=True), Action.ADOPT, ""),
        (Observed(kept(), unit(), record("old"), is_in_ledger=True), Action.ADOPT, ""),
        (Observed(kept(), unit(), record(spec=OTHER_SPEC), is_in_ledger=True), Action.ADOPT, ""),
        (Observed(kept(), unit(), record()), Action.ADOPT, ""),
        (Observed(kept("old"), None, None, has_namespace=False), Action.REFUSE, "namespace runtime-instance-acme"),
        (Observed(kept("old"), None, None, has_spec=False), Action.REFUSE, "GPUSpec g1.1"),
        (GONE, Action.MAKE, ""),
        (Observed(kept("old"), None, record("old"), is_in_ledger=True), Action.MAKE, ""),
    ],
)
def test_every_row(observed: Observed, action: Action, word: str) -> None:
    step = plan_restore(observed)
    assert step.action is action
    assert word in step.reason


def test_every_combination_has_an_answer_and_nothing_is_made_where_something_is() -> None:
    items = (None, unit(), unit(going=True), unit(owner="a/b"), unit(None), unit(accepted_text(OTHER_SPEC)))
    states: tuple[Kept | NotKept, ...] = (kept(), kept("old"), EMPTY, UNREADABLE)
    records = (None, record(), record("old"))
    flags = itertools.product(*([(True, False)] * 4))
    for state, item, entry, said in itertools.product(states, items, records, list(flags)):
        step = plan_restore(Observed(state, item, entry, *said))
        assert (step.action is Action.MAKE) <= (item is None and not said[0] and isinstance(state, Kept))
        assert (step.action is Action.ADOPT) <= (item == unit() and not said[0])
        assert bool(step.reason) is (step.action in (Action.LEAVE, Action.SKIP, Action.REFUSE))


POOL = StackAddress(StackKind.STOCK_POOL, "stock", "warm")
OTHER = StackAddress(StackKind.GPU_UNIT, "default", "web")
STORAGE = StackAddress(StackKind.GPU_STORAGE, "default", "weights")
FUNCTION = StackAddress(StackKind.GPU_FUNCTION, "default", "words")


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        ((), (POOL, STORAGE, FUNCTION, ADDRESS, OTHER)),
        (("gpu-storage/*",), (STORAGE,)),
        (("gpu-function/*",), (FUNCTION,)),
        (("gpu-unit/*",), (ADDRESS, OTHER)),
        (("gpu-unit/default.web",), (OTHER,)),
        (("gpu-unit/default.*", "stock-pool/stock.warm"), (POOL, OTHER)),
        (("web",), ()),
    ],
)
def test_pools_and_storages_come_before_functions_and_these_before_units_and_only_says_which(
    patterns: tuple[str, ...], chosen: tuple[StackAddress, ...]
) -> None:
    assert choose((OTHER, POOL, FUNCTION, STORAGE, ADDRESS), patterns) == chosen
