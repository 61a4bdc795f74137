"""What the cluster has to know before anything of ours can be written: our kinds, and the priorities of pods."""

from dataclasses import dataclass
from pathlib import Path

import pulumi
import yaml

from infra.declaring import declare, name_of
from infra.objects.namespaces import build_priority_classes

CRDS = Path(__file__).resolve().parents[1] / "crds"


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
