"""What to do with an object that is there already: take it over, change it, or leave it and say why. Pure."""

from dataclasses import dataclass

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of
from providers.cluster.objects import Wanted, accepted_hash_of, accepted_spec_of, live_spec_of


@dataclass(frozen=True)
class Make:
    """It is not there: create it."""


@dataclass(frozen=True)
class Keep:
    """It is as it should be: nothing is written."""

    live: Json


@dataclass(frozen=True)
class Change:
    live: Json


@dataclass(frozen=True)
class Refuse:
    reason: str


def plan_create(wanted: Wanted, live: Json | None) -> Make | Keep | Refuse:
    """Rows from top to bottom.

    | object        | its owner-stack | accepted for it        | action              |
    | ------------- | --------------- | ---------------------- | ------------------- |
    | absent        | –               | –                      | make                |
    | being deleted | any             | any                    | refuse              |
    | present       | another         | any                    | refuse              |
    | present       | as wanted       | nothing                | refuse              |
    | present       | as wanted       | something else         | refuse              |
    | present       | as wanted       | what is wanted         | keep: it is adopted |
    """
    if live is None:
        return Make()
    if "deletionTimestamp" in live["metadata"]:
        return Refuse(f"{wanted.label} is being deleted; try again when it is gone")
    if owner_of_live(live) != wanted.owner:
        return Refuse(f"{wanted.label} exists already, {_belonging(live)}; {_way_out(live)}")
    accepted = accepted_spec_of(wanted.kind, live)
    if accepted is None:
        return Refuse(
            f"{wanted.label} exists already, and was made by hand: nobody accepted it. Delete it, choose another name, "
            "or take it over with `pulumi import`"
        )
    if accepted != wanted.spec:
        return Refuse(
            f"{wanted.label} exists already, with another accepted spec; take it over with `pulumi import`, or choose "
            "another name"
        )
    return Keep(live)


def plan_update(wanted: Wanted, live: Json | None, recorded_uid: str, recorded_hash: str) -> Keep | Change | Refuse:
    """Compare-and-swap on what was accepted: a change that somebody else was promised is never taken back. Rows from top
    to bottom.

    | object                    | accepted for it                    | its spec        | action               |
    | ------------------------- | ---------------------------------- | --------------- | -------------------- |
    | absent                    | –                                  | –               | refuse               |
    | another stack's           | any                                | any             | refuse               |
    | present                   | what is wanted                     | the same        | keep                 |
    | being deleted             | any                                | any             | refuse               |
    | present                   | what is wanted                     | something else  | change: put it back  |
    | that very one, and owned  | what the state has recorded        | any             | change               |
    | any other                 | any other                          | any             | refuse               |

    The platform's own stacks own nothing: they record what the API accepted, and never decide.
    """
    if live is None:
        return Refuse(f"{wanted.label} is gone; run `pulumi up --refresh` to make it again")
    if owner_of_live(live) not in (None, wanted.owner):
        return Refuse(f"{wanted.label} is not this stack's to change: it belongs to {owner_of_live(live)}")
    is_accepted = accepted_spec_of(wanted.kind, live) == wanted.spec
    if is_accepted and live_spec_of(wanted.kind, live) == wanted.spec:
        return Keep(live)
    if "deletionTimestamp" in live["metadata"]:
        return Refuse(f"{wanted.label} is being deleted; try again when it is gone")
    is_recorded = (
        wanted.owner is not None
        and live["metadata"]["uid"] == recorded_uid
        and accepted_hash_of(wanted.kind, live) == recorded_hash
    )
    if is_accepted or is_recorded:
        return Change(live)
    return Refuse(
        f"{wanted.label} was changed since this stack last saw it, and that change was accepted; look at it with "
        "`pulumi refresh`, then run the update again"
    )


def owner_of_live(live: Json) -> str | None:
    return annotations_of(live).get(names.ANNOTATION_OWNER_STACK)


def _belonging(live: Json) -> str:
    owner = owner_of_live(live)
    return f"and belongs to the Pulumi stack {owner}" if owner else "and no program has declared it"


def _way_out(live: Json) -> str:
    return "choose another name" if owner_of_live(live) else "take it over with `pulumi import`, or choose another name"
