"""The state of the platform as a log line, now and then: what a log alone can tell afterwards."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

from gpu_platform.domain import names
from platform_api.deps import Deps
from platform_api.health.inventory import count_specs
from platform_api.health.service import Observed, build_health, observe_health

log = logging.getLogger(__name__)

Json = dict[str, Any]


async def report_for_ever(deps: Deps, interval_seconds: float) -> None:
    while True:
        await asyncio.sleep(interval_seconds)
        log.info("runtime status", extra=build_report(observe_health(deps)))


def build_report(observed: Observed) -> Json:
    return {
        "health": build_health(observed).to_json(),
        "stock": {
            spec.spec_name: {"available": spec.available, "claimed": spec.claimed}
            for spec in count_specs(_stock(observed.units), ())
        },
        "units": dict(sorted(_count_phases(observed.units).items())),
    }


def _stock(units: Iterable[Json]) -> Iterable[Json]:
    return (unit for unit in units if names.is_stock_namespace(unit["metadata"]["namespace"]))


def _count_phases(units: Iterable[Json]) -> Counter[str]:
    """Of tenants' units."""
    return Counter(
        (unit.get("status") or {}).get("phase") or "Unknown"
        for unit in units
        if not names.is_stock_namespace(unit["metadata"]["namespace"])
    )
