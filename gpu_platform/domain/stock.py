"""Warm stock: which unit is free, and which one a claim takes."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.gpu_units import Phase
from gpu_platform.domain.metadata import annotations_of, find_instant, labels_of

Json = dict[str, Any]

HANDOFF_LIMIT = timedelta(seconds=5)
"""How long a unit waits for its stock's pod to be gone before it tries its luck with the scheduler. Other stock holds
back as long: whatever becomes free meanwhile is for the unit."""


@dataclass(frozen=True)
class Claim:
    """Who holds a stock unit, and for which request. Two claims are the same only when both agree: an Operation's name
    can be given to another Operation in any other namespace."""

    holder: str
    """The unit (`namespace/name`); empty on stock that is only labelled as claimed."""

    operation: str
    """The name of the Operation, in the holder's namespace; or a mark that cannot be one."""

    @property
    def operation_key(self) -> str:
        """The Operation as `namespace/name`."""
        return f"{self.holder.partition('/')[0]}/{self.operation}"


def claim_of(stock: Json) -> Claim:
    """The claim that the stock's annotations name; both parts are empty on free stock."""
    annotations = annotations_of(stock)
    return Claim(
        annotations.get(names.ANNOTATION_CLAIMED_BY, ""),
        annotations.get(names.ANNOTATION_OPERATION_ID, ""),
    )


def is_claimed(stock: Json) -> bool:
    """Either mark is enough: the annotation is the claim, the label only its index."""
    label = labels_of(stock).get(names.LABEL_STOCK_STATE)
    return label == names.STOCK_CLAIMED or claim_holder_of(stock) is not None


def claim_holder_of(stock: Json) -> str | None:
    """The unit (`namespace/name`) for which this stock is held."""
    return claim_of(stock).holder or None


def claimed_at(item: Json, now: datetime) -> datetime | None:
    """When this stock, or the worker that took it over, was claimed."""
    return find_instant(item, names.ANNOTATION_CLAIMED_AT, now)


def is_from(unit: Json, stock: Json) -> bool:
    """Whether the unit was made from this very stock: pools use names again. Who made a unit by hand, and named its
    stock without the uid, is believed."""
    annotations = annotations_of(unit)
    is_named = annotations.get(names.ANNOTATION_SOURCE_STOCK_NAME) == stock["metadata"]["name"]
    return is_named and annotations.get(names.ANNOTATION_SOURCE_STOCK_UID) in (None, stock["metadata"]["uid"])


def is_available(stock: Json) -> bool:
    """Ready, free, and not on its way out."""
    return (
        not is_claimed(stock)
        and "deletionTimestamp" not in stock["metadata"]
        and stock.get("status", {}).get("phase") == Phase.READY
    )


def rank_stock(stock_units: Iterable[Json], spec_name: str) -> tuple[Json, ...]:
    """The stock that a claim for this spec may take, in the order to try it: oldest first, ties by name."""
    fitting = [unit for unit in stock_units if unit["spec"].get("specName") == spec_name and is_available(unit)]
    return tuple(sorted(fitting, key=lambda unit: (unit["metadata"]["creationTimestamp"], unit["metadata"]["name"])))
