"""Units as an earlier version of the platform left them: running, with templates that today's builders do not make."""

import copy
from pathlib import Path

import yaml

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.units import Reason

EARLIER: dict[str, Json] = yaml.safe_load(
    (Path(__file__).parent / "deployments_0_1_0.yaml").read_text(encoding="utf-8")
)
"""By case: a unit's spec, and its Deployment as version 0.1.0 sent it."""

EARLIER_TOKEN_UNIT: Json = yaml.safe_load((Path(__file__).parent / "token_unit_0_1_0.yaml").read_text(encoding="utf-8"))
"""A request for a unit with an FRP token, and the Operation, the unit and the Secret that version 0.1.0 made of it."""

_STACKS: Json = yaml.safe_load((Path(__file__).parent / "earlier_stacks_0_1_0.yaml").read_text(encoding="utf-8"))

EARLIER_STACKS: dict[str, Json] = _STACKS["cases"]
"""By kind, in the order in which they were made: all that version 0.1.0 left of a request that it had recorded."""

EARLIER_CLAIMED_STOCK: Json = _STACKS["claimedStock"]
"""The stock of the case `unit`, while the unit took it over."""

OLD_GRACE_SECONDS = 29
"""Of templates that no version has made: what a test sees of them, whatever today's builders make."""


def earlier_deployment(case: str, unit: Json | None = None, *, older: bool = False) -> Json:
    """The Deployment of this case, for this unit; with `older`, with a template that no known version has made."""
    deployment: Json = copy.deepcopy(EARLIER[case]["deployment"])
    if unit is not None:
        deployment = _for_unit(deployment, unit["metadata"])
    if older:
        template = deployment["spec"]["template"]
        template["spec"]["terminationGracePeriodSeconds"] = OLD_GRACE_SECONDS
        template["metadata"]["labels"][names.LABEL_TEMPLATE] = "older"
    return deployment


def earlier_status(case: str) -> Json:
    """The status of the running unit of this case."""
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": Reason.STOCK_READY if case == "stock" else Reason.UNIT_READY,
        "message": "runs",
        "lastTransitionTime": "2026-11-01T00:00:00Z",
    }
    return {"phase": "Ready", "observedGeneration": 1, "readyReplicas": 1, "conditions": [condition]}


def _for_unit(deployment: Json, metadata: Json) -> Json:
    template = deployment["spec"]["template"]
    ours = {**deployment["metadata"]["labels"], names.LABEL_UNIT: metadata["name"]}
    deployment["metadata"] |= {
        "name": names.child_name(metadata["name"]),
        "namespace": metadata["namespace"],
        "labels": ours,
        "ownerReferences": [names.owner_reference("GPUUnit", metadata["name"], metadata["uid"])],
    }
    deployment["spec"]["selector"] = {"matchLabels": {names.LABEL_UNIT: metadata["name"]}}
    template["metadata"]["labels"] |= {**ours, names.LABEL_UNIT_UID: metadata["uid"]}
    return deployment
