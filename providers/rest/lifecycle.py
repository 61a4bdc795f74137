"""Creates, changes and deletes what a tenant's program declares, and waits for the end of each."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gpu_platform.client import Answer
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.mount_holds import RELEASE_SECONDS, will_release
from providers.rest.connection import Connection, PlatformError, RefusedError
from providers.rest.kinds import Kind

T = TypeVar("T")

STOCK_SECONDS = 20.0
"""How long a creation waits for stock, for its name and for a storage that it mounts: when a unit is replaced, the
stock that it freed is created again within seconds, and its storages are free as soon."""

LATER = ("insufficient_capacity", "storage_in_use", "operation_conflict")
"""Refusals that may be over in a moment."""

GONE_SECONDS = 120.0
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 1.0
CHANGES = 3
"""Tries to change what another writer changes at the same time."""

LEFT = "an earlier `pulumi up` of this resource was interrupted and left it"


class NotSettledError(PlatformError):
    """The object exists, and is not in the phase that the inputs ask for."""


class Lifecycle:
    """The life of a tenant's units, storages or functions."""

    def __init__(self, kind: Kind[Any], platform: Connection, stock_seconds: float = STOCK_SECONDS) -> None:
        self._kind = kind
        self._words = kind.words
        self._client = platform.client
        self._objects = kind.objects_of(platform.client)
        self._ask = platform.ask
        self._key = platform.key
        self._stock_seconds = stock_seconds

    def find(self, name: str, operation_id: str | None) -> Answer[Any] | None:
        """The object that this operation made. Without an operation, any that has the name."""
        answer = self._ask(self._objects.find, name)
        is_there = answer.document is not None
        return answer if is_there and operation_id in (None, answer.document.get("operationID")) else None

    def check_replacement(self, inputs: Json, replacing: Iterable[str]) -> None:
        """Raises PlatformError if the new one cannot be created at all, while the old one still exists. Stock cannot be
        promised."""
        known = {field: inputs[field] for field in replacing if isinstance(inputs.get(field), str)}
        if (name := known.get("name")) and self.find(name, None) is not None:
            raise PlatformError(self._taken(name))
        spec = known.get("specName")
        if spec and self._ask(self._client.specs.find, spec).document is None:
            raise PlatformError(f"specName: there is no spec {spec!r}; see `gpu-platform specs list`")

    def create(self, inputs: Json) -> Json:
        """Returns the object in the phase that the inputs ask for.

        A new one that does not get there is deleted: to Pulumi, a create that fails has made nothing, so nothing would
        delete it later. One that existed before is left alone.
        """
        operation_id = build_operation_id(self._key, inputs.get("owner"), secrets.token_hex(8))
        answer = self._accept_creation(inputs, operation_id)
        try:
            return self._settle(self._put_right(answer, inputs), inputs)
        except NotSettledError as error:
            if answer.document["operationID"] != operation_id:
                raise PlatformError(f"{error}; {LEFT}, and it is kept") from None
            raise PlatformError(f"{error}; {self._undo(inputs['name'], operation_id)}") from None

    def change(self, name: str, operation_id: str | None, inputs: Json) -> Json:
        for _ in range(CHANGES):
            answer = self.find(name, operation_id)
            if answer is None:
                raise PlatformError(
                    f"{self._called(name)} of this stack is gone; `pulumi up --refresh` {self._words.makes_anew}"
                )
            try:
                accepted = self._put_right(answer, inputs)
            except RefusedError as error:
                if error.code != "precondition_failed":
                    raise
                continue
            return self._settle(accepted, inputs)
        raise PlatformError(f"{self._called(name)} is changed by somebody else again and again; try later")

    def delete(self, name: str, operation_id: str | None) -> None:
        """Returns when the object is gone: until then its name is taken, and so are its GPUs."""
        answer = self._accept_deletion(name, operation_id)
        if answer is None:
            return

        def look() -> bool:
            nonlocal answer
            answer = self.find(name, operation_id)
            return answer is None

        if not _poll(GONE_SECONDS, look) and answer is not None:
            state = _state_of(answer.document)
            raise PlatformError(
                f"{self._called(name)} is not gone {GONE_SECONDS:g} s after its deletion: {state}; try again"
            )

    def _accept_deletion(self, name: str, operation_id: str | None) -> Answer[Any] | None:
        """Deletes the object as it was seen, and no other of its name. None when it is gone already.

        A storage waits until its unit has released it: for `RELEASE_SECONDS` if that unit is being deleted or is gone,
        for `stock_seconds` if it lives, because Pulumi may be about to delete it, too."""
        began_at = time.monotonic()
        tries = 0
        while tries < CHANGES:
            answer = self.find(name, operation_id)
            if answer is None:
                return None
            try:
                self._ask(self._objects.delete, name, etag=answer.etag)
            except RefusedError as error:
                if error.code == "storage_in_use":
                    limit_seconds = RELEASE_SECONDS if self._will_be_released(answer.document) else self._stock_seconds
                    if time.monotonic() - began_at < limit_seconds:
                        time.sleep(LONGEST_PAUSE_SECONDS)
                        continue
                if error.code == "precondition_failed":
                    tries += 1
                    continue
                if error.code != self._objects.absence:
                    raise
            return answer
        raise PlatformError(f"{self._called(name)} is changed by somebody else again and again; try later")

    def _will_be_released(self, storage: Json) -> bool:
        """Also while it is being copied, which has an end."""
        units = (self._ask(self._client.units.find, name).document for name in storage["mountedBy"])
        return all(will_release(unit, storage["name"]) for unit in units)

    def _accept_creation(self, inputs: Json, operation_id: str) -> Answer[Any]:
        """Creates an object, or finds the one that an earlier try of this resource made and could not record."""
        name, owner = inputs["name"], inputs.get("owner")
        request = self._kind.build_request(inputs, operation_id)
        deadline = time.monotonic() + self._stock_seconds
        while True:
            try:
                return self._ask(self._objects.create, request)
            except RefusedError as error:
                if error.code not in LATER:
                    raise
                there = self.find(name, None) if error.code == "operation_conflict" else None
                if there is not None and not is_made_for(there.document.get("operationID"), self._key, owner):
                    raise PlatformError(f"{self._taken(name)} {error.mark}") from None
                if there is not None and there.document["phase"] != "Terminating":
                    return self._check_adopted(there, inputs)
                if time.monotonic() > deadline:
                    raise
            time.sleep(LONGEST_PAUSE_SECONDS)

    def _undo(self, name: str, operation_id: str) -> str:
        """Deletes the object. Returns the outcome, as the end of a sentence."""
        try:
            self.delete(name, operation_id)
        except PlatformError as error:
            return f"and it could not be {self._words.undone}, which the next `pulumi up` goes on from: {error}"
        return f"so it was {self._words.undone}"

    def _put_right(self, answer: Answer[Any], inputs: Json) -> Json:
        """Changes the object to its inputs: accepted, not waited for."""
        name, view = inputs["name"], answer.document
        changed = self._kind.find_difference(self._kind.build_live(view), inputs).changed
        if any(field in changed for field in self._kind.put_fields):
            change = self._kind.build_change(inputs)
            view = self._ask(self._objects.update, name, change, etag=answer.etag).document
        if "running" in changed:
            units = self._client.units
            view = self._ask(units.start if inputs["running"] else units.stop, name).document
        return dict(view)

    def _settle(self, view: Json, inputs: Json) -> Json:
        """Returns the object once it is in its phase, judged from the spec that was accepted or from a later one."""
        name, limit_seconds = view["name"], inputs["readyWithinSeconds"]
        goal, called = self._kind.goal_of(inputs), self._called(name)
        seen = view

        def look() -> Json | None:
            nonlocal seen
            answer = self.find(name, view.get("operationID"))
            if answer is None or answer.document["phase"] == "Terminating":
                raise NotSettledError(f"{called} was deleted by somebody else before it was {goal}")
            seen = answer.document
            if seen["generation"] < view["generation"] or seen.get("observedGeneration") != seen["generation"]:
                return None
            if seen["phase"] == "Failed":
                raise NotSettledError(f"{called} is not {goal}: {_state_of(seen)}")
            return seen if seen["phase"] == goal else None

        if not limit_seconds:
            return view
        if settled := _poll(limit_seconds, look):
            return settled
        raise NotSettledError(f"{called} is not {goal} after {limit_seconds} s: {_state_of(seen)}")

    def _check_adopted(self, there: Answer[Any], inputs: Json) -> Answer[Any]:
        news = {**inputs, **dict.fromkeys(self._kind.forgotten)}
        replacing = self._kind.find_difference(self._kind.build_live(there.document), news).replacing
        if replacing:
            name = inputs["name"]
            raise PlatformError(
                f"{replacing[0]}: {self._called(name)} is there with another one, which cannot be changed; {LEFT}: "
                f"{self._words.undo} with `{self._words.removal} {name}` and run again"
            )
        return there

    def _taken(self, name: str) -> str:
        words = self._words
        return (
            f"name: there is a {words.what} {name!r} already, which this resource did not {words.make}; choose another "
            f"name, or {words.undo} first"
        )

    def _called(self, name: str) -> str:
        return f"the {self._words.what} {name!r}"


