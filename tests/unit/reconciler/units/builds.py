"""A unit that is built, for tests of what it is built of."""

from typing import Any

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.units import GPUUnitSpec
from reconciler.units.resources import UnitBuild, build_deployment

BLOCKED = ("10.0.0.0/8", "192.168.0.0/16")


def make_build(namespace: str = "runtime-instance", catalogue: Json | None = None, **spec: Any) -> UnitBuild:
    return UnitBuild(
        namespace=namespace,
        name="demo",
        uid="uid-demo",
        spec=GPUUnitSpec.model_validate({"specName": "g1.1", "image": "example/train", **spec}),
        catalogue=GPUSpecSpec.model_validate({"memory": "16Gi", "gpu": 1, "cpu": "4", **(catalogue or {})}),
        restricted=False,
        replicas=1,
        preferred_node=None,
        placeholder_image="busybox:1.36",
        blocked_egress=BLOCKED,
    )


def pod_of(build: UnitBuild) -> Json:
    pod: Json = build_deployment(build)["spec"]["template"]["spec"]
    return pod
