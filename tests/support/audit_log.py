"""The API server's audit log as a judge: who sent which mutating request."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from gpu_platform.domain.json_text import Json

MUTATING = ("create", "update", "patch", "delete", "deletecollection")
BAD_REQUEST = 400
RECONCILER_AGENT = "gpu-platform-reconciler"


@dataclass(frozen=True)
class AuditLog:
    """What was written since the log was opened, without Leases: a leader's heartbeat is no change."""

    path: Path
    offset: int

    @classmethod
    def from_here(cls, path: Path) -> "AuditLog":
        return cls(path, path.stat().st_size)

    def writes(self, agent: str = RECONCILER_AGENT) -> list[Json]:
        with self.path.open() as log:
            log.seek(self.offset)
            events = [json.loads(line) for line in log if line.endswith("\n")]
        return [event for event in events if _is_write(event) and event.get("userAgent", "").startswith(agent)]

    def changes(self, agent: str = RECONCILER_AGENT) -> list[Json]:
        """The writes that the API server did not refuse."""
        return [event for event in self.writes(agent) if event["responseStatus"]["code"] < BAD_REQUEST]

    def counts(self, agent: str = RECONCILER_AGENT) -> Counter[tuple[str, str]]:
        """How often which verb was sent for which resource."""
        return Counter(
            (
                event["verb"],
                "/".join(filter(None, (event["objectRef"]["resource"], event["objectRef"].get("subresource")))),
            )
            for event in self.writes(agent)
        )


def _is_write(event: Json) -> bool:
    return event["verb"] in MUTATING and event.get("objectRef", {}).get("resource") != "leases"
