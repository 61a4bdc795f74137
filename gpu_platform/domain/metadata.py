"""Labels and annotations of an object. Anyone with access to the object may edit them: what is read here is checked,
and what cannot be read counts as missing. Either map may be missing, or null."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json, JsonBoundsError, check_bounds, parse_json
from gpu_platform.domain.value import Value

CHARACTERS = 262_144
"""Of JSON in an annotation: Kubernetes keeps 256 KiB of annotations per object."""

VALUES = 50_000
"""An accepted spec of that size has about 30,000."""

LEVELS = 64
"""The deepest field of a spec is at level 8. Far below the recursion limit, which also counts the callers."""

INSTANT_FORM = "write it as 2026-01-31T12:00:00+00:00"
YEARS = range(2000, 2201)

CLOCK_SKEW = timedelta(minutes=1)
"""How far the clock of the process that wrote an instant may be ahead. A later one was not written by us: believed, it
would put off for years what waits for a time after it."""


@dataclass(frozen=True)
class BadMetadata:
    """An annotation that cannot be read: of which object, which one, and why."""

    kind: str
    namespace: str
    name: str
    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}: annotation {self.key}: {self.reason}"


def build_object(
    kind: str,
    name: str,
    namespace: str | None,
    spec: Value,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: Mapping[str, str | bool] | None = None,
) -> Json:
    """Returns an object of one of our kinds; `namespace` is None for a kind of the cluster."""
    metadata: Json = {
        "name": name,
        **({"namespace": namespace} if namespace is not None else {}),
        "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE, **(labels or {})},
        **({"annotations": dict(annotations)} if annotations else {}),
        **({"ownerReferences": [owner]} if owner is not None else {}),
    }
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec.to_json()}


def request_marks(operation_id: str, request_hash: str) -> dict[str, str]:
    """Returns the annotations that name the request an object was created for."""
    return {names.ANNOTATION_OPERATION_ID: operation_id, names.ANNOTATION_REQUEST_HASH: request_hash}


def is_being_deleted(item: Json) -> bool:
    return "deletionTimestamp" in item["metadata"]


def key_of(item: Json) -> tuple[str, str]:
    """The namespace ("" for an object of the cluster) and the name."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def labels_of(item: Json) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def annotations_of(item: Json) -> dict[str, str]:
    return item["metadata"].get("annotations") or {}


def controller_of(item: Json) -> Json | None:
    """The reference to the object of ours that made this one. Only the platform may write one; a reference to another
    group's object is its writer's own."""
    owners = item["metadata"].get("ownerReferences") or ()
    ours = (owner for owner in owners if owner.get("controller") and owner["apiVersion"].startswith(f"{names.GROUP}/"))
    return next(ours, None)


def bad_metadata(item: Json, key: str, reason: str) -> BadMetadata:
    metadata = item["metadata"]
    return BadMetadata(str(item.get("kind", "object")), metadata.get("namespace", ""), metadata["name"], key, reason)


def read_json(item: Json, annotation: str) -> Json | BadMetadata | None:
    """The JSON object in this annotation; None without the annotation."""
    text = annotations_of(item).get(annotation)
    if text is None:
        return None
    try:
        value = parse_annotation(text)
    except ValueError as error:
        return bad_metadata(item, annotation, str(error))
    return value if isinstance(value, dict) else bad_metadata(item, annotation, "it is not a JSON object")


def parse_annotation(text: str) -> Any:
    """Returns the JSON value in the text of an annotation. ValueError with the reason for one that is over a limit, or
    that is not JSON."""
    if len(text) > CHARACTERS:
        raise ValueError(f"it has {len(text)} characters, more than {CHARACTERS}")
    encoded = text.encode()
    opening = encoded.count(b"[") + encoded.count(b"{")
    try:
        # No text is deeper than it has brackets. Most have few, and need not be counted through.
        if opening > LEVELS or opening + encoded.count(b",") >= VALUES:
            check_bounds(encoded, VALUES, LEVELS)
        return parse_json(encoded)
    except JsonBoundsError:
        raise ValueError(f"it has more than {VALUES} values, or is nested deeper than {LEVELS} levels") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None


def read_instant(item: Json, annotation: str, now: datetime) -> datetime | BadMetadata | None:
    """The instant in this annotation; None without the annotation.

    | annotation                                  | →           |
    | ------------------------------------------- | ----------- |
    | none                                        | None        |
    | no instant, see `parse_instant`             | BadMetadata |
    | more than `CLOCK_SKEW` after now            | BadMetadata |
    | any other                                   | the instant |
    """
    text = annotations_of(item).get(annotation)
    if text is None:
        return None
    try:
        instant = parse_instant(text)
    except ValueError as error:
        return bad_metadata(item, annotation, str(error))
    if instant - now > CLOCK_SKEW:
        return bad_metadata(item, annotation, f"{instant.isoformat()} is in the future")
    return instant


def parse_instant(text: str) -> datetime:
    """Returns the instant. ValueError for no date and time, for one without an offset from UTC, and for a year in which
    this platform writes none: at the ends of the calendar every sum overflows."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"it is not a date and time; {INSTANT_FORM}") from None
    if instant.tzinfo is None:
        raise ValueError(f"it has no offset from UTC; {INSTANT_FORM}")
    if instant.year not in YEARS:
        raise ValueError(f"the year is not between {YEARS.start} and {YEARS.stop - 1}")
    return instant


def find_instant(item: Json, annotation: str, now: datetime) -> datetime | None:
    """The instant in this annotation; None without one, and for one that cannot be read."""
    found = read_instant(item, annotation, now)
    return found if isinstance(found, datetime) else None