def build_operation_id(key: str, owner: str | None, chance: str) -> str:
    """Returns a new operationID, signed: with the key one can tell which resource it was made for.

    It is the one mark that REST both takes and shows, and after a crash the thing alone is left to say whose it is.
    Without the key none can be made that passes, and no other resource makes the same.
    """
    signature = hmac.new(key.encode(), f"{chance}\0{owner or ''}".encode(), hashlib.sha256).hexdigest()[:32]
    return f"pulumi-{chance}-{signature}"


def is_made_for(operation_id: str | None, key: str, owner: str | None) -> bool:
    if operation_id is None or owner is None or operation_id.count("-") != 2:
        return False
    _, chance, _ = operation_id.split("-")
    return hmac.compare_digest(build_operation_id(key, owner, chance).encode(), operation_id.encode())


def _poll(limit_seconds: float, look: Callable[[], T | None]) -> T | None:
    """Returns the first result that is not empty; None when the time is over."""
    deadline = time.monotonic() + limit_seconds
    pause = FIRST_PAUSE_SECONDS
    while not (found := look()):
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(pause, left))
        pause = min(1.5 * pause, LONGEST_PAUSE_SECONDS)
    return found


def _state_of(view: Json) -> str:
    why = ": ".join(view[key] for key in ("reason", "message") if view.get(key))
    return f"{view['phase']} ({why})" if why else str(view["phase"])
