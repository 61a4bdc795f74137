"""Not acting on a view that is older than our own last write.

Between a status write and its echo on the watch, the cache still shows the object as it was. A pass in that moment
would plan the same write again, and the API server would refuse it. The echo brings the next pass anyway.
"""

from typing import Any

Json = dict[str, Any]


class OwnWrites:
    def __init__(self) -> None:
        self._overwritten: dict[str, str] = {}

    def remember(self, before: Json) -> None:
        """The object was written, as seen in this version."""
        self._overwritten[before["metadata"]["uid"]] = before["metadata"]["resourceVersion"]

    def is_outdated(self, seen: Json) -> bool:
        uid = seen["metadata"]["uid"]
        if self._overwritten.get(uid) == seen["metadata"]["resourceVersion"]:
            return True
        self._overwritten.pop(uid, None)
        return False
