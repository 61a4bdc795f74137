"""An object belongs to the resource whose manager applied it."""

from gpu_platform.devcluster.pulumi_kubernetes.state import APPLIED_BY, build_body, field_manager_name, is_managed_by


def test_every_resource_of_a_program_has_a_field_manager_of_its_own() -> None:
    assert field_manager_name("urn:a") == field_manager_name("urn:a") != field_manager_name("urn:b")


def test_an_object_is_ours_when_our_manager_applied_it() -> None:
    live = {"metadata": {"managedFields": [{"manager": "m", "operation": "Apply"}]}}

    assert is_managed_by(live, "m")
    assert not is_managed_by(live, "n")
    assert not is_managed_by({"metadata": {"managedFields": [{"manager": "m", "operation": "Update"}]}}, "m")


def test_what_is_sent_has_a_field_to_own_even_if_the_inputs_have_none() -> None:
    inputs = {"kind": "Namespace", "metadata": {"name": "a", "namespace": "ignored"}}

    assert build_body(inputs, None, "m") == {
        "kind": "Namespace",
        "metadata": {"name": "a", "annotations": {APPLIED_BY: "m"}},
    }


def test_annotations_of_the_inputs_are_sent_too() -> None:
    body = build_body({"metadata": {"name": "a", "annotations": {"x": "y"}}}, "shop", "m")

    assert body["metadata"] == {"name": "a", "namespace": "shop", "annotations": {"x": "y", APPLIED_BY: "m"}}
