"""The Secrets of FRP tokens that a unit may have besides the one that its spec names: the annotation `spare-tokens`, by
digest. Every Secret that a change of the unit makes is in the spec or listed here, wherever a process dies.

| the digest          | is listed by                                           | until                         |
| ------------------- | ------------------------------------------------------ | ----------------------------- |
| of a new token      | the API, before it makes the Secret                    | the write of the spec with it |
| of the token before | the API, in the write of the spec with the next token  | its Secret is deleted         |

The reconciler deletes a Secret that neither the spec nor the Deployment names. It marks the digest first: a request
that is still under way with this token then fails at its write of the unit, and begins again.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.metadata import CLOCK_SKEW, BadMetadata, annotations_of, parse_instant, read_json

Json = dict[str, Any]

SpareTokens = Mapping[str, datetime | None]
"""By digest: since when it is listed; None: marked, and its Secret is being deleted."""

MOST_SPARE = 8
"""Further tokens wait until earlier ones are deleted."""

SPARE_GRACE = timedelta(seconds=15)
"""Before a digest is marked: most requests are over by then."""

LONG_AGO = datetime.fromisoformat("2000-01-01T00:00:00+00:00")
DIGEST = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class SparePlan:
    deleted: tuple[str, ...]
    """Names of Secrets."""

    listed: SpareTokens
    wait: timedelta | None
    """Until the next digest can be marked."""


def read_spare_tokens(unit: Json, now: datetime) -> SpareTokens:
    """Returns what is listed. What cannot be read is no digest, and an instant that cannot be read was long ago."""
    found = read_json(unit, names.ANNOTATION_SPARE_TOKENS)
    if found is None or isinstance(found, BadMetadata):
        return {}
    return {digest: _read_since(since, now) for digest, since in found.items() if DIGEST.fullmatch(digest)}


def with_spare_tokens(unit: Json, tokens: SpareTokens) -> Json:
    others = {key: value for key, value in annotations_of(unit).items() if key != names.ANNOTATION_SPARE_TOKENS}
    listed = {digest: since and since.isoformat() for digest, since in tokens.items()}
    own = {names.ANNOTATION_SPARE_TOKENS: json.dumps(listed, sort_keys=True)} if listed else {}
    return {**unit, "metadata": {**unit["metadata"], "annotations": {**others, **own}}}


def exchange_token(unit: Json, before: str | None, after: str | None, now: datetime) -> Json:
    """Returns the unit for the write that replaces the digest in its spec: the earlier one is spare, the new one is
    not."""
    if before == after:
        return unit
    tokens = {digest: since for digest, since in read_spare_tokens(unit, now).items() if digest != after}
    return with_spare_tokens(unit, tokens | {before: now} if before else tokens)


def plan_spare_tokens(unit: Json, digest: str | None, used: str | None, now: datetime) -> SparePlan:
    """`digest` is the one in the spec, `used` the name of the Secret that the Deployment reads.

    | in the spec | marked | its Secret is used | listed        | →                          |
    | ----------- | ------ | ------------------ | ------------- | -------------------------- |
    | yes         | any    | any                | any           | listed no more             |
    | no          | yes    | any                | any           | deleted and listed no more |
    | no          | no     | yes                | any           | stays                      |
    | no          | no     | no                 | for less than 15 s | stays, look again     |
    | no          | no     | no                 | longer        | marked                     |
    """
    deleted, listed, waits = list[str](), dict[str, datetime | None](), list[timedelta]()
    for spare, since in read_spare_tokens(unit, now).items():
        secret = names.ssh_token_secret(unit["metadata"]["name"], spare)
        if spare == digest:
            continue
        if since is None:
            deleted.append(secret)
        elif secret == used:
            listed[spare] = since
        elif (left := since + SPARE_GRACE - now) > timedelta():
            listed[spare] = since
            waits.append(left)
        else:
            listed[spare] = None
    return SparePlan(tuple(deleted), listed, min(waits, default=None))


def _read_since(value: object, now: datetime) -> datetime | None:
    if value is None:
        return None
    try:
        since = parse_instant(str(value))
    except ValueError:
        return LONG_AGO
    return since if since - now <= CLOCK_SKEW else LONG_AGO
