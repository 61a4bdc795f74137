"""Buckets of tokens: how fast keys and tenants may ask, and how often a source may fail to log in."""

import pytest

from platform_api.auth.rate_limit import (
    Allowance,
    Buckets,
    FailedLogins,
    Rate,
    RateLimit,
    WriteLimit,
    build_headers,
    find_source,
)
from platform_api.http.middleware import add_fields

PLENTY = Rate(1_000, 2_000)


def take(limit: RateLimit, key: str, now: float, tenant: str = "acme", rate: Rate = PLENTY) -> bool:
    return limit.take(key, tenant, rate, now).is_let_in


def test_after_a_burst_a_key_goes_on_at_its_rate() -> None:
    limit = RateLimit(Rate(2, 3))
    assert [take(limit, "a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert [take(limit, "a", 0.5), take(limit, "a", 0.5)] == [True, False]
    assert [take(limit, "a", 1.0), take(limit, "a", 1.5)] == [True, True]


def test_a_pause_fills_no_more_than_the_burst() -> None:
    limit = RateLimit(Rate(100, 2))
    assert [take(limit, "a", 1_000.0) for _ in range(3)] == [True, True, False]
    assert [take(limit, "a", 9_000.0) for _ in range(3)] == [True, True, False]


def test_one_key_does_not_slow_another_one_down() -> None:
    limit = RateLimit(Rate(1, 1))
    assert [take(limit, "a", 0.0), take(limit, "a", 0.0), take(limit, "b", 0.0)] == [True, False, True]


def test_the_keys_of_a_tenant_share_its_limit() -> None:
    limit = RateLimit(PLENTY)
    small = Rate(1, 3)
    assert [take(limit, f"key-{number}", 0.0, "acme", small) for number in range(5)] == [True] * 3 + [False] * 2
    assert take(limit, "key-0", 0.0, "other", small)
    verdict = limit.take("key-0", "acme", small, 0.0)
    assert (verdict.exhausted, verdict.retry_seconds) == ("tenant", 1)


def test_a_request_that_is_refused_takes_no_token() -> None:
    """Otherwise a key that asks too fast would use up what its tenant's other keys need."""
    limit = RateLimit(Rate(1, 1))
    small = Rate(0.001, 2)
    assert [take(limit, "fast", 0.0, "acme", small) for _ in range(9)] == [True] + [False] * 8
    assert take(limit, "slow", 0.0, "acme", small)
    assert not take(limit, "third", 0.0, "acme", small)
    assert take(limit, "third", 0.0, "other", small)


def test_a_tenant_s_new_limit_holds_from_its_next_request_on() -> None:
    limit = RateLimit(PLENTY)
    assert [take(limit, "a", 0.0, "acme", Rate(1, 9)) for _ in range(5)] == [True] * 5
    assert [take(limit, "a", 0.0, "acme", Rate(1, 2)) for _ in range(3)] == [True, True, False]


def test_what_is_remembered_is_bounded() -> None:
    buckets = Buckets("key", most=100)
    for number in range(10_000):
        buckets.take(f"key-{number}", Rate(1, 5), 0.0)
    assert len(buckets) == 100
    assert buckets.look("key-9999", Rate(1, 5), 0.0).tokens == 4
    assert buckets.look("key-0", Rate(1, 5), 0.0).tokens == 5


def test_written_bytes_are_bounded_by_the_burst_and_the_rate() -> None:
    """Requests for an hour, a hundred per second, each of which stores 200 KB."""
    limit, rate, size = WriteLimit(), Rate(512 << 10, 16 << 20), 200_000
    written = 0
    for number in range(100 * 3_600):
        if limit.look("acme", rate, number / 100).tokens >= 1:
            limit.charge("acme", size)
            written += size
    most = rate.burst + rate.per_second * 3_600 + size
    assert most - 2 * size <= written <= most


def test_a_debt_is_paid_before_the_next_write_and_others_write_meanwhile() -> None:
    limit, rate = WriteLimit(), Rate(10, 100)
    assert limit.look("acme", rate, 0.0).tokens == 100
    limit.charge("acme", 150)
    refused = limit.look("acme", rate, 1.0)
    assert (refused.tokens, refused.remaining, refused.retry_seconds) == (-40, 0, 5)
    assert limit.look("acme", rate, 6.0).tokens >= 1
    assert limit.look("other", rate, 1.0).tokens == 100


def test_what_is_written_elsewhere_is_not_counted() -> None:
    limit, rate = WriteLimit(), Rate(10, 100)
    limit.charge("runtime-stock", 1_000)
    assert limit.look("runtime-stock", rate, 0.0).tokens == 100


def test_a_source_that_fails_too_often_waits_and_others_do_not() -> None:
    failed = FailedLogins(per_minute=6)
    assert [wait_of(failed, "192.0.2.1", 0.0) for _ in range(8)] == [0] * 6 + [10, 10]
    assert wait_of(failed, "192.0.2.2", 0.0) == 0
    assert [wait_of(failed, "192.0.2.1", now) for now in (9.5, 10.0, 10.0)] == [1, 0, 10]


def wait_of(failed: FailedLogins, address: str, now: float) -> int:
    verdict = failed.note(address, now)
    return 0 if verdict.is_let_in else verdict.retry_seconds


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_the_source_of_an_address(address: str, source: str) -> None:
    assert find_source(address) == source


def test_the_fields_are_those_of_the_draft() -> None:
    left = (Allowance("key", Rate(500, 1_000), 998.4), Allowance("tenant", Rate(1_000, 2_000), 0.2))
    assert build_headers(left) == {
        "RateLimit-Policy": '"key";q=1000;w=2, "tenant";q=2000;w=2',
        "RateLimit": '"key";r=998;t=1, "tenant";r=0;t=2',
    }


def test_a_unit_s_own_fields_stay() -> None:
    fields = {"RateLimit": "ours", "RateLimit-Policy": "ours"}
    assert add_fields([(b"RateLimit", b"unit")], fields) == [(b"RateLimit", b"unit"), (b"ratelimit-policy", b"ours")]
