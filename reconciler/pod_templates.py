"""Which pod template a Deployment of ours has: today's, or the one that it was made with. Pure.

Another pod template restarts the pods, and a newer version of the platform builds other ones. So a Deployment carries
a record: its template as it was made, and a hash of the tenant's inputs that it was made for. While those are the same,
the Deployment keeps its template; its next start, and the next change of the inputs, bring today's.
"""

import hashlib
import json
from dataclasses import dataclass

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, labels_of, read_json
from reconciler.child_diff import has_foreign_template_fields, own_annotations

RECORD_LIMIT = 200_000
"""In bytes. All annotations of an object together may have 256 KiB; a longer template is kept without a record, by what
its owner's status says."""


@dataclass(frozen=True)
class PodTemplate:
    body: Json
    record: str | None
    """The annotation that remembers it; None: it is too long for one."""


def choose_template(
    today: Json, inputs: Json, live: Json | None, *, replicas: int, is_made_for_inputs: bool
) -> PodTemplate:
    """Returns the template for `inputs`, which are the tenant's, without what has its default. `is_made_for_inputs`
    says of a Deployment without a record, as an earlier version made it, whether its template was made for them. Rows
    are tried from top to bottom.

    | Deployment                      | its record      | made for        | template         |
    | ------------------------------- | --------------- | --------------- | ---------------- |
    | none, or at 0 and to be started | any             | any             | today's          |
    | any other                       | ours            | the same inputs | the recorded one |
    | any other                       | ours            | other inputs    | today's          |
    | has the label of today's        | none, edited,   | any             | today's          |
    |                                 | or unreadable   |                 |                  |
    | its template is edited by hand  | none, or edited | any             | today's          |
    | any other                       | none, or edited | the same inputs | the live one     |
    | any other                       | none, or edited | other inputs    | today's          |

    An edit by hand is put back by the comparison that follows: with the recorded template, also an old one.
    """
    digest = _hash_of(inputs)
    if live is None or (replicas > 0 and live["spec"].get("replicas") == 0):
        return _recorded(today, digest)
    text = annotations_of(live).get(names.ANNOTATION_TEMPLATE)
    if text is not None and names.ANNOTATION_TEMPLATE in own_annotations(live):
        recorded = _recorded(today, digest)
        if recorded.record == text:
            return recorded
        record = read_json(live, names.ANNOTATION_TEMPLATE)
        if isinstance(record, dict) and isinstance(record.get("template"), dict) and "inputs" in record:
            return PodTemplate(record["template"], text) if record["inputs"] == digest else recorded
    made = live["spec"]["template"]
    is_today = _label_of(made) == _label_of(today) is not None
    if is_today or not is_made_for_inputs or has_foreign_template_fields(live):
        return _recorded(today, digest)
    return _recorded(made, digest)


def with_template(deployment: Json, template: PodTemplate) -> Json:
    """The Deployment with this template and the record of it."""
    metadata = deployment["metadata"]
    if template.record is not None:
        annotations = {**metadata.get("annotations", {}), names.ANNOTATION_TEMPLATE: template.record}
        metadata = {**metadata, "annotations": annotations}
    return {**deployment, "metadata": metadata, "spec": {**deployment["spec"], "template": template.body}}


def _recorded(template: Json, inputs: str) -> PodTemplate:
    text = _text_of({"inputs": inputs, "template": template})
    return PodTemplate(template, text if len(text.encode()) <= RECORD_LIMIT else None)


def _label_of(template: Json) -> str | None:
    return labels_of(template).get(names.LABEL_TEMPLATE)


def _hash_of(inputs: Json) -> str:
    return hashlib.sha256(_text_of(inputs).encode()).hexdigest()[:16]


def _text_of(value: Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
