"""Tenants: whose namespace is whose, and who may do what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_platform.domain.tenants import TENANT_NAME, Role, may, tenant_namespace, tenant_of

CAN = {
    Role.VIEWER: {Role.VIEWER},
    Role.INVOKER: {Role.INVOKER},
    Role.EDITOR: {Role.EDITOR, Role.VIEWER, Role.INVOKER},
    Role.OPERATOR: {Role.OPERATOR},
    Role.ADMIN: set(Role),
}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("needed", Role)
def test_a_role_may_what_it_implies_and_nothing_else(role: Role, needed: Role) -> None:
    assert may(frozenset({role}), frozenset({needed})) is (needed in CAN[role])


def test_one_of_several_needed_roles_is_enough() -> None:
    assert may(frozenset({Role.OPERATOR}), frozenset({Role.VIEWER, Role.OPERATOR}))
    assert not may(frozenset({Role.INVOKER}), frozenset({Role.VIEWER, Role.OPERATOR}))


def test_one_of_several_held_roles_is_enough() -> None:
    assert may(frozenset({Role.INVOKER, Role.VIEWER}), frozenset({Role.VIEWER}))


def test_without_a_role_nothing_may_be_done() -> None:
    assert not may(frozenset(), frozenset(Role))


def test_a_tenant_is_a_namespace_and_the_default_one_has_the_short_name() -> None:
    assert tenant_namespace("default") == "runtime-instance"
    assert tenant_namespace("acme") == "runtime-instance-acme"


@pytest.mark.parametrize("name", ["a", "acme", "a-1", "0", "a" * 40])
def test_a_tenants_name_fits_a_namespace(name: str) -> None:
    assert TENANT_NAME.fullmatch(name)
    assert len(tenant_namespace(name)) <= 63


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a/b", "..", "a" * 41, "a\n"])
def test_what_is_no_tenants_name(name: str) -> None:
    assert not TENANT_NAME.fullmatch(name)


TENANTS = st.just("default") | st.from_regex(TENANT_NAME, fullmatch=True)
NAMESPACES = (
    st.sampled_from(["runtime-instance", "runtime-instance-", "runtime-instance-default", "runtime-stock", ""])
    | TENANTS.map("runtime-instance-{}".format)
    | st.from_regex(r"[a-z0-9-]{0,63}", fullmatch=True).flatmap(
        lambda text: st.sampled_from([text, f"runtime-instance{text}", f"runtime-instance-{text}"])
    )
)


@given(TENANTS)
def test_a_tenants_namespace_is_that_tenants(tenant: str) -> None:
    assert tenant_of(tenant_namespace(tenant)) == tenant


@given(NAMESPACES)
def test_no_other_namespace_is_a_tenants(namespace: str) -> None:
    tenant = tenant_of(namespace)
    assert tenant is None or tenant_namespace(tenant) == namespace


def test_the_default_tenant_has_no_second_namespace() -> None:
    assert tenant_of("runtime-instance-default") is None
