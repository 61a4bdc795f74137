"""Whom network policies speak of."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def build_peer(namespace: str, labels: Mapping[str, str]) -> Json:
    """The pods with these labels in the namespace; without labels, all of them."""
    peer: Json = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    return {**peer, "podSelector": {"matchLabels": dict(labels)}} if labels else peer
