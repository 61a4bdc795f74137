"""What a pass knows about a storage, for tests of its decisions."""

from dataclasses import replace
from typing import Any

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.storages import GPUStorageSpec
from reconciler.storages.observe import Observed


def make_observed(storage: Json, **changes: Any) -> Observed:
    """Nothing of it is there yet, unless the changes say otherwise."""
    observed = Observed(
        storage=storage,
        spec=GPUStorageSpec.model_validate(storage["spec"]),
        hold=None,
        is_unit_running=False,
        claim=None,
        binds_late=False,
        jobs=(),
        network_policy=None,
        service=None,
        deployment=None,
        pods=(),
        source=None,
        restricted=False,
    )
    return replace(observed, **changes)
