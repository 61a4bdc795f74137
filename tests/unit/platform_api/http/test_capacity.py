"""Slots, connections and times: who gets one, who makes room, and for how long."""

import pytest

from platform_api.http.capacity import (
    DRAINING_LIMIT,
    Connections,
    HeldBytes,
    Phase,
    Slots,
    answer_seconds,
    body_seconds,
    find_bytes_refusal,
    find_refusal,
    is_drained,
    is_newcomer_evicted,
    phase_seconds,
    share_of,
)
from platform_api.http.errors import ApiError
from platform_api.metrics import ApiMetrics

MIB = 1 << 20


@pytest.mark.parametrize(
    ("own", "total", "is_keyless", "status"),
    [
        (127, 511, False, None),
        (128, 128, False, 429),
        (0, 512, False, 503),
        (63, 512, True, None),
        (64, 0, True, 503),
    ],
)
def test_a_slot_is_refused_by_share_and_by_total(own: int, total: int, is_keyless: bool, status: int | None) -> None:
    refusal = find_refusal(512, own=own, total=total, is_keyless=is_keyless)
    assert (refusal.status if refusal else None) == status
    assert refusal is None or "Retry-After" in refusal.headers


def test_slots_are_counted_by_tenant_and_come_back() -> None:
    slots = Slots(8)
    assert [slots.take("one") is None for _ in range(3)] == [True, True, False]
    assert [slots.take(None) is None for _ in range(2)] == [True, False]
    assert slots.take("two") is None
    slots.release("one")
    slots.release(None)
    assert slots.take("one") is None
    assert slots.take(None) is None


@pytest.mark.parametrize(
    ("size", "own", "total", "status"),
    [
        (64 << 10, 32 * MIB, 128 * MIB, None),
        (16 * MIB, 16 * MIB, 112 * MIB, None),
        (17 * MIB, 16 * MIB, 16 * MIB, 429),
        (48 * MIB, 0, 0, None),
        (16 * MIB, 0, 113 * MIB, 503),
    ],
)
def test_bytes_are_refused_by_share_and_by_total(size: int, own: int, total: int, status: int | None) -> None:
    refusal = find_bytes_refusal(128 * MIB, size, own=own, total=total)
    assert (refusal.status if refusal else None) == status
    assert refusal is None or refusal.headers == {"Retry-After": "1"}


def test_held_bytes_are_counted_by_tenant_as_they_grow_and_come_back() -> None:
    held = HeldBytes(8 * MIB)
    first, second, other = held.open("one"), held.open("one"), held.open("two")
    for size in (MIB, 2 * MIB, MIB):
        first.grow_to(size)
    second.grow_to(64 << 10)
    for one_more in (second, held.open("one")):
        with pytest.raises(ApiError) as refused:
            one_more.grow_to(MIB)
        assert refused.value.status == 429
    other.grow_to(6 * MIB)
    with pytest.raises(ApiError) as full:
        held.open("three").grow_to(MIB)
    assert full.value.status == 503
    first.release()
    first.release()
    second.grow_to(2 * MIB)
    second.release()
    first.grow_to(2 * MIB)


@pytest.mark.parametrize(("limit", "share"), [(1, 1), (3, 1), (8, 2), (512, 128)])
def test_a_share_is_never_nothing(limit: int, share: int) -> None:
    assert share_of(limit) == share


@pytest.mark.parametrize(
    ("phase", "seconds"),
    [
        (Phase.SILENT, 7),
        (Phase.HEAD, 7),
        (Phase.CLOSING, 7),
        (Phase.DRAINING, 5),
        (Phase.REQUEST, None),
        (Phase.IDLE, None),
    ],
)
def test_each_phase_has_its_time(phase: Phase, seconds: float | None) -> None:
    assert phase_seconds(phase, 7) == seconds


@pytest.mark.parametrize(
    ("received", "client", "seconds"), [(0, 10, 10), (10 << 10, 10, 20), (16 << 20, 10, 300), (0, 400, 400)]
)
def test_a_body_earns_time_with_its_bytes(received: int, client: float, seconds: float) -> None:
    assert body_seconds(received, client) == seconds


@pytest.mark.parametrize(("sent", "client", "seconds"), [(0, 10, 10), (1_536 << 10, 10, 58), (16 << 20, 10, 522)])
def test_a_reader_earns_time_with_what_was_sent(sent: int, client: float, seconds: float) -> None:
    assert answer_seconds(sent, client) == seconds


@pytest.mark.parametrize(
    ("size", "reads", "is_over"), [(20 << 20, 80, False), (32 << 20, 128, True), (1_000, 1_000, True)]
)
def test_discarding_ends_by_bytes_and_by_reads(size: int, reads: int, is_over: bool) -> None:
    assert is_drained(size, reads) is is_over


@pytest.mark.parametrize(
    ("newcomers", "known", "is_newcomer"), [(512, 1_500, True), (511, 1_500, False), (1, 0, True), (0, 5, False)]
)
def test_newcomers_make_room_for_one_another_beyond_their_share(newcomers: int, known: int, is_newcomer: bool) -> None:
    assert is_newcomer_evicted(newcomers, known, 2_048) is is_newcomer


class Client:
    def __init__(self, *, has_shown_key: bool = False) -> None:
        self.has_shown_key = has_shown_key
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def count_refused(metrics: ApiMetrics) -> float | None:
    return metrics.registry.get_sample_value("gpu_platform_api_connections_refused_total", {"reason": "limit"})


def test_one_more_connection_closes_the_one_that_waits_longest() -> None:
    metrics = ApiMetrics()
    connections = Connections(3, metrics)
    first, busy, second, third = (Client() for _ in range(4))
    for client in (first, busy, second):
        assert connections.add(client)
        connections.mark_waiting(client)
    connections.mark_busy(busy)
    connections.mark_waiting(first)
    assert connections.add(third)
    assert [client.is_aborted for client in (first, busy, second)] == [True, False, False]
    assert metrics.registry.get_sample_value("gpu_platform_api_connections") == 3
    assert count_refused(metrics) == 1


def test_a_flood_of_newcomers_does_not_close_connections_of_tenants() -> None:
    connections = Connections(8, ApiMetrics())
    tenants = [Client(has_shown_key=True) for _ in range(4)]
    newcomers = [Client() for _ in range(100)]
    for client in (*tenants, *newcomers):
        assert connections.add(client)
        connections.mark_waiting(client)
    assert not any(client.is_aborted for client in tenants)
    assert sum(not client.is_aborted for client in newcomers) == 4


def test_idle_connections_of_tenants_do_not_keep_newcomers_out() -> None:
    connections = Connections(4, ApiMetrics())
    tenants = [Client(has_shown_key=True) for _ in range(4)]
    for client in tenants:
        connections.add(client)
        connections.mark_waiting(client)
    assert connections.add(Client())
    assert [client.is_aborted for client in tenants] == [True, False, False, False]


def test_connections_with_a_request_under_way_are_kept_and_the_new_one_refused() -> None:
    metrics = ApiMetrics()
    connections = Connections(2, metrics)
    busy = [Client(), Client()]
    for client in busy:
        connections.add(client)
    assert not connections.add(Client())
    assert count_refused(metrics) == 1
    connections.remove(busy[0])
    assert connections.add(Client())


def test_few_connections_discard_bodies_at_the_same_time() -> None:
    connections = Connections(1_000, ApiMetrics())
    clients = [Client() for _ in range(DRAINING_LIMIT + 1)]
    assert [connections.may_drain(client) for client in clients] == [True] * DRAINING_LIMIT + [False]
    connections.remove(clients[0])
    assert connections.may_drain(clients[-1])
