"""The table of `plan_volumes`, row by row."""

from pathlib import Path
from typing import Any

import pytest

from gpu_platform.devcluster.hostnode.provisioner import (
    CLASS_NAME,
    PROVISIONED_BY,
    PROVISIONER,
    GrowClaim,
    GrowVolume,
    MakeVolume,
    RemoveVolume,
    plan_volumes,
)
from gpu_platform.domain.json_text import Json

ROOT = Path("/srv/volumes")


def claim(wanted: str = "1Gi", has: str | None = None, *, of: str | None = CLASS_NAME, **metadata: Any) -> Json:
    status = {"phase": "Bound", "capacity": {"storage": has}} if has else {"phase": "Pending"}
    return {
        "metadata": {"name": "data", "namespace": "ns", "uid": "u", **metadata},
        "spec": {
            "storageClassName": of,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": wanted}},
        },
        "status": status,
    }


def volume(size: str = "1Gi", phase: str = "Bound", policy: str = "Delete", by: str = PROVISIONER) -> Json:
    return {
        "metadata": {"name": "pvc-u", "uid": "v", "annotations": {PROVISIONED_BY: by}},
        "spec": {
            "capacity": {"storage": size},
            "persistentVolumeReclaimPolicy": policy,
            "hostPath": {"path": "/srv/volumes/u"},
        },
        "status": {"phase": phase},
    }


def test_a_claim_of_our_class_gets_a_volume_that_names_it() -> None:
    [write] = plan_volumes([claim()], {}, ROOT)
    assert isinstance(write, MakeVolume)
    assert write.directory == ROOT / "u"
    assert write.body["metadata"]["name"] == "pvc-u"
    assert write.body["spec"]["hostPath"]["path"] == "/srv/volumes/u"
    assert (write.body["spec"]["claimRef"]["namespace"], write.body["spec"]["claimRef"]["uid"]) == ("ns", "u")


@pytest.mark.parametrize("other", [claim(of="fast"), claim(of=None), claim(deletionTimestamp="now")])
def test_other_claims_are_left_alone(other: Json) -> None:
    assert plan_volumes([other], {}, ROOT) == ()


@pytest.mark.parametrize(
    ("wish", "live", "writes"),
    [
        (claim(), volume(), ()),
        (claim(has="1Gi"), volume(), ()),
        (claim("2Gi", has="1Gi"), volume(), (GrowVolume("pvc-u", "2Gi"),)),
        (claim("2Gi", has="1Gi"), volume("2Gi"), (GrowClaim("ns", "data", "2Gi"),)),
        (claim("2Gi", has="2Gi"), volume("2Gi"), ()),
    ],
)
def test_the_volume_grows_first_and_then_the_claim_says_so(wish: Json, live: Json, writes: tuple[object, ...]) -> None:
    assert plan_volumes([wish], {"pvc-u": live}, ROOT) == writes


def test_a_volume_goes_with_its_claim_unless_it_is_to_stay_or_another_made_it() -> None:
    left = volume(phase="Released")
    assert plan_volumes([], {"pvc-u": left}, ROOT) == (RemoveVolume(left, Path("/srv/volumes/u")),)
    for other in (volume(), volume(phase="Released", policy="Retain"), volume(phase="Released", by="other")):
        assert plan_volumes([], {"pvc-u": other}, ROOT) == ()
