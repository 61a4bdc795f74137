"""Names: those that a program leaves out, and the ids under which Pulumi remembers objects."""

import hashlib
from dataclasses import dataclass
from typing import Any

from providers.kubernetes.annotations import read_annotations

Json = dict[str, Any]

DEFAULT_NAMESPACE = "default"
AUTONAMED = "pulumi.com/autonamed"
"""An annotation: the name is ours, so that a replacement may have another one and stand beside the old object."""

SUFFIX_LENGTH = 8


@dataclass(frozen=True)
class Naming:
    """What the engine says for a resource without a name."""

    resource_name: str
    seed: bytes
    proposed: str = ""
    allowed: bool = True


def build_name(naming: Naming) -> str:
    """The same for the preview and for the update that follows it, because both get the same seed."""
    return naming.proposed or f"{naming.resource_name}-{hashlib.sha256(naming.seed).hexdigest()[:SUFFIX_LENGTH]}"


def is_autonamed(inputs: Json) -> bool:
    return str(read_annotations(inputs).get(AUTONAMED, "")).lower() == "true"


def is_possible_name(name: str) -> bool:
    """Whether it may stand in a path; which characters a kind allows beyond that, the API server knows."""
    return bool(name) and name not in (".", "..") and "/" not in name and "%" not in name


def build_object_id(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def parse_object_id(text: str, *, namespaced: bool, default_namespace: str) -> tuple[str | None, str]:
    """Namespace and name of `namespace/name`, or of `name` alone."""
    namespace, separator, name = text.rpartition("/")
    if not is_possible_name(name) or (separator and not is_possible_name(namespace)):
        raise ValueError(f"{text!r} is no id: write namespace/name, or name alone")
    return (namespace or default_namespace, name) if namespaced else (None, name)
