"""What a unit's plan does about the Secrets of its FRP tokens."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.gpu_units import GPUUnitSpec
from gpu_platform.domain.spare_tokens import plan_spare_tokens, read_spare_tokens, with_spare_tokens
from reconciler.units.observed import Observed
from reconciler.units.resources import UnitBuild
from reconciler.units.ssh_resources import find_token_secret

Json = dict[str, Any]


@dataclass(frozen=True)
class AdoptSecret:
    """The token of the unit's SSH becomes the unit's own, and goes with it."""

    body: Json


@dataclass(frozen=True)
class DeleteSecret:
    """The unit has another token by now, or none."""

    namespace: str
    name: str


@dataclass(frozen=True)
class ListTokens:
    """The unit lists other tokens as spare, in a write on it as it was seen."""

    body: Json


TokenWrite = AdoptSecret | DeleteSecret | ListTokens


def plan_token_secrets(observed: Observed, build: UnitBuild) -> tuple[TokenWrite, ...]:
    """Before the Deployment, which says by its template which Secret is the last one that was dealt with."""
    writes: list[TokenWrite] = []
    used = find_token_secret(observed.deployment)
    if used is not None and used != (build.ssh.token_secret if build.ssh else None):
        writes.append(DeleteSecret(build.namespace, used))
    secret = observed.token_secret
    owner = names.owner_reference("GPUUnit", build.name, build.uid)
    if secret is not None and secret["metadata"].get("ownerReferences") != [owner]:
        writes.append(AdoptSecret({**secret, "metadata": {**secret["metadata"], "ownerReferences": [owner]}}))
    return tuple(writes)


def plan_spare_secrets(
    observed: Observed, spec: GPUUnitSpec, now: datetime
) -> tuple[tuple[TokenWrite, ...], timedelta | None]:
    """Returns what is done about spare tokens, and when to look again."""
    digest = spec.ssh.token_hash if spec.ssh is not None else None
    spare = plan_spare_tokens(observed.unit, digest, find_token_secret(observed.deployment), now)
    writes = list[TokenWrite](DeleteSecret(observed.unit["metadata"]["namespace"], name) for name in spare.deleted)
    if spare.listed != read_spare_tokens(observed.unit, now):
        writes.append(ListTokens(with_spare_tokens(observed.stored or observed.unit, spare.listed)))
    return tuple(writes), spare.wait
