"""The functions that the SDK's own components call while a program runs."""

from typing import Any

import yaml

from gpu_platform.domain.json_text import Json

DECODE_YAML = "kubernetes:yaml:decode"


class UnknownFunctionError(Exception):
    """A function that only the official plugin has."""


class BadArgumentError(Exception):
    """An argument of which nothing can be made."""


class _ManifestLoader(yaml.SafeLoader):
    """Kubernetes reads times as texts."""


_ManifestLoader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def call_function(token: str, arguments: Json) -> Json:
    if token != DECODE_YAML:
        raise UnknownFunctionError(
            f"the stand-in kubernetes plugin has no {token}: install the official plugin "
            "(pulumi plugin install resource kubernetes) for charts and kustomizations"
        )
    return {"result": decode_yaml(str(arguments.get("text", "")), arguments.get("defaultNamespace"))}


def decode_yaml(text: str, default_namespace: Any = None) -> list[Json]:
    """The objects of a manifest, in its order; what is empty is left out."""
    try:
        documents = [each for each in yaml.load_all(text, _ManifestLoader) if each]
    except yaml.YAMLError as error:
        raise BadArgumentError(f"this is not YAML: {error}") from error
    if wrong := [each for each in documents if not isinstance(each, dict)]:
        raise BadArgumentError(f"this is not a Kubernetes object: {wrong[0]!r}")
    if isinstance(default_namespace, str) and default_namespace:
        for each in documents:
            each.setdefault("metadata", {}).setdefault("namespace", default_namespace)
    return documents
