"""When a storage that a unit held may be another's: not while Kubernetes may still start a pod of the unit with it."""

import pytest

from gpu_platform.domain.json_text import Json
from reconciler.storages.holds import may_start_with

MOUNTED: Json = {"name": "storage-0", "persistentVolumeClaim": {"claimName": "weights"}}
OTHER: Json = {"name": "storage-0", "persistentVolumeClaim": {"claimName": "others"}}
SHM: Json = {"name": "runtime-shm", "emptyDir": {}}


def deployment(*volumes: Json, replicas: int = 1, seen: int | None = 3) -> Json:
    return {
        "metadata": {"name": "unit-train", "generation": 3},
        "spec": {"replicas": replicas, "template": {"spec": {"volumes": [SHM, *volumes]}}},
        "status": {"observedGeneration": seen} if seen is not None else {},
    }


@pytest.mark.parametrize(
    ("found", "may"),
    [
        (deployment(MOUNTED), True),
        (deployment(OTHER), False),
        (deployment(), False),
        (deployment(MOUNTED, replicas=0), False),
        (deployment(seen=2), True),
        (deployment(seen=None), True),
        (deployment(replicas=0, seen=2), False),
    ],
)
def test_a_deployment_may_start_a_pod_with_what_it_mounts_or_mounted_before_its_last_change(
    found: Json, may: bool
) -> None:
    assert may_start_with(found, "weights") is may
