"""The API's view of Kubernetes: what memory does not know yet, and what it knows no longer."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from gpu_platform.kube import UnreachableError
from gpu_platform.kube.informer import WatchTiming
from gpu_platform.kube.paths import GPU_UNITS
from platform_api import cluster
from platform_api.cluster import Cluster
from platform_api.http.errors import ApiError
from tests.support.builders import make_unit
from tests.support.scripted_kube import StoredObjects

TIMING = WatchTiming(resync=timedelta(minutes=10))


class Away(StoredObjects):
    async def text(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 10.0) -> str:
        raise UnreachableError(0, "Timeout", f"{path} {params}: no answer in {timeout} s")

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 10.0) -> dict[str, Any]:
        raise UnreachableError(0, "Timeout", f"{path} {params}: no answer in {timeout} s")


async def test_what_is_too_new_for_memory_is_looked_up() -> None:
    server = StoredObjects()
    unit = make_unit("u")
    namespace = unit["metadata"]["namespace"]
    server.store.objects[GPU_UNITS.item("u", namespace)] = unit
    view = Cluster(server, TIMING)

    assert await view.find(GPU_UNITS, namespace, "u") == unit
    assert await view.find(GPU_UNITS, namespace, "another") is None


def test_where_calls_go_is_known_while_kubernetes_is_there() -> None:
    Cluster(StoredObjects(), TIMING).require_known_pods()


def test_where_calls_go_is_not_known_again_before_the_pods_are_followed_again() -> None:
    view = Cluster(StoredObjects(), TIMING)
    # Listed once, and never heard of since; Kubernetes itself answers.
    view.pods._synced.set()

    with pytest.raises(ApiError, match="away for too long to know where calls go"):
        view.require_known_pods()


async def test_where_calls_go_is_no_longer_known_when_kubernetes_is_away_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = Cluster(Away(), TIMING)
    await view.pulse.feel()
    view.require_known_pods()

    monkeypatch.setattr(cluster, "PODS_KNOWN_SECONDS", 0.0)

    with pytest.raises(ApiError, match="away for too long to know where calls go") as caught:
        view.require_known_pods()
    assert (caught.value.status, caught.value.code) == (503, "service_unavailable")
