"""Limits of tenants: what the stack's configuration sets wins, field by field."""

import pytest
from pydantic import ValidationError

from gpu_platform.domain.tenant_limits import TenantLimits, read_limit_table, write_limit_table

DEFAULTS = TenantLimits(units=10, functions=5)


def test_the_narrowest_entry_that_sets_a_limit_wins() -> None:
    table, problems = read_limit_table(DEFAULTS, {"_all": '{"units": 20, "previews": 3}', "acme": '{"units": 30}'})
    assert problems == ()
    assert (table.of("acme").units, table.of("acme").previews, table.of("acme").functions) == (30, 3, 5)
    assert (table.of("other").units, table.of("other").previews, table.of("other").functions) == (20, 3, 5)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "null", '{"units": -1}', '{"unit": 3}', "[" * 10_000])
def test_an_entry_that_cannot_be_read_changes_nothing(text: str) -> None:
    table, problems = read_limit_table(DEFAULTS, {"_all": text, "acme": text, "good": '{"units": 1}'})
    assert problems == ("_all", "acme")
    assert (table.of("acme"), table.of("good").units) == (DEFAULTS, 1)


def test_only_limits_that_are_set_are_written_and_they_are_read_back() -> None:
    data = write_limit_table(TenantLimits(), {"acme": TenantLimits(units=0), "other": TenantLimits()})
    assert data == {"acme": '{"units": 0}'}
    assert read_limit_table(DEFAULTS, data)[0].of("acme") == DEFAULTS.override(TenantLimits(units=0))


def test_a_misspelt_limit_is_refused() -> None:
    with pytest.raises(ValidationError, match="unitz"):
        TenantLimits.model_validate({"unitz": 1})
