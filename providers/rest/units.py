"""Renting, changing and giving back a tenant's units, each with its end waited for."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from urllib.parse import quote

from providers.rest.api import Answer, PlatformError, RefusedError, RestApi
from providers.rest.wishes import PUT_FIELDS, build_change, build_live, build_request, find_difference

Json = dict[str, Any]
T = TypeVar("T")

STOCK_SECONDS = 20.0
"""How long a wish waits for stock and for its name: when a unit is replaced, the stock that it freed is made anew
within seconds."""

GONE_SECONDS = 120.0
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 1.0
CHANGES = 3
"""Tries to change a unit that somebody else changes at the same time."""

ANOTHER = "which this resource did not rent; choose another name, or give that one back first"
LEFT = "an earlier `pulumi up` of this resource was interrupted and left it"


class NotSettledError(PlatformError):
    """The unit is there, but not in the phase that was wished for."""


class Units:
    def __init__(self, api: RestApi, key: str) -> None:
        self._api = api
        self._key = key

    def find(self, name: str, operation_id: str | None) -> Answer | None:
        """The unit that this operation made. Without one, whichever has the name."""
        answer = self._find(_path(name), "gpuunit_not_found")
        is_meant = answer is not None and operation_id in (None, answer.data.get("operationID"))
        return answer if is_meant else None

    def check_replacement(self, inputs: Json, replacing: Iterable[str]) -> None:
        """Whether the new unit can be had at all, while the old one is still there. Of stock, nobody can say so."""
        known = {field: inputs[field] for field in replacing if isinstance(inputs.get(field), str)}
        if (name := known.get("name")) and self.find(name, None) is not None:
            raise PlatformError(f"name: there is a unit {name!r} already, {ANOTHER}")
        spec = known.get("specName")
        if spec and self._find(f"/operator/specs/{quote(spec, safe='')}", "spec_not_found") is None:
            raise PlatformError(f"specName: there is no spec {spec!r}; see `gpu-platform specs list`")

    def rent(self, inputs: Json) -> Json:
        """The unit, in the phase that was wished for.

        A new one that does not get there is given back: to Pulumi, a create that fails has made nothing, and nobody
        else would give it back. One that was there before is left alone.
        """
        operation_id = build_operation_id(self._key, inputs.get("owner"), secrets.token_hex(8))
        answer = self._accept(inputs, operation_id)
        try:
            return self._settle(self._put_right(answer, inputs), inputs)
        except NotSettledError as error:
            if answer.data["operationID"] != operation_id:
                raise PlatformError(f"{error}; {LEFT}, and it is kept") from None
            raise PlatformError(f"{error}; {self._undo(inputs['name'], operation_id)}") from None

    def change(self, name: str, operation_id: str | None, inputs: Json) -> Json:
        for _ in range(CHANGES):
            answer = self.find(name, operation_id)
            if answer is None:
                raise PlatformError(f"the unit {name!r} of this stack is gone; `pulumi up --refresh` rents a new one")
            try:
                accepted = self._put_right(answer, inputs)
            except RefusedError as error:
                if error.code != "precondition_failed":
                    raise
                continue
            return self._settle(accepted, inputs)
        raise PlatformError(f"the unit {name!r} is changed by somebody else again and again; try later")

    def give_back(self, name: str, operation_id: str | None) -> None:
        """Returns when all of it is gone: until then its name is taken, and so are its GPUs."""
        answer = self._delete(name, operation_id)
        if answer is None:
            return

        def look() -> bool:
            nonlocal answer
            answer = self.find(name, operation_id)
            return answer is None

        if not _poll(GONE_SECONDS, look) and answer is not None:
            state = _state_of(answer.data)
            raise PlatformError(
                f"the unit {name!r} is not gone {GONE_SECONDS:g} s after its deletion: {state}; try again"
            )

    def _delete(self, name: str, operation_id: str | None) -> Answer | None:
        """That very unit, as it was seen: another one of its name is not meant. None when it is gone already."""
        for _ in range(CHANGES):
            answer = self.find(name, operation_id)
            if answer is None:
                return None
            try:
                self._api.call("DELETE", _path(name), etag=answer.etag)
            except RefusedError as error:
                if error.code == "precondition_failed":
                    continue
                if error.code != "gpuunit_not_found":
                    raise
            return answer
        raise PlatformError(f"the unit {name!r} is changed by somebody else again and again; try later")

    def _accept(self, inputs: Json, operation_id: str) -> Answer:
        """A new unit; or the one that an earlier try of this very resource made and could not write down."""
        name, owner = inputs["name"], inputs.get("owner")
        request = build_request(inputs, operation_id)
        deadline = time.monotonic() + STOCK_SECONDS
        while True:
            try:
                return self._api.call("POST", "/gpu-units", request)
            except RefusedError as error:
                if error.code not in ("insufficient_capacity", "operation_conflict"):
                    raise
                there = self.find(name, None) if error.code == "operation_conflict" else None
                if there is not None and not is_made_for(there.data.get("operationID"), self._key, owner):
                    raise PlatformError(f"name: there is a unit {name!r} already, {ANOTHER} {error.mark}") from None
                if there is not None and there.data["phase"] != "Terminating":
                    return _check_adopted(there, inputs)
                if time.monotonic() > deadline:
                    raise
            time.sleep(LONGEST_PAUSE_SECONDS)

    def _undo(self, name: str, operation_id: str) -> str:
        """What came of it, as the end of a sentence."""
        try:
            self.give_back(name, operation_id)
        except PlatformError as error:
            return f"and it could not be given back, which the next `pulumi up` goes on from: {error}"
        return "so it was given back"

    def _find(self, path: str, absence: str) -> Answer | None:
        """None for what is not there. Any other 404 is about the address, not about the thing."""
        try:
            return self._api.call("GET", path)
        except RefusedError as error:
            if error.code != absence:
                raise
            return None

    def _put_right(self, answer: Answer, inputs: Json) -> Json:
        """The unit as wished for: accepted, not waited for."""
        path = _path(inputs["name"])
        view = answer.data
        changed = find_difference(build_live(view), inputs).changed
        if any(field in changed for field in PUT_FIELDS):
            view = self._api.call("PUT", path, build_change(inputs), etag=answer.etag).data
        if "running" in changed:
            view = self._api.call("POST", f"{path}/{'start' if inputs['running'] else 'stop'}").data
        return view

    def _settle(self, view: Json, inputs: Json) -> Json:
        """The unit once it is in its phase, judged from the spec that was accepted or from a later one."""
        name, limit_seconds = view["name"], inputs["readyWithinSeconds"]
        goal = "Ready" if inputs["running"] else "Stopped"
        seen = view

        def look() -> Json | None:
            nonlocal seen
            answer = self.find(name, view.get("operationID"))
            if answer is None or answer.data["phase"] == "Terminating":
                raise NotSettledError(f"the unit {name!r} was deleted by somebody else before it was {goal}")
            seen = answer.data
            if seen["generation"] < view["generation"] or seen.get("observedGeneration") != seen["generation"]:
                return None
            if seen["phase"] == "Failed":
                raise NotSettledError(f"the unit {name!r} is not {goal}: {_state_of(seen)}")
            return seen if seen["phase"] == goal else None

        if not limit_seconds:
            return view
        if settled := _poll(limit_seconds, look):
            return settled
        raise NotSettledError(f"the unit {name!r} is not {goal} after {limit_seconds} s: {_state_of(seen)}")


def build_operation_id(key: str, owner: str | None, chance: str) -> str:
    """New for each unit, and signed: whoever has the key can tell which resource it was made for.

    It is the one mark of a unit that REST both takes and shows, and after a crash the unit alone is left to say whose
    it is. Nobody without the key can make one that passes, and no other resource makes the same.
    """
    signature = hmac.new(key.encode(), f"{chance}\0{owner or ''}".encode(), hashlib.sha256).hexdigest()[:32]
    return f"pulumi-{chance}-{signature}"


def is_made_for(operation_id: str | None, key: str, owner: str | None) -> bool:
    if operation_id is None or owner is None or operation_id.count("-") != 2:
        return False
    _, chance, _ = operation_id.split("-")
    return hmac.compare_digest(build_operation_id(key, owner, chance).encode(), operation_id.encode())


def _check_adopted(there: Answer, inputs: Json) -> Answer:
    replacing = find_difference(build_live(there.data), {**inputs, "stockName": None}).replacing
    if replacing:
        name = inputs["name"]
        raise PlatformError(
            f"{replacing[0]}: the unit {name!r} is there with another one, which cannot be changed; {LEFT}: "
            f"give it back with `gpu-platform units delete {name}` and run again"
        )
    return there


def _poll(limit_seconds: float, look: Callable[[], T | None]) -> T | None:
    """What was looked for; None when the time is over."""
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


def _path(name: str) -> str:
    return f"/gpu-units/{quote(name, safe='')}"
