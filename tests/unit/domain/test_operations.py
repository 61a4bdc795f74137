"""Names of operations: the API server itself keeps a second one out, so the same wish must have the same name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_platform.domain.operations import delete_operation_name, operation_name, start_operation_name
from gpu_platform.kube.paths import OPERATIONS

UID = "0b0b7d1c-2d1e-4c53-9c8e-0d4a5f4b1c11"


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_operation_id_makes_a_name_that_kubernetes_takes(tenant: str, operation_id: str) -> None:
    name = operation_name(tenant, operation_id)
    assert len(name) <= 63
    assert OPERATIONS.item(name, "any").endswith(name)


def test_the_same_wish_has_the_same_name() -> None:
    assert operation_name("acme", "op-1") == operation_name("acme", "op-1")
    assert delete_operation_name("acme", UID) == delete_operation_name("acme", UID)
    assert start_operation_name("acme", UID, 3) == start_operation_name("acme", UID, 3)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (operation_name("acme", "op-1"), operation_name("acme", "op-2")),
        (operation_name("acme", "op-1"), operation_name("globex", "op-1")),
        (operation_name("a", "bc"), operation_name("ab", "c")),
        (operation_name("acme", UID), delete_operation_name("acme", UID)),
        (start_operation_name("acme", UID, 3), start_operation_name("acme", UID, 5)),
        (start_operation_name("acme", f"{UID}1", 2), start_operation_name("acme", UID, 12)),
        (delete_operation_name("acme", UID), start_operation_name("acme", UID, 1)),
    ],
    ids=["operation", "tenant", "where tenant ends", "creating and deleting", "stop", "uid ends", "delete and start"],
)
def test_another_wish_has_another_name(one: str, other: str) -> None:
    assert one != other
