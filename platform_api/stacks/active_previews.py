"""Previews that wait or run: those of every API process by the cache, and those of this process before the cache has
them."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import OperationKind
from gpu_platform.kube.informer import ObjectCache
from gpu_platform.store.ledger import is_final

Place = tuple[str, str]
"""Namespace and name."""

BY_NAMESPACE = "active-by-namespace"
BY_UNIT = "active-by-unit"

UNSEEN = timedelta(seconds=60)
"""How long a preview counts that the cache has not shown. One that is this late was missed: recorded and deleted while
the watch was interrupted."""


@dataclass(frozen=True)
class _Reservation:
    uid: str
    """Of the unit."""

    until: datetime


class ActivePreviews:
    def __init__(self, cache: ObjectCache, now: Callable[[], datetime]) -> None:
        self._cache = cache
        self._now = now
        self._reserved: dict[Place, _Reservation] = {}
        cache.on_change(self._take_change)

    @property
    def is_known(self) -> bool:
        return self._cache.is_synced

    def names_of_unit(self, namespace: str, uid: str) -> list[str]:
        """Returns the names of the Operations, oldest first where the cache has them."""
        shown = self._cache.by_index(BY_UNIT, unit_key(namespace, uid))
        ordered = sorted(shown, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))
        reserved = (name for (place, name), each in self._list_reserved() if place == namespace and each.uid == uid)
        return list(dict.fromkeys([*(each["metadata"]["name"] for each in ordered), *reserved]))

    def count(self, namespace: str, ended: Collection[str]) -> int:
        """Returns how many a tenant has, without those that have ended though the cache does not show it yet."""
        shown = (each["metadata"]["name"] for each in self._cache.by_index(BY_NAMESPACE, namespace))
        reserved = (name for (place, name), _ in self._list_reserved() if place == namespace)
        return len({*shown, *reserved}.difference(ended))

    def reserve(self, operation: Json) -> None:
        """Counts a preview that is about to be recorded, until the cache shows it."""
        uid = operation["spec"]["target"]["uid"]
        self._reserved[_place_of(operation)] = _Reservation(uid, self._now() + UNSEEN)

    def release(self, operation: Json) -> None:
        """Ends the reservation of a preview that was not recorded."""
        self._reserved.pop(_place_of(operation), None)

    def _list_reserved(self) -> list[tuple[Place, _Reservation]]:
        now = self._now()
        self._reserved = {place: each for place, each in self._reserved.items() if each.until > now}
        return list(self._reserved.items())

    def _take_change(self, old: Json | None, new: Json | None) -> None:
        for each in (old, new):
            if each is not None:
                self.release(each)


def keep_preview(operation: Json) -> Json:
    """Returns a preview as it is, and of any other operation its identity: a tenant has thousands of them."""
    if operation["spec"].get("kind") == OperationKind.PREVIEW_UNIT:
        return operation
    metadata = operation["metadata"]
    return {"metadata": {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")}}


def index_by_namespace(operation: Json) -> Iterable[str]:
    if _is_active(operation):
        yield operation["metadata"]["namespace"]


def index_by_unit(operation: Json) -> Iterable[str]:
    if _is_active(operation):
        yield unit_key(operation["metadata"]["namespace"], operation["spec"]["target"].get("uid") or "")


def unit_key(namespace: str, uid: str) -> str:
    """The namespace too: what an Operation of another tenant names as its target does not matter here."""
    return f"{namespace}/{uid}"


def _is_active(operation: Json) -> bool:
    return "spec" in operation and not is_final(operation)


def _place_of(operation: Json) -> Place:
    return operation["metadata"]["namespace"], operation["metadata"]["name"]
