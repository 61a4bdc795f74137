"""The bare writes are of the same size and under the same rules as the platform's own, but nobody's business."""

from gpu_platform.domain.crds import build_crds
from gpu_platform.domain.units import EnvVar, Template, UnitRequest
from tests.bench.bare_writes import API_VERSION, GROUP, build_bodies, copy_crd

STOCK = {
    "metadata": {"name": "p1-0", "namespace": "runtime-stock", "uid": "uid-p1-0", "labels": {}},
    "spec": {"specName": "bench.0", "memory": "16Mi", "gpu": 0},
}
REQUEST = UnitRequest(
    name="a", spec_name="bench.0", image="example/train", template=Template(envs=(EnvVar(name="MODEL", value="small"),))
)


def test_a_copied_kind_differs_in_its_group_alone() -> None:
    for crd in build_crds():
        copied = copy_crd(crd)
        assert copied["metadata"]["name"] == f"{crd['spec']['names']['plural']}.{GROUP}"
        assert copied["spec"]["group"] == GROUP
        assert copied["spec"]["versions"] == crd["spec"]["versions"]
        assert "shortNames" in crd["spec"]["names"]
        assert "shortNames" not in copied["spec"]["names"]


def test_operation_and_unit_carry_the_whole_request() -> None:
    operation, unit = build_bodies(REQUEST, STOCK)
    assert operation["spec"]["request"] == REQUEST.to_json()
    assert unit["spec"]["template"]["envs"] == [{"name": "MODEL", "value": "small"}]
    assert unit["spec"]["memory"] == "16Mi"


def test_nothing_of_it_is_the_platforms() -> None:
    assert {body["apiVersion"] for body in build_bodies(REQUEST, STOCK)} == {API_VERSION}
