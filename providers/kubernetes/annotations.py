"""What a program says about the handling of one resource: the official plugin's annotations that we honour."""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

SKIP_AWAIT = "pulumi.com/skipAwait"
TIMEOUT_SECONDS = "pulumi.com/timeoutSeconds"
PATCH_FORCE = "pulumi.com/patchForce"
DELETION_PROPAGATION = "pulumi.com/deletionPropagationPolicy"

PROPAGATIONS = {"foreground": "Foreground", "background": "Background", "orphan": "Orphan"}


@dataclass(frozen=True)
class Handling:
    skip_await: bool = False
    timeout_seconds: float | None = None
    patch_force: bool = False
    propagation: str = "Foreground"


def read_handling(tree: Json) -> Handling:
    """Of inputs that were checked, or of a live object; what is not understood counts as not said."""
    annotations = read_annotations(tree)
    timeout = str(annotations.get(TIMEOUT_SECONDS, ""))
    return Handling(
        skip_await=_is_true(annotations.get(SKIP_AWAIT)),
        timeout_seconds=float(timeout) if timeout.isdigit() else None,
        patch_force=_is_true(annotations.get(PATCH_FORCE)),
        propagation=PROPAGATIONS.get(str(annotations.get(DELETION_PROPAGATION, "")).lower(), "Foreground"),
    )


def read_annotations(tree: Json) -> Json:
    metadata = tree.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _is_true(text: Any) -> bool:
    return str(text).lower() == "true"
