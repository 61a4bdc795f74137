"""Reports annotations that cannot be read: a Warning Event on the object and a line in the log, once per value."""

import logging
from collections.abc import Callable
from datetime import datetime

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import BadMetadata
from gpu_platform.domain.metadata_checks import find_bad_metadata
from reconciler.guarded_writes import Recorder

log = logging.getLogger(__name__)


UNREADABLE = "UnreadableMetadata"

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
