"""Takes secrets out of properties, before anything else looks at them: what is masked here can be shown nowhere."""

from typing import Any

Json = dict[str, Any]

SECRET = "[secret]"  # noqa: S105 - Pulumi's own word for a value that it does not show
SIGNATURE = "4dabf18193072939515e22adb298388d"
"""The key by which Pulumi marks an object that stands for something else: a secret, mostly. All are masked, because an
output with a secret inside has the same key."""

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""Pulumi's sign for a value that is known only after the update."""

SECRET_KINDS = frozenset({"Secret", "SecretPatch", "SecretList"})
SECRET_FIELDS = frozenset({"data", "stringData"})
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Left by `kubectl apply`: the whole object once more, as a text."""


def mask_properties(properties: Json, *, of_secret: bool) -> Json:
    """`of_secret`: of a Kubernetes Secret, whose content is secret although nobody marked it. The keys stay."""
    masked = {key: _mask_marked(value) for key, value in properties.items()}
    return _mask_fields(masked) if of_secret else masked


def is_secret(value: Any) -> bool:
    return isinstance(value, str) and value == SECRET


def is_unknown(value: Any) -> bool:
    return isinstance(value, str) and value == UNKNOWN


def _mask_marked(value: Any) -> Any:
    if isinstance(value, dict):
        return SECRET if SIGNATURE in value else {key: _mask_marked(inner) for key, inner in value.items()}
    return [_mask_marked(inner) for inner in value] if isinstance(value, list) else value


def _mask_fields(fields: Json) -> Json:
    return {key: _mask_field(key, value) for key, value in fields.items()}


def _mask_field(key: str, value: Any) -> Any:
    """At any depth: a SecretList has Secrets inside."""
    if key == LAST_APPLIED:
        return SECRET
    if key in SECRET_FIELDS:
        return dict.fromkeys(value, SECRET) if isinstance(value, dict) else SECRET
    if isinstance(value, dict):
        return _mask_fields(value)
    return [_mask_field("", inner) for inner in value] if isinstance(value, list) else value
