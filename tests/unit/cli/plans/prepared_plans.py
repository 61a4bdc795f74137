"""Plans for the tests: the files in `prepared/`, written as `pulumi preview --json` prints them, and small ones."""

import json
from pathlib import Path
from typing import Any

from gpu_platform.cli.plans.changes import Changes, build_changes
from gpu_platform.cli.plans.digest import parse_plan
from gpu_platform.domain.json_text import Json

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
PREPARED = HERE / "prepared"


def build_step(operation: str, kind: str, name: str, **fields: Any) -> Json:
    """`old` and `new` are inputs; the rest is as in a plan."""
    token = f"kubernetes:core/v1:{kind}"
    urn = f"urn:pulumi:dev::gpu-platform::{token}::{name}"
    step: Json = {"op": operation, "urn": urn, "detailedDiff": fields.pop("detailedDiff", None)}
    for side, key in (("old", "oldState"), ("new", "newState")):
        if side in fields:
            inputs = fields.pop(side)
            step[key] = {"urn": urn, "custom": True, "type": token, "inputs": inputs, "outputs": inputs}
    return step | fields


def build_plan_changes(*steps: Json, same: int = 0) -> Changes:
    return build_changes(parse_plan(json.dumps({"steps": steps, "changeSummary": {"same": same}}), "the plan"))
