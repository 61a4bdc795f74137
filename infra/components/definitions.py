"""The kinds of the platform and the priorities of its pods: what a cluster needs before any of its objects."""

from dataclasses import dataclass
from pathlib import Path

import pulumi
import yaml

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from infra.component import Component, build_metadata, name_of

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


class CustomResourceDefinitions(Component):
    def __init__(self, name: str, args: DefinitionsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("CustomResourceDefinitions", name, opts)
        bodies = [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]
        self.names = [name_of(self.declare(body, protect=args.protect)) for body in bodies]
        self.register_outputs({"names": self.names})


class PriorityClasses(Component):
    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("PriorityClasses", name, opts)
        self.names = [name_of(self.declare(body)) for body in build_priority_classes()]
        self.register_outputs({"names": self.names})
