"""Which workers a function gets: every state of a slot, and what is said of the whole."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.functions import FunctionPhase, FunctionReason, GPUFunctionSpec
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.units import GPUUnitSpec
from reconciler.functions.observe import Observed
from reconciler.functions.plan import CreateWorker, Plan, plan_function
from reconciler.functions.workers import build_worker, claim_mark, find_ordinal
from reconciler.guarded_writes import DeleteObject, ReplaceObject
from tests.support.builders import NOW, make_function, make_stock, make_unit

FUNCTION = make_function()
SPEC = GPUFunctionSpec.model_validate(FUNCTION["spec"])
GOING: Json = {"deletionTimestamp": "2030-01-01T12:00:00Z"}


def worker(ordinal: int, *, phase: str = "Ready", function: Json = FUNCTION, **metadata: Any) -> Json:
    spec = GPUFunctionSpec.model_validate(function["spec"])
    unit = build_worker(function, spec, ordinal, make_stock(), woken_at=NOW, claimed_at=NOW)
    unit["metadata"] |= {"uid": f"uid-{ordinal}", "resourceVersion": "7", **metadata}
    return {**unit, "status": {"phase": phase}}


def joined(**status: Any) -> Json:
    return {**make_unit("own", serverless={"requestID": "words"}), "status": {"phase": "Ready", **status}}


def observed(**fields: Any) -> Observed:
    nothing = Observed(FUNCTION, SPEC, is_known_spec=True, own=(), joined=(), strangers=(), held=(), free=())
    return replace(nothing, **fields)


def plan(seen: Observed, wanted: int = 1, queue_problem: str | None = None, refusal: str | None = None) -> Plan:
    return plan_function(seen, wanted, queue_problem, NOW, refusal)


def verdict(planned: Plan) -> tuple[FunctionPhase | None, str, str]:
    condition = find_condition(planned.status.conditions, "Ready")
    return planned.status.phase, condition.reason if condition else "", condition.message if condition else ""


STOCK = (make_stock("pool-0"), make_stock("pool-1"), make_stock("pool-2"))


def test_a_worker_that_is_missing_is_made() -> None:
    planned = plan(observed(free=STOCK), 2)

    assert planned.writes == (CreateWorker(0, ()), CreateWorker(1, ()))
    assert verdict(planned)[:2] == (FunctionPhase.PROGRESSING, FunctionReason.WORKERS_STARTING)


def test_what_a_try_that_died_has_claimed_is_taken_first() -> None:
    held = make_stock("pool-9", claimed_by="runtime-instance/words-worker-1")

    planned = plan(observed(held=(held,), free=STOCK[:1]), 2)

    assert planned.writes == (CreateWorker(0, ()), CreateWorker(1, (held,)))
    assert not planned.lacks_stock


def test_without_stock_it_says_so_and_makes_what_it_can() -> None:
    planned = plan(observed(free=STOCK[:1]), 2)

    assert planned.writes == (CreateWorker(0, ()), CreateWorker(1, ()))
    assert planned.lacks_stock
    assert verdict(planned)[:2] == (FunctionPhase.PROGRESSING, FunctionReason.NO_STOCK)
    assert "no free stock of g1.1" in verdict(planned)[2]


def test_workers_that_are_as_they_should_be_are_left_alone() -> None:
    planned = plan(observed(own=(worker(0), worker(1))), 2)

    assert planned.writes == ()
    assert verdict(planned) == (FunctionPhase.READY, FunctionReason.FUNCTION_READY, "2 of 2 workers are ready")
    assert (planned.status.workers, planned.status.ready_workers) == (2, 2)


def test_workers_beyond_are_removed_highest_first() -> None:
    workers = (worker(2), worker(0), worker(10), worker(1))

    planned = plan(observed(own=workers), 1)

    assert [find_ordinal(FUNCTION, write.seen) for write in planned.writes if isinstance(write, DeleteObject)] == [
        10,
        2,
        1,
    ]


@pytest.mark.parametrize(
    "block",
    [
        {"own": (worker(0, **GOING),)},
        {"strangers": (worker(0, function=make_function() | {"metadata": FUNCTION["metadata"] | {"uid": "old"}}),)},
        {"strangers": ({**make_unit("words-worker-0"), "metadata": make_unit("words-worker-0")["metadata"] | GOING},)},
    ],
    ids=["its own, on its way out", "an earlier function's", "a stranger, on its way out"],
)
def test_a_name_that_will_be_free_soon_is_waited_for(block: Json) -> None:
    assert plan(observed(free=STOCK, **block)).writes == ()


def test_a_name_that_a_stranger_has_is_passed_over() -> None:
    planned = plan(observed(strangers=(make_unit("words-worker-0"),), own=(worker(1),), free=STOCK), 2)

    assert planned.writes == (CreateWorker(2, ()),)


def test_a_worker_with_another_spec_is_changed_in_place_and_keeps_its_size() -> None:
    changed = make_function(image="example/words:2", framework={"invokePath": "/run"})
    seen = observed(function=changed, spec=GPUFunctionSpec.model_validate(changed["spec"]), own=(worker(0),))

    [write] = plan(seen).writes

    assert isinstance(write, ReplaceObject)
    assert write.body["metadata"] == worker(0)["metadata"]
    spec = GPUUnitSpec.model_validate(write.body["spec"])
    assert (spec.image, spec.memory, spec.gpu) == ("example/words:2", "16Gi", 1)
    assert spec.serverless is not None
    assert spec.serverless.framework.invoke_path == "/run"


@pytest.mark.parametrize("edit", [{"specName": "g1.8"}, {"running": False}, {"gpu": "many"}])
def test_a_worker_that_cannot_become_what_is_wanted_is_made_anew(edit: Json) -> None:
    unit = worker(0)
    unit["spec"] = {**unit["spec"], **edit}

    planned = plan(observed(own=(unit,), free=STOCK))

    assert planned.writes == (DeleteObject("GPUUnit", unit),)


def test_units_that_joined_are_workers_too() -> None:
    planned = plan(observed(joined=(joined(),), own=(worker(0), worker(1)), free=STOCK), 2)

    assert planned.writes == (DeleteObject("GPUUnit", worker(1)),)
    assert (planned.status.workers, planned.status.ready_workers) == (3, 3)


def test_a_unit_that_joined_and_was_stopped_is_none() -> None:
    stopped = joined()
    stopped["spec"]["running"] = False

    assert plan(observed(joined=(stopped,), free=STOCK)).writes == (CreateWorker(0, ()),)


def test_where_no_worker_could_take_a_call_none_takes_stock() -> None:
    planned = plan(observed(free=STOCK, setup_problem="NATS is not configured"), 2)

    assert planned.writes == ()
    assert verdict(planned) == (FunctionPhase.PROGRESSING, FunctionReason.QUEUE_UNAVAILABLE, "NATS is not configured")


def test_after_a_refusal_only_what_is_too_much_is_written() -> None:
    planned = plan(observed(own=(worker(5),), free=STOCK), 1, refusal="exceeded quota")

    assert planned.writes == (DeleteObject("GPUUnit", worker(5)),)
    assert verdict(planned)[:2] == (FunctionPhase.FAILED, FunctionReason.WORKER_FAILED)
    assert "exceeded quota" in verdict(planned)[2]


def test_a_refusal_of_what_nobody_wants_any_more_is_forgotten() -> None:
    assert verdict(plan(observed(own=(worker(0),)), 1, refusal="no"))[0] is FunctionPhase.READY


def test_while_nats_is_away_the_workers_come_all_the_same() -> None:
    planned = plan(observed(free=STOCK), 1, "NATS does not answer")

    assert planned.writes == (CreateWorker(0, ()),)
    assert verdict(planned) == (FunctionPhase.PROGRESSING, FunctionReason.QUEUE_UNAVAILABLE, "NATS does not answer")


def test_a_worker_that_cannot_start_speaks_for_itself() -> None:
    broken = worker(0, phase="Failed")
    broken["status"]["conditions"] = [{"type": "Ready", "message": "no such image"}]

    phase, reason, message = verdict(plan(observed(own=(broken,))))

    assert (phase, reason, message) == (
        FunctionPhase.FAILED,
        FunctionReason.WORKER_FAILED,
        "words-worker-0: no such image",
    )


def test_a_function_that_wants_no_worker_is_ready() -> None:
    planned = plan(observed(), 0)

    assert planned.writes == ()
    assert verdict(planned)[:2] == (FunctionPhase.READY, FunctionReason.FUNCTION_READY)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"spec": None}, "does not fit the schema"),
        ({"is_known_spec": False}, "spec.specName: there is no GPUSpec 'g1.1'"),
        (
            {"function": make_function() | {"metadata": FUNCTION["metadata"] | {"namespace": "other"}}},
            "and other is none",
        ),
    ],
)
def test_a_function_that_cannot_be_says_which_field_to_mend(fields: Json, words: str) -> None:
    planned = plan(observed(free=STOCK, **fields))

    assert planned.writes == ()
    assert verdict(planned)[:2] == (FunctionPhase.FAILED, FunctionReason.INVALID_SPEC)
    assert words in verdict(planned)[2]


def test_a_function_on_its_way_out_is_left_alone() -> None:
    going = make_function() | {"metadata": FUNCTION["metadata"] | GOING}

    planned = plan(observed(function=going, own=(worker(0),), free=STOCK), 2)

    assert planned.writes == ()
    assert planned.status.phase is FunctionPhase.TERMINATING


def test_the_same_state_makes_the_same_status() -> None:
    first = plan(observed(own=(worker(0),)))
    again = plan_function(
        observed(function={**FUNCTION, "status": first.status.to_json()}, own=(worker(0),)),
        1,
        None,
        NOW + timedelta(hours=1),
    )

    unhurried = {"last_sync_time": None}
    assert again.status.model_copy(update=unhurried) == first.status.model_copy(update=unhurried)


def test_a_worker_is_the_functions_and_its_stocks() -> None:
    unit = worker(3)

    assert unit["metadata"]["name"] == "words-worker-3"
    assert unit["metadata"]["labels"][names.LABEL_FUNCTION] == "words"
    assert unit["metadata"]["labels"][names.LABEL_POOL] == "pool"
    assert unit["metadata"]["annotations"][names.ANNOTATION_SOURCE_STOCK_NAME] == "pool-0"
    assert unit["metadata"]["ownerReferences"][0]["uid"] == "uid-words"
    # Nobody accepted it, so it has no stack, and no drift.
    assert names.ANNOTATION_ACCEPTED_SPEC not in unit["metadata"]["annotations"]
    assert GPUUnitSpec.model_validate(unit["spec"]).serverless is not None


@pytest.mark.parametrize(
    ("name", "ordinal"),
    [
        ("words-worker-0", 0),
        ("words-worker-12", 12),
        ("words-worker-01", None),
        ("words-worker-", None),
        ("words-worker-x", None),
        ("words", None),
        ("other-words-worker-1", None),
    ],
)
def test_a_workers_ordinal_is_in_its_name(name: str, ordinal: int | None) -> None:
    assert find_ordinal(FUNCTION, make_unit(name)) == ordinal


def test_a_claim_for_a_worker_names_no_operation() -> None:
    assert claim_mark(FUNCTION) == "function/runtime-instance/words"
