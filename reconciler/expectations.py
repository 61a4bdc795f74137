"""Not acting on a view that is older than our own last write.

Between a write and its echo on the watch, the cache still shows the object as it was: absent, old, or not yet
gone. A pass in that moment would plan the same write again, and the API server would refuse it. The echo brings the
next pass anyway.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import key_of

Place = tuple[str, str, str]
"""Kind, namespace and name."""

PATIENCE = timedelta(seconds=5)
"""How long an echo is waited for. One that is this late was missed: made and deleted while a watch was interrupted."""

_Version = tuple[str, str] | None


def place_of(kind: str, item: Json) -> Place:
    return kind, *key_of(item)


class OwnWrites:
    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._overwritten: dict[Place, tuple[_Version, datetime]] = {}

    def remember(self, place: Place, before: Json | None) -> None:
        """What is there was written, as seen in this version; None: nothing was seen there."""
        self._overwritten.pop(place, None)
        self._overwritten[place] = _version_of(before), self._now() + PATIENCE
        self._forget_old()

    def are_outdated(self, seen: Iterable[tuple[Place, Json | None]]) -> bool:
        """Whether any of these is still shown as it was before our write."""
        # Every one is looked at, so that those whose echo came are forgotten.
        outdated = [place for place, item in seen if self._is_outdated(place, item)]
        return bool(outdated)

    def _is_outdated(self, place: Place, seen: Json | None) -> bool:
        if place not in self._overwritten:
            return False
        before, until = self._overwritten[place]
        if before == _version_of(seen) and self._now() < until:
            return True
        del self._overwritten[place]
        return False

    def _forget_old(self) -> None:
        """Of objects that nobody looks at any more. The oldest come first."""
        now = self._now()
        for place, (_, until) in list(self._overwritten.items()):
            if until > now:
                return
            del self._overwritten[place]


def _version_of(item: Json | None) -> _Version:
    return (item["metadata"]["uid"], item["metadata"]["resourceVersion"]) if item else None
