"""Readiness names what is not ready."""

from dataclasses import dataclass
from typing import cast

import pytest

from gpu_platform.adapters.kube.cache import ObjectCache
from gpu_platform.control.probes import find_unready


@dataclass
class Cache:
    name: str
    is_synced: bool
    seconds_since_contact: float


@pytest.mark.parametrize(
    ("caches", "unready"),
    [
        ([], ()),
        ([Cache("pods", True, 44.0)], ()),
        ([Cache("pods", False, float("inf"))], ("pods: not listed yet",)),
        (
            [Cache("pods", True, 1.0), Cache("gpuunits", True, 83.4)],
            ("gpuunits: the API server has been silent for 83 s",),
        ),
    ],
)
def test_what_is_not_ready_and_why(caches: list[Cache], unready: tuple[str, ...]) -> None:
    assert find_unready(cast(list[ObjectCache], caches)) == unready
