"""Which Secrets of FRP tokens a unit lists as spare, and when each is deleted."""

from datetime import datetime, timedelta

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.ssh import (
    LONG_AGO,
    SPARE_GRACE,
    exchange_token,
    plan_spare_tokens,
    read_spare_tokens,
    with_spare_tokens,
)
from tests.support.builders import NOW, make_unit

FIRST, SECOND, THIRD = "1" * 32, "2" * 32, "3" * 32
OLD, YOUNG = NOW - SPARE_GRACE, NOW - SPARE_GRACE + timedelta(seconds=1)


def secret(digest: str) -> str:
    return names.ssh_token_secret("demo", digest)


@pytest.mark.parametrize(
    ("since", "in_spec", "used", "deleted", "listed"),
    [
        pytest.param(OLD, True, False, False, {}, id="in the spec"),
        pytest.param(None, False, False, True, {}, id="marked"),
        pytest.param(OLD, False, True, False, {FIRST: OLD}, id="used"),
        pytest.param(YOUNG, False, False, False, {FIRST: YOUNG}, id="young"),
        pytest.param(OLD, False, False, False, {FIRST: None}, id="old"),
    ],
)
def test_a_secret_is_deleted_once_its_digest_was_marked(
    since: datetime | None, in_spec: bool, used: bool, deleted: bool, listed: dict[str, datetime | None]
) -> None:
    unit = with_spare_tokens(make_unit(), {FIRST: since})
    planned = plan_spare_tokens(unit, FIRST if in_spec else SECOND, secret(FIRST if used else SECOND), NOW)
    assert planned.deleted == ((secret(FIRST),) if deleted else ())
    assert planned.listed == listed
    assert planned.wait == (timedelta(seconds=1) if since == YOUNG else None)


def test_the_token_before_becomes_spare_in_the_write_that_names_the_next_one() -> None:
    unit = with_spare_tokens(make_unit(), {SECOND: OLD, THIRD: None})
    assert read_spare_tokens(exchange_token(unit, FIRST, SECOND, NOW), NOW) == {FIRST: NOW, THIRD: None}
    assert read_spare_tokens(exchange_token(unit, FIRST, None, NOW), NOW) == {FIRST: NOW, SECOND: OLD, THIRD: None}
    assert read_spare_tokens(exchange_token(unit, None, SECOND, NOW), NOW) == {THIRD: None}
    assert exchange_token(unit, FIRST, FIRST, NOW) is unit


def test_a_unit_without_spare_tokens_has_no_annotation() -> None:
    unit = make_unit()
    assert exchange_token(unit, None, FIRST, NOW)["metadata"].get("annotations", {}) == {}
    assert plan_spare_tokens(unit, FIRST, None, NOW).listed == {}


def test_what_cannot_be_read_is_deleted_late_or_not_listed() -> None:
    future = (NOW + timedelta(days=1)).isoformat()
    text = f'{{"{FIRST}": "{future}", "{SECOND}": 7, "../{THIRD}": null}}'
    unit = make_unit()
    unit["metadata"]["annotations"] = {names.ANNOTATION_SPARE_TOKENS: text}
    assert read_spare_tokens(unit, NOW) == {FIRST: LONG_AGO, SECOND: LONG_AGO}
    unit["metadata"]["annotations"] = {names.ANNOTATION_SPARE_TOKENS: "["}
    assert read_spare_tokens(unit, NOW) == {}
