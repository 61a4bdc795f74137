"""The index of stacks: one Lease per stack, which says what is recorded, and who works on it now.

A Lease stands before its stack is made and goes after its stack is removed: whoever has no Lease has nothing of ours.
"""

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.metadata import annotations_of, labels_of, parse_annotation, parse_instant
from gpu_platform.domain.stacks import Intent, StackAddress, StackKind, accepted_hash, check_accepted_spec

Json = dict[str, Any]

LABEL_KIND = f"{names.GROUP}/stack-kind"
LABEL_TENANT = f"{names.GROUP}/tenant"
LABEL_OBJECT = f"{names.GROUP}/stack-object"

ANNOTATION_UID = f"{names.GROUP}/stack-uid"
ANNOTATION_RECORDED_AT = f"{names.GROUP}/recorded-at"
ANNOTATION_OUTPUTS = f"{names.GROUP}/stack-outputs"
ANNOTATION_RESOURCES = f"{names.GROUP}/stack-resources"
ANNOTATION_ERROR = f"{names.GROUP}/stack-error"
ANNOTATION_FAILURES = f"{names.GROUP}/stack-failures"

COUNT_DIGITS = 9

ERROR_LIMIT = 1_000
"""Characters of an error that are kept: enough to say what is wrong, in an object that is read often."""


@dataclass(frozen=True)
class Recorded:
    """What the stack says, once Pulumi has ended well."""

    accepted_spec: str
    """The annotation's text, as it was recorded: with it the object can be made again."""

    operation_id: str
    request_hash: str
    at: datetime
    resources: int = 0
    outputs: Json = field(default_factory=dict)

    @property
    def accepted_hash(self) -> str:
        return accepted_hash(self.accepted_spec)


@dataclass(frozen=True)
class StackRecord:
    """A Lease of the index, read."""

    address: StackAddress
    uid: str
    """Of the object that the stack is about: a later one of its name has another."""

    recorded: Recorded | None = None
    """None: nothing yet, though Pulumi may have begun."""

    error: str | None = None
    failures: int = 0
    """In a row."""

    @property
    def intent(self) -> Intent | None:
        """What was recorded, to make its object again."""
        if self.recorded is None:
            return None
        return Intent(
            address=self.address,
            uid=self.uid,
            accepted_spec=self.recorded.accepted_spec,
            operation_id=self.recorded.operation_id,
            request_hash=self.recorded.request_hash,
        )


def is_recorded(record: StackRecord | None, intent: Intent) -> bool:
    """Whether the stack says what was accepted for this very object."""
    recorded = record.recorded if record is not None and record.uid == intent.uid else None
    return recorded is not None and recorded.accepted_hash == intent.accepted_hash


def record_labels(address: StackAddress) -> dict[str, str]:
    return {
        names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE,
        LABEL_KIND: address.kind.value,
        LABEL_TENANT: address.tenant,
        LABEL_OBJECT: address.name,
    }


def record_annotations(record: StackRecord) -> dict[str, str]:
    """All of them: what is not said any more is gone from the Lease too."""
    annotations = {ANNOTATION_UID: record.uid}
    if record.recorded is not None:
        annotations |= {
            names.ANNOTATION_ACCEPTED_SPEC: record.recorded.accepted_spec,
            names.ANNOTATION_OPERATION_ID: record.recorded.operation_id,
            names.ANNOTATION_REQUEST_HASH: record.recorded.request_hash,
            ANNOTATION_RECORDED_AT: record.recorded.at.isoformat(),
            ANNOTATION_RESOURCES: str(record.recorded.resources),
            ANNOTATION_OUTPUTS: json.dumps(record.recorded.outputs, sort_keys=True),
        }
    if record.error is not None:
        annotations |= {ANNOTATION_ERROR: record.error[:ERROR_LIMIT], ANNOTATION_FAILURES: str(record.failures)}
    return annotations


def parse_record(lease: Json | None) -> StackRecord | None:
    """None for no Lease, for one that is not of the index, and for one that nobody can read any more."""
    if lease is None:
        return None
    labels, annotations = labels_of(lease), annotations_of(lease)
    try:
        address = StackAddress(StackKind(labels[LABEL_KIND]), labels[LABEL_TENANT], labels[LABEL_OBJECT])
        return StackRecord(
            address=address,
            uid=annotations[ANNOTATION_UID],
            recorded=_parse_recorded(address.kind, annotations),
            error=annotations.get(ANNOTATION_ERROR),
            failures=_parse_count(annotations, ANNOTATION_FAILURES),
        )
    except (KeyError, ValueError):
        return None


def _parse_recorded(kind: StackKind, annotations: dict[str, str]) -> Recorded | None:
    if ANNOTATION_RECORDED_AT not in annotations:
        return None
    return Recorded(
        accepted_spec=check_accepted_spec(kind, annotations[names.ANNOTATION_ACCEPTED_SPEC]),
        operation_id=annotations.get(names.ANNOTATION_OPERATION_ID, ""),
        request_hash=annotations.get(names.ANNOTATION_REQUEST_HASH, ""),
        at=parse_instant(annotations[ANNOTATION_RECORDED_AT]),
        resources=_parse_count(annotations, ANNOTATION_RESOURCES),
        outputs=_parse_outputs(annotations.get(ANNOTATION_OUTPUTS, "{}")),
    )


def _parse_count(annotations: dict[str, str], key: str) -> int:
    text = annotations.get(key, "0")
    if not text.isascii() or not text.isdecimal() or len(text) > COUNT_DIGITS:
        raise ValueError(f"{key} is not a count")
    return int(text)


def _parse_outputs(text: str) -> Json:
    outputs = parse_annotation(text)
    if not isinstance(outputs, dict):
        raise ValueError(f"{ANNOTATION_OUTPUTS} is not a JSON object")
    return outputs
