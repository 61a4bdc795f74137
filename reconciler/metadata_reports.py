"""Reports annotations that cannot be read: a Warning Event on the object and a line in the log, once per value."""

import logging
from collections.abc import Callable
from datetime import datetime

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import BadMetadata, annotations_of, bad_metadata, read_instant, read_json
from gpu_platform.domain.mount_holds import hold_of
from gpu_platform.domain.stacks import read_intent
from reconciler.guarded_writes import Recorder

log = logging.getLogger(__name__)

UNREADABLE = "UnreadableMetadata"
INSTANTS = (names.ANNOTATION_CLAIMED_AT, names.ANNOTATION_WOKEN_AT, names.ANNOTATION_MOUNTED_AT)

REMEMBERED = 10_000
"""Objects of which the last report is remembered. Beyond that all are forgotten, and reported once more."""


class MetadataReports:
    def __init__(self, events: Recorder, now: Callable[[], datetime]) -> None:
        self._events = events
        self._now = now
        self._reported: dict[str, tuple[BadMetadata, ...]] = {}
        """By uid."""

    async def report(self, item: Json) -> None:
        """Tells what is wrong with the object, unless that was told before."""
        uid, found = item["metadata"]["uid"], find_bad_metadata(item, self._now())
        if self._reported.get(uid, ()) == found:
            return
        self._remember(uid, found)
        for bad in found:
            fields = {"kind": bad.kind, "namespace": bad.namespace, "object": bad.name, "annotation": bad.key}
            log.warning("metadata.unreadable", extra=fields | {"reason": bad.reason})
            message = f"annotation {bad.key} is ignored: {bad.reason}. Remove it, or write it as the platform does."
            await self._events.record(item, "Warning", UNREADABLE, message)

    def _remember(self, uid: str, found: tuple[BadMetadata, ...]) -> None:
        self._reported.pop(uid, None)
        if len(self._reported) >= REMEMBERED:
            self._reported.clear()
        if found:
            self._reported[uid] = found


def find_bad_metadata(item: Json, now: datetime) -> tuple[BadMetadata, ...]:
    """Returns the annotations of one of our custom resources that cannot be read. Pure.

    | annotation                       | is bad when                                                             |
    | -------------------------------- | ----------------------------------------------------------------------- |
    | accepted-spec                    | it is no spec of the object's kind, or over a limit of `metadata`       |
    | claimed-at, woken-at, mounted-at | it is no instant, or in the future                                      |
    | spare-tokens                     | it is no JSON object                                                    |
    | claimed-by                       | it is not `namespace/name`                                              |
    | mounted-by                       | it is neither `unit/name` nor `storage/name`                            |
    """
    objects = (read_intent(item), read_json(item, names.ANNOTATION_SPARE_TOKENS))
    read = (*objects, *(read_instant(item, key, now) for key in INSTANTS))
    return (*(each for each in read if isinstance(each, BadMetadata)), *_find_bad_holders(item))


def _find_bad_holders(item: Json) -> list[BadMetadata]:
    annotations = annotations_of(item)
    found = []
    namespace, _, name = annotations.get(names.ANNOTATION_CLAIMED_BY, "").partition("/")
    if names.ANNOTATION_CLAIMED_BY in annotations and not (names.is_label(namespace) and names.is_label(name)):
        found.append(bad_metadata(item, names.ANNOTATION_CLAIMED_BY, "it is not `namespace/name` of a unit"))
    if names.ANNOTATION_MOUNTED_BY in annotations and hold_of(item) is None:
        found.append(bad_metadata(item, names.ANNOTATION_MOUNTED_BY, "it is neither `unit/name` nor `storage/name`"))
    return found
