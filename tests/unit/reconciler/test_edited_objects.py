"""Whoever edits an accepted object behind the API changes nothing of what is done about it."""

from typing import Any, cast

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import StockPoolSpec
from gpu_platform.domain.units import GPUUnitSpec, accepted_text
from gpu_platform.domain.value import Value
from reconciler.child_diff import UnitChild
from reconciler.informers import World
from reconciler.stock.controller import observe_pool
from reconciler.units.observe import observe_unit
from tests.support.builders import NOW, make_pool, make_unit


class _Cache:
    def __init__(self, *items: Json) -> None:
        self._items = items

    def get(self, namespace: str | None, name: str) -> Json | None:
        found = (item for item in self._items if item["metadata"]["name"] == name)
        return next((item for item in found if item["metadata"].get("namespace") == namespace), None)


class _World:
    """As much of the world as these observations look at."""

    def __init__(self, *units: Json, pool: Json | None = None) -> None:
        self.units = _Cache(*units)
        self.pools = _Cache(*([pool] if pool else []))
        self.unit_children = {kind: _Cache() for kind in UnitChild}
        self.namespaces = _Cache()
        self._instances = units

    def find_spec(self, _: str) -> None:
        return None

    def pods_of(self, _: Json) -> tuple[Json, ...]:
        return ()

    def away_nodes(self, _: tuple[Json, ...]) -> dict[str, str]:
        return {}

    def stock_of(self, _: str) -> tuple[Json, ...]:
        return ()

    def instances_of(self, _: str) -> tuple[Json, ...]:
        return self._instances


def edited(item: Json, accepted: Value, kind: str, **spec: Any) -> Json:
    annotations = {**item["metadata"].get("annotations", {}), names.ANNOTATION_ACCEPTED_SPEC: accepted_text(accepted)}
    return {
        **item,
        "kind": kind,
        "metadata": {**item["metadata"], "annotations": annotations},
        "spec": {**item["spec"], **spec},
    }


ACCEPTED = GPUUnitSpec(spec_name="g1.1", image="example/train")
EDITED = edited(make_unit(), ACCEPTED, "GPUUnit", image="example/other", running=False)


def test_a_unit_runs_as_it_was_accepted() -> None:
    observed = observe_unit(cast(World, _World(EDITED)), "runtime-instance", "demo", NOW)

    assert observed is not None
    assert GPUUnitSpec.model_validate(observed.unit["spec"]) == ACCEPTED


def test_a_pool_has_as_much_stock_as_was_accepted() -> None:
    accepted = StockPoolSpec(spec_name="g1.1", replicas=2)
    pool = edited(make_pool(2), accepted, "StockPool", replicas=0)
    metadata = pool["metadata"]

    observed = observe_pool(cast(World, _World(pool=pool)), metadata["namespace"], metadata["name"])

    assert observed is not None
    assert observed.spec == accepted


def test_a_unit_that_somebody_stopped_by_hand_is_not_given_back_to_its_pool() -> None:
    pool = {**make_pool(2), "kind": "StockPool"}
    metadata = pool["metadata"]

    observed = observe_pool(cast(World, _World(EDITED, pool=pool)), metadata["namespace"], metadata["name"])

    assert observed is not None
    assert [unit["spec"].get("running", True) for unit in observed.instances] == [True]
