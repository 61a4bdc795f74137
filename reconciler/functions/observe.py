"""Everything that one pass knows about a function: the values that `plan` decides on, read from the informers."""

from dataclasses import dataclass

from pydantic import ValidationError

from gpu_platform.domain import names
from gpu_platform.domain.functions import GPUFunctionSpec, function_of_unit
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import OperationKind, OperationPhase
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.stock import claim_of, rank_stock
from reconciler.functions.workers import claim_mark, is_leftover, is_made_by
from reconciler.informers import World


@dataclass(frozen=True)
class Observed:
    function: Json
    spec: GPUFunctionSpec | None
    """None: it does not fit the schema of this version."""

    is_known_spec: bool
    """The catalogue has an entry of the spec's name."""

    own: tuple[Json, ...]
    """The units that this very function made."""

    joined: tuple[Json, ...]
    """Other units that take its calls."""

    strangers: tuple[Json, ...]
    """Units that are neither, in its namespace: one of them may have a worker's name."""

    held: tuple[Json, ...]
    """Stock that is claimed for one of its workers."""

    free: tuple[Json, ...]
    """Stock that a claim may take, in the order to try it."""

    setup_problem: str | None = None
    """Why no worker could take a call, however long it waits: what whoever set the platform up has to mend."""


def observe_function(world: World, namespace: str, name: str, setup_problem: str | None = None) -> Observed | None:
    """None when there is no such function: its workers and its Secret go with it, by their owner references.

    Whoever edits a function behind the API restarts nothing: it runs as it was accepted.
    """
    found = world.functions.get(namespace, name)
    if found is None:
        return None
    function = as_accepted(found)
    spec = GPUFunctionSpec.parse(function.get("spec", {}))
    named = world.named_as_workers_of(namespace, name)
    own = tuple(unit for unit in named if is_made_by(unit, function))
    return Observed(
        function=function,
        spec=spec,
        is_known_spec=spec is not None and world.find_spec(spec.spec_name) is not None,
        own=own,
        joined=tuple(unit for unit in world.workers_of(namespace, name) if not _is_made(unit, function)),
        strangers=tuple(unit for unit in named if not is_made_by(unit, function)),
        held=_held(world, function, spec),
        free=_free(world, spec),
        setup_problem=setup_problem,
    )


def build_after_unit(world: World, namespace: str, name: str) -> tuple[Json, Json] | None:
    """The oldest unit that takes calls of a function that does not exist, and the function, built from the unit.
    Workers of functions do not count."""
    units = [unit for unit in world.workers_of(namespace, name) if not unit["metadata"].get("ownerReferences")]
    living = [as_accepted(unit) for unit in units if "deletionTimestamp" not in unit["metadata"]]
    if not living:
        return None
    oldest = min(living, key=lambda unit: (unit["metadata"]["creationTimestamp"], unit["metadata"]["name"]))
    try:
        function = function_of_unit(oldest)
    except ValidationError:
        # The unit itself says what is wrong with it.
        return None
    return (oldest, function) if function is not None else None


def is_put_back(world: World, namespace: str, name: str) -> bool:
    """Whether the function that does not exist was accepted, and nobody asked for its end: it went behind the API, and
    comes back as it was accepted."""
    about = [each for each in world.operations.objects(namespace) if _is_about(each, name)]
    ended = [each for each in about if each["spec"]["kind"] == OperationKind.DELETE_FUNCTION]
    return any(
        each["spec"]["kind"] == OperationKind.CREATE_FUNCTION
        and each.get("status", {}).get("phase") == OperationPhase.SUCCEEDED
        and not any(_is_end_of(end, each) for end in ended)
        for each in about
    )


def _is_about(operation: Json, function: str) -> bool:
    target = operation["spec"].get("target") or {}
    place = (target.get("kind"), target.get("namespace"), target.get("name"))
    return place == ("GPUFunction", operation["metadata"]["namespace"], function)


def _is_end_of(deletion: Json, creation: Json) -> bool:
    """One that was put back before has another uid than the one that was created."""
    is_of_that: bool = deletion["spec"]["target"].get("uid") == creation["status"].get("targetUid")
    is_later: bool = deletion["metadata"]["creationTimestamp"] > creation["metadata"]["creationTimestamp"]
    return is_of_that or is_later


def _is_made(unit: Json, function: Json) -> bool:
    """By this function, or by an earlier one of its name, with which it goes."""
    return is_made_by(unit, function) or is_leftover(unit, function)


def _held(world: World, function: Json, spec: GPUFunctionSpec | None) -> tuple[Json, ...]:
    mark = claim_mark(function)
    return tuple(
        stock
        for stock in world.claimed_stock()
        if claim_of(stock).operation == mark
        and spec is not None
        and stock["spec"].get("specName") == spec.spec_name
        and "deletionTimestamp" not in stock["metadata"]
    )


def _free(world: World, spec: GPUFunctionSpec | None) -> tuple[Json, ...]:
    if spec is None:
        return ()
    of_the_spec = world.units.by_index("spec", spec.spec_name)
    stock = (unit for unit in of_the_spec if names.is_stock_namespace(unit["metadata"]["namespace"]))
    return rank_stock(stock, spec.spec_name)
