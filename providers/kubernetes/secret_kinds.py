"""Which places of an object are secret: those that the program marked, and what a kind is made to hide."""

from gpu_platform.pulumi_protocol.properties import Json, Path
from providers.kubernetes.type_tokens import ObjectType
from providers.protocol.secret_places import NOTHING, find_moved_secrets, value_at

ALWAYS_SECRET: dict[ObjectType, tuple[Path, ...]] = {
    ObjectType("v1", "Secret"): (
        ("data",),
        ("stringData",),
        # Left by `kubectl apply`: the whole object once more, as a text.
        ("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"),
    ),
}


def find_secrets(kind: ObjectType, marked: frozenset[Path], source: Json, target: Json) -> frozenset[Path]:
    """The secret places of `target`, given those that are marked in `source`."""
    always = (path for path in ALWAYS_SECRET.get(kind, ()) if value_at(target, path) is not NOTHING)
    return find_moved_secrets(marked, source, target).union(always)
