"""What a tenant sees of a unit's addresses: none that nobody would answer."""

from datetime import timedelta
from typing import Any

import pytest

from gpu_platform.api_models.units import UnitView
from gpu_platform.domain.json_text import Json
from gpu_platform.kube.informer import WatchTiming
from platform_api.cluster import Cluster
from platform_api.gpu_units.views import UnitTargets
from tests.support.builders import make_unit
from tests.support.scripted_kube import StoredObjects

PUBLIC_URL = "https://demo-1.units.example.com/"


def shown(message: str, public_url: str | None = None, **metadata: Any) -> UnitView:
    """A unit that says this of its public address, and of which no pod is known."""
    unit = make_unit()
    published: Json = {
        "type": "Published",
        "status": "True" if public_url else "False",
        "reason": "UnitPublished",
        "message": message,
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    status: Json = {"phase": "Ready", "accessURL": "http://unit-demo:8000", "conditions": [published]}
    unit["status"] = status | ({"publicURL": public_url} if public_url else {})
    unit["metadata"] |= metadata
    targets = UnitTargets(Cluster(StoredObjects(), WatchTiming(timedelta(minutes=10))), development_addresses=False)
    return targets.show(unit, "http://127.0.0.1")


@pytest.mark.parametrize("metadata", [{}, {"deletionTimestamp": "2030-01-01T00:00:00Z"}])
def test_who_has_no_pod_or_is_on_its_way_out_is_not_said_to_be_public(metadata: Json) -> None:
    view = shown(f"everybody can call it at {PUBLIC_URL}", PUBLIC_URL, **metadata)

    assert (view.access_url, view.public_url, view.public_message) == (None, None, None)


def test_what_a_public_address_waits_for_is_told_also_then() -> None:
    view = shown("no gateway has taken up its HTTPRoute yet")

    assert (view.public_url, view.public_message) == (None, "no gateway has taken up its HTTPRoute yet")
