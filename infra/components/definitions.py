from dataclasses import dataclass
from pathlib import Path

import pulumi
import yaml

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from infra.objects import build_metadata, declare, name_of

CRDS = Path(__file__).resolve().parents[1] / "crds"


def build_priority_classes() -> tuple[Json, Json]:
    """Stock never pushes anybody out, and a unit pushes out stock that slipped into its place."""
    stock = {"value": 1_000, "preemptionPolicy": "Never", "description": "Warm stock that waits for a tenant."}
    unit = {"value": 10_000, "preemptionPolicy": "PreemptLowerPriority", "description": "A tenant's unit."}
    return _priority_class(names.STOCK_PRIORITY_CLASS, stock), _priority_class(names.UNIT_PRIORITY_CLASS, unit)


def _priority_class(name: str, fields: Json) -> Json:
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": build_metadata(name)}
    return {**head, **fields}


@dataclass(frozen=True)
class DefinitionsArgs:
    protect: bool
    """A kind that is deleted takes all of its objects with it."""


class CustomResourceDefinitions(pulumi.ComponentResource):
    def __init__(self, name: str, args: DefinitionsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:CustomResourceDefinitions", name, {}, opts)
        declared = [
            declare(yaml.safe_load(path.read_text()), self, protect=args.protect)
            for path in sorted(CRDS.glob("*.yaml"))
        ]
        self.register_outputs({"names": [name_of(each) for each in declared]})


class PriorityClasses(pulumi.ComponentResource):
    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:PriorityClasses", name, {}, opts)
        declared = [declare(body, self) for body in build_priority_classes()]
        self.register_outputs({"names": [name_of(each) for each in declared]})
