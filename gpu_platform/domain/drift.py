"""Drift: the fields of an object's spec that are not as the API accepted them. Who corrects it is in `stack_plan`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stacks import SPECS, Intent
from gpu_platform.domain.value import Value


@dataclass(frozen=True)
class Difference:
    """One field that is not as it was accepted. None: it is not there."""

    field: str
    accepted: Any
    found: Any


def find_differences(item: Json, intent: Intent) -> tuple[Difference, ...]:
    """What the spec says other than was accepted; a default that is said and one that is not are the same."""
    model = SPECS[intent.address.kind]
    return tuple(_compare("spec", _normalised(model, intent.spec), _normalised(model, item["spec"])))


def _normalised(model: type[Value], spec: Json) -> Json:
    """As it is, when a newer version wrote it: it is compared all the same."""
    parsed = model.parse(spec)
    return spec if parsed is None else parsed.to_json()


def _compare(field: str, accepted: Any, found: Any) -> Iterator[Difference]:
    if isinstance(accepted, dict) and isinstance(found, dict):
        for key in sorted(accepted.keys() | found.keys()):
            yield from _compare(f"{field}.{key}", accepted.get(key), found.get(key))
    elif accepted != found:
        yield Difference(field, accepted, found)
