"""One call: what may be asked for, and how it comes to its one end."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from pydantic import ValidationError

from gpu_platform.domain.invocation_plan import Delivery, Loss, PutBack, plan_delivery, plan_loss
from gpu_platform.domain.invocations import (
    ENDS,
    INVOCATION_ID,
    LONGEST_TIMEOUT,
    BodyReference,
    ColdStart,
    Invocation,
    InvocationRequest,
    InvocationResult,
    InvocationState,
    Mode,
    accept,
    answer,
    begin,
    bury,
    call_off,
    cancel,
    expire,
    phases_of_cold_start,
    put_back,
    retry,
    retry_id,
)

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
REQUEST = InvocationRequest(function="resize", id="call-1", payload={"width": 3}, timeout_seconds=60)


def queued(**changes: Any) -> Invocation:
    return accept("acme", REQUEST, NOW).model_copy(update=changes)


def test_an_accepted_call_waits_until_its_deadline() -> None:
    call = accept("acme", REQUEST, NOW)

    assert (call.state, call.attempts, call.expires_at) == (InvocationState.QUEUED, 0, NOW + timedelta(seconds=60))


def test_every_call_has_a_deadline() -> None:
    unsaid = REQUEST.model_copy(update={"timeout_seconds": None})

    assert accept("acme", unsaid, NOW).expires_at == NOW + LONGEST_TIMEOUT
    assert accept("acme", unsaid, NOW, default_timeout_seconds=5).expires_at == NOW + timedelta(seconds=5)
    assert accept("acme", REQUEST, NOW, default_timeout_seconds=5).expires_at == NOW + timedelta(seconds=60)


def came(ready: timedelta) -> ColdStart:
    """A worker that was wanted when the call was accepted."""
    return ColdStart(woken_at=NOW, claimed_at=NOW, started_at=NOW, ready_at=NOW + ready)


def test_a_call_that_was_there_before_its_worker_tells_how_that_came() -> None:
    start = came(timedelta(seconds=2))
    cold = begin(queued(), "worker-0", NOW + timedelta(seconds=2), start=start)

    assert cold.cold_start == start
    assert begin(queued(), "worker-0", NOW, start=came(timedelta(seconds=-1))).cold_start is None
    assert begin(queued(attempts=1), "worker-1", NOW, start=start).cold_start is None
    again = begin(cold, "worker-1", NOW + timedelta(seconds=9), start=came(timedelta(seconds=8)))
    assert again.cold_start == start


def test_the_steps_of_a_cold_start_count_from_the_acceptance() -> None:
    start = came(timedelta(seconds=2)).model_copy(update={"woken_at": NOW - timedelta(seconds=1)})
    cold = begin(queued(), "worker-0", NOW, NOW, start)
    over = answer(cold, InvocationResult(), NOW + timedelta(seconds=3))

    assert phases_of_cold_start(over) == {"queued": 0, "claimed": 0, "started": 0, "ready": 2, "answered": 3}
    assert phases_of_cold_start(begin(queued(), "worker-0", NOW)) == {}


def test_one_request_has_one_hash_however_long_its_caller_waits() -> None:
    same = InvocationRequest.model_validate(
        {"payload": {"width": 3}, "id": "call-1", "function": "resize", "timeoutSeconds": 60, "mode": "sync"}
    )

    assert same.hash == REQUEST.hash
    assert REQUEST.model_copy(update={"payload": {"width": 4}}).hash != REQUEST.hash
    assert REQUEST.model_copy(update={"function": "other"}).hash != REQUEST.hash


@pytest.mark.parametrize("bad", ["", "a.b", "a b", "*", ">", "a>", "ä", "a\n", "$KV", "x" * 129])
def test_an_id_is_one_token_of_a_subject(bad: str) -> None:
    with pytest.raises(ValidationError):
        InvocationRequest(function="resize", id=bad)


@pytest.mark.parametrize("bad", ["", "A", "a_b", "a.b", "-a", "a-", "*", "x" * 31])
def test_a_function_is_a_label_of_at_most_thirty_characters(bad: str) -> None:
    with pytest.raises(ValidationError):
        InvocationRequest(function=bad, id="call-1")


@pytest.mark.parametrize(
    "headers",
    [{"": "x"}, {"a b": "x"}, {"a:": "x"}, {"a\r\nb": "x"}, {"a": "x\r\ny: z"}, {"a": "\x00"}, {"NATS-Msg-Id": "x"}],
)
def test_a_header_cannot_smuggle_another_one_nor_speak_for_the_queue(headers: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        InvocationRequest(function="resize", id="call-1", headers=headers)


def test_plain_headers_are_fine() -> None:
    headers = {"X-Trace": "a b\tc", "accept": "*/*"}

    assert InvocationRequest(function="resize", id="call-1", headers=headers).headers == headers


@pytest.mark.parametrize("attributes", [{"": "x"}, {"a\n": "x"}, {"a": "\r"}, {"a": "x" * 2_049}, {"x" * 129: ""}])
def test_an_attribute_is_plain_text_of_bounded_length(attributes: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        InvocationRequest(function="resize", id="call-1", attributes=attributes)


@pytest.mark.parametrize("seconds", [0, -1, 72 * 3_600 + 1])
def test_a_timeout_is_between_a_second_and_three_days(seconds: int) -> None:
    with pytest.raises(ValidationError):
        InvocationRequest(function="resize", id="call-1", timeout_seconds=seconds)


@pytest.mark.parametrize(
    ("result", "state"),
    [
        (InvocationResult(), InvocationState.SUCCEEDED),
        (InvocationResult(status_code=399), InvocationState.SUCCEEDED),
        (InvocationResult(status_code=404), InvocationState.FAILED),
        (InvocationResult(status_code=500), InvocationState.FAILED),
        (InvocationResult(error="no GPU"), InvocationState.FAILED),
    ],
)
def test_an_answer_that_is_a_failure_is_not_called_a_success(result: InvocationResult, state: InvocationState) -> None:
    call = answer(begin(queued(), "worker-1", NOW), result, NOW)

    assert (call.state, call.result, call.finished_at) == (state, result, NOW)


def test_a_waiting_call_is_cancelled_at_once_and_a_running_one_is_asked_to_end() -> None:
    assert cancel(queued(), NOW).state is InvocationState.CANCELLED
    asked = cancel(begin(queued(), "worker-1", NOW), NOW)
    assert (asked.state, asked.is_cancel_asked) == (InvocationState.RUNNING, True)
    assert cancel(asked, NOW).state is InvocationState.CANCELLED


@pytest.mark.parametrize("state", sorted(ENDS))
def test_no_end_is_ever_changed(state: InvocationState) -> None:
    over = queued(state=state)
    changes: tuple[Callable[[], Invocation], ...] = (
        lambda: begin(over, "worker-1", NOW),
        lambda: answer(over, InvocationResult(), NOW),
        lambda: expire(over, NOW),
        lambda: cancel(over, NOW),
        lambda: call_off(over, "FunctionDeleted", NOW),
        lambda: bury(over, "AttemptsExhausted", NOW),
    )
    for change in changes:
        with pytest.raises(ValueError, match="is over"):
            change()


def test_a_record_is_read_as_it_was_written() -> None:
    call = answer(begin(queued(mode=Mode.SYNC), "worker-1", NOW, NOW), InvocationResult(body=[1, None]), NOW)

    assert Invocation.model_validate(call.to_json()) == call


def test_each_step_leaves_its_time() -> None:
    first = begin(queued(), "worker-1", NOW + timedelta(seconds=2), NOW + timedelta(seconds=1), is_alone=True)
    assert (first.attempts, first.accepted_at, first.queued_at) == (1, NOW, NOW + timedelta(seconds=1))
    assert (first.first_started_at, first.started_at) == (None, NOW + timedelta(seconds=2))

    second = begin(first, "worker-2", NOW + timedelta(seconds=9), NOW + timedelta(seconds=8))
    assert (second.attempts, second.worker, second.queued_at) == (2, "worker-2", NOW + timedelta(seconds=1))
    assert (second.first_started_at, second.started_at) == (NOW + timedelta(seconds=2), NOW + timedelta(seconds=9))


def test_a_large_body_is_referred_to_and_not_kept_in_the_record() -> None:
    body = BodyReference(digest="0" * 64, size=1 << 20, chunks=2)
    call = accept("acme", REQUEST, NOW, payload_body=body)
    assert (call.payload, call.payload_body, call.request_hash) == (None, body, REQUEST.hash)

    over = answer(call, InvocationResult(body="large", headers={"a": "b"}), NOW, result_body=body)
    assert (over.result, over.result_body) == (InvocationResult(headers={"a": "b"}), body)


def test_a_retry_is_another_call_with_the_same_wish_and_the_same_time_to_live() -> None:
    over = bury(begin(queued(), "worker-1", NOW), "AttemptsExhausted", NOW + timedelta(seconds=9))
    later = NOW + timedelta(hours=1)
    again = retry(over, later)

    assert (again.id, again.retry_of) == (retry_id("acme", "call-1"), "call-1")
    assert (again.state, again.attempts, again.payload) == (InvocationState.QUEUED, 0, {"width": 3})
    assert (again.accepted_at, again.expires_at) == (later, later + timedelta(seconds=60))
    assert (again.started_at, again.finished_at, again.reason) == (None, None, None)
    assert INVOCATION_ID.fullmatch(again.id)
    assert len({retry_id("acme", "a"), retry_id("acme", "b"), retry_id("umbrella", "a")}) == 3


def test_only_what_is_over_is_tried_again() -> None:
    with pytest.raises(ValueError, match="is not over"):
        retry(queued(), NOW)


CALLS: dict[str, Invocation | None] = {
    "none": None,
    "waits": queued(),
    "waits as suspect": queued(is_alone=True),
    "runs beside others": queued(state=InvocationState.RUNNING),
    "runs alone": queued(state=InvocationState.RUNNING, is_alone=True),
    "asked to end": queued(state=InvocationState.RUNNING, is_cancel_asked=True),
    **{state.value: queued(state=state) for state in sorted(ENDS)},
}
LIMIT = 3


def expected(name: str, deliveries: int, attempts: int, *, is_late: bool) -> Delivery:
    """The table once more, as a list of rows: what the first fitting one says."""
    counted = attempts - 1 if name == "runs beside others" else attempts
    rows = (
        (name == "none" and deliveries == 1, Delivery.LOOK_AGAIN),
        (name == "none", Delivery.DROP),
        (name in ENDS, Delivery.DONE),
        (name == "asked to end", Delivery.CANCEL),
        (is_late, Delivery.EXPIRE),
        (counted >= LIMIT, Delivery.BURY),
        (name != "waits", Delivery.RUN_ALONE),
        (True, Delivery.RUN),
    )
    return next(action for fits, action in rows if fits)


@pytest.mark.parametrize(
    ("name", "deliveries", "attempts", "is_late"),
    list(product(CALLS, (1, 2, 99), (0, LIMIT - 1, LIMIT, LIMIT + 1), (False, True))),
)
def test_every_delivery_has_one_answer(name: str, deliveries: int, attempts: int, is_late: bool) -> None:
    now = NOW + timedelta(seconds=60 if is_late else 59)
    call = CALLS[name]
    seen = call.model_copy(update={"attempts": attempts}) if call else None

    assert plan_delivery(seen, deliveries, LIMIT, now) is expected(name, deliveries, attempts, is_late=is_late)


def test_a_message_that_was_only_given_back_costs_no_attempt() -> None:
    assert plan_delivery(queued(), 99, LIMIT, NOW) is Delivery.RUN


@pytest.mark.parametrize("is_last", [False, True], ids=["one of several", "the last attempt"])
@pytest.mark.parametrize("was_suspect", [False, True], ids=["", "suspect"])
@pytest.mark.parametrize(
    ("loss", "had_company", "is_charged", "makes_suspect"),
    [
        (Loss.NOT_RECEIVED, False, False, False),
        (Loss.NOT_RECEIVED, True, False, False),
        (Loss.REFUSED, False, True, False),
        (Loss.REFUSED, True, True, False),
        (Loss.DIED, False, True, True),
        (Loss.DIED, True, False, True),
    ],
)
def test_every_loss_has_one_answer(
    loss: Loss, had_company: bool, is_charged: bool, makes_suspect: bool, was_suspect: bool, is_last: bool
) -> None:
    call = queued(state=InvocationState.RUNNING, attempts=LIMIT if is_last else LIMIT - 1, is_alone=was_suspect)
    back = plan_loss(call, loss, LIMIT, had_company=had_company)

    if is_last and is_charged:
        assert back is None
    else:
        assert back == PutBack(is_charged, is_alone=makes_suspect or was_suspect)


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("dies", ["process", "worker"])
def test_a_call_whose_process_always_dies_is_run_once_more_than_its_attempts_at_most(dies: str, limit: int) -> None:
    """Whether its worker lives to put it back, or dies with it."""
    call = queued()
    runs: list[bool] = []
    while (action := plan_delivery(call, len(runs) + 1, limit, NOW)) is not Delivery.BURY:
        is_alone = action is Delivery.RUN_ALONE
        call = begin(call, "worker-1", NOW, is_alone=is_alone)
        runs.append(is_alone)
        if dies == "process":
            back = plan_loss(call, Loss.DIED, limit, had_company=not is_alone)
            if back is None:
                break
            call = put_back(call, is_charged=back.is_charged, is_alone=back.is_alone)

    assert runs == [False, *[True] * limit]
    assert call.attempts == limit


def test_a_call_that_is_put_back_waits_and_keeps_when_it_was_begun() -> None:
    running = begin(queued(), "worker-1", NOW)
    free = put_back(running, is_charged=False, is_alone=True)
    again = begin(free, "worker-2", NOW + timedelta(seconds=5), is_alone=True)

    assert (free.state, free.attempts, free.started_at) == (InvocationState.QUEUED, 0, NOW)
    assert put_back(running, is_charged=True, is_alone=False).attempts == 1
    assert (again.attempts, again.first_started_at) == (1, NOW)
    assert begin(free, "worker-2", NOW, start=came(timedelta(seconds=9))).cold_start is None


def test_a_record_of_a_version_without_suspects_is_read_as_one_that_ran_beside_others() -> None:
    written = begin(queued(), "worker-1", NOW).to_json()
    del written["isAlone"]
    read = Invocation.model_validate(written)

    assert plan_delivery(read, 2, 1, NOW) is Delivery.RUN_ALONE
    assert begin(read, "worker-2", NOW, is_alone=True).attempts == 1
