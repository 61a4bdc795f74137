"""Pulumi's type tokens and the Kubernetes kinds that they mean: `kubernetes:apps/v1:Deployment`."""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

HELM_RELEASE = "kubernetes:helm.sh/v3:Release"


@dataclass(frozen=True)
class ObjectType:
    api_version: str
    kind: str

    @property
    def group(self) -> str:
        """Empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def is_built_in(self) -> bool:
        """Whether its schema is the API server's own, so that no custom resource definition can change it."""
        return "." not in self.group or self.group.endswith(".k8s.io")

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind}"


def parse_type_token(token: str) -> ObjectType:
    """The core group is `core/v1` in the SDK's own classes and `v1` in its CustomResource."""
    parts = token.split(":")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise ValueError(f"{token!r} is not a type of Kubernetes: it should look like kubernetes:apps/v1:Deployment")
    return ObjectType(parts[1].removeprefix("core/"), parts[2])


def type_of_object(tree: Json, token: str) -> ObjectType:
    """What the object itself says, else what its token means."""
    meant = parse_type_token(token)
    api_version, kind = tree.get("apiVersion"), tree.get("kind")
    return ObjectType(
        api_version if isinstance(api_version, str) else meant.api_version,
        kind if isinstance(kind, str) else meant.kind,
    )
