"""A container's own variables, as its spec asks for them. Pure; paths are not rewritten here."""

from collections.abc import Mapping

from gpu_platform.devcluster.hostnode.launch.errors import CannotStartError
from gpu_platform.devcluster.hostnode.launch.expansion import expand
from gpu_platform.devcluster.hostnode.launch.fields import NodeFacts, read_field, read_resource
from gpu_platform.devcluster.hostnode.sources import Reference, Sources, config_map, content_of, secret
from gpu_platform.kube.client import Json


def build_environment(pod: Json, container: Json, sources: Sources, facts: NodeFacts) -> dict[str, str]:
    """`envFrom` first, then `env` in order; a later variable wins and may refer to the earlier ones."""
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        variables |= _bulk_variables(source, sources)
    for variable in container.get("env") or []:
        if "valueFrom" not in variable:
            variables[variable["name"]] = expand(variable.get("value") or "", variables)
        elif (value := _value_from(variable["valueFrom"], pod, container, sources, facts)) is not None:
            variables[variable["name"]] = value
    return variables


def _bulk_variables(source: Json, sources: Sources) -> Mapping[str, str]:
    prefix = source.get("prefix") or ""
    reference, selector = _bulk_reference(source)
    content = content_of(reference, sources, optional=bool(selector.get("optional"))) or {}
    # A key with "=" cannot be a variable's name; kubelet leaves such keys out as well.
    return {f"{prefix}{key}": _text(value) for key, value in content.items() if "=" not in key}


def _bulk_reference(source: Json) -> tuple[Reference, Json]:
    if selector := source.get("configMapRef"):
        return config_map(selector["name"]), selector
    if selector := source.get("secretRef"):
        return secret(selector["name"]), selector
    raise CannotStartError("an envFrom entry names neither a configMapRef nor a secretRef")


def _value_from(origin: Json, pod: Json, container: Json, sources: Sources, facts: NodeFacts) -> str | None:
    if reference := origin.get("fieldRef"):
        return read_field(pod, reference["fieldPath"], facts)
    if reference := origin.get("resourceFieldRef"):
        return read_resource(pod, container, reference, facts)
    if selector := origin.get("configMapKeyRef"):
        return _key_value(config_map(selector["name"]), selector, sources)
    if selector := origin.get("secretKeyRef"):
        return _key_value(secret(selector["name"]), selector, sources)
    raise CannotStartError(f"the host node does not know the variable source {', '.join(origin)}")


def _key_value(reference: Reference, selector: Json, sources: Sources) -> str | None:
    optional = bool(selector.get("optional"))
    content = content_of(reference, sources, optional=optional)
    if content is not None and selector["key"] in content:
        return _text(content[selector["key"]])
    if optional:
        return None
    raise CannotStartError(f"couldn't find key {selector['key']} in {reference.kind} {reference.name}")


def _text(value: bytes) -> str:
    return value.decode(errors="surrogateescape")
