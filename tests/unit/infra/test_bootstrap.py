"""A destroy of a stack with protected resources is refused before Pulumi begins it."""

import pytest

from infra.bootstrap import ProtectedError, refuse_protected

URN = "urn:pulumi:prod::gpu-platform::infra:Namespaces$kubernetes:core/v1:Namespace::"


def test_a_stack_that_protects_something_is_not_destroyed() -> None:
    names = ("runtime-system", "runtime-stock", "runtime-instance", "acme")
    protected = [{"urn": f"{URN}{name}", "protect": True} for name in names]
    stack = {"urn": "urn:pulumi:prod::gpu-platform::pulumi:pulumi:Stack::gpu-platform-prod"}

    with pytest.raises(ProtectedError) as refused:
        refuse_protected("prod", {"resources": [stack, *protected]})

    assert str(refused.value) == (
        "the stack prod is not destroyed, and nothing was changed: 4 of its resources are protected (Namespace "
        "runtime-system, Namespace runtime-stock, Namespace runtime-instance, …). To delete the platform with "
        "everything in it, set gpu-platform:protect to false in Pulumi.prod.yaml, run `gpu-platform bootstrap up "
        "--stack prod`, then `destroy` again"
    )


@pytest.mark.parametrize("state", [{}, {"resources": None}, {"resources": [{"urn": f"{URN}free", "protect": False}]}])
def test_any_other_may_be_destroyed(state: dict[str, object]) -> None:
    refuse_protected("dev", state)
