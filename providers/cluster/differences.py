"""Diff: what an update would change, and what only another object can have."""

from typing import Any

from gpu_platform.pulumi_protocol.properties import Path
from providers.cluster.inputs import PROVENANCE
from providers.cluster.kinds import Kind
from providers.protocol.diffing import Change, find_changes
from providers.protocol.resource import Difference

Json = dict[str, Any]

IDENTITY = ("tenant", "name")


def find_difference(kind: Kind, old_inputs: Json, outputs: Json, news: Json) -> Difference:
    """
    | place                                         | change                                  |
    | --------------------------------------------- | --------------------------------------- |
    | operationID, requestHash, objectUID           | none: they say where an object is from  |
    | name, tenant                                  | replace                                 |
    | a field of the spec that is fixed             | replace                                 |
    | one that is fixed once set, and was not set   | update                                  |
    | any other                                     | update                                  |
    | nothing, but nobody has accepted the object   | update: it becomes this program's       |
    """
    changes = {path: change for path, change in find_changes(old_inputs, news).items() if path[0] not in PROVENANCE}
    if not changes and outputs.get("acceptedHash") == "":
        changes = {("acceptedHash",): Change.UPDATE}
    replacing = frozenset(path for path, change in changes.items() if _is_replacing(kind, path, change))
    # The name is taken until the old object is gone, and so are its GPUs.
    return Difference(changes, replacing, delete_first=bool(replacing))


def _is_replacing(kind: Kind, path: Path, change: Change) -> bool:
    if path[0] in IDENTITY:
        return True
    field = path[1] if path[0] == "spec" and len(path) > 1 else None
    return field in kind.fixed or (field in kind.fixed_once_set and change is not Change.ADD)
