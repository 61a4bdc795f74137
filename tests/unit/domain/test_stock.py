"""Which stock a unit was made from. Ranking is in the pool's tests."""

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.stock import is_from
from tests.support.builders import make_stock, make_unit


@pytest.mark.parametrize(
    ("name", "uid", "expected"),
    [
        ("pool-0", "uid-pool-0", True),
        ("pool-0", "uid of an earlier one", False),
        ("pool-1", "uid-pool-0", False),
        ("pool-0", None, True),
        (None, None, False),
    ],
)
def test_a_name_that_was_used_again_is_another_stock_unit(name: str | None, uid: str | None, expected: bool) -> None:
    said = {names.ANNOTATION_SOURCE_STOCK_NAME: name, names.ANNOTATION_SOURCE_STOCK_UID: uid}
    unit = make_unit()
    unit["metadata"]["annotations"] = {key: value for key, value in said.items() if value is not None}
    assert is_from(unit, make_stock("pool-0")) is expected
