"""Warm stock: which unit is free, and which one a claim takes."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.gpu_units import Phase

Json = dict[str, Any]


def is_claimed(stock: Json) -> bool:
    """Either mark is enough: the annotation is the claim, the label only its index."""
    metadata = stock["metadata"]
    label = metadata.get("labels", {}).get(names.LABEL_STOCK_STATE)
    return label == names.STOCK_CLAIMED or claim_holder_of(stock) is not None


def claim_holder_of(stock: Json) -> str | None:
    """The unit (`namespace/name`) for which this stock is held."""
    holder: str | None = stock["metadata"].get("annotations", {}).get(names.ANNOTATION_CLAIMED_BY)
    return holder or None


def claimed_at(stock: Json) -> datetime | None:
    text = stock["metadata"].get("annotations", {}).get(names.ANNOTATION_CLAIMED_AT)
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


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
