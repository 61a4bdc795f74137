"""Amounts in the form in which the API server gives them back, so that nothing looks changed after a refresh."""

from collections.abc import Mapping

from gpu_platform.domain.quantities import canonical_quantity
from infra.sections import Amounts


def build_amounts(amounts: Amounts) -> dict[str, str]:
    return canonical({"cpu": amounts.cpu, "memory": amounts.memory})


def canonical(amounts: Mapping[str, str]) -> dict[str, str]:
    return {resource: canonical_quantity(text) for resource, text in amounts.items()}
