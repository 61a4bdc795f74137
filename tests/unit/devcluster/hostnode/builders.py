"""Small pods for the tests of the host node's decisions."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_platform.devcluster.hostnode.plan import Container, Running, Terminated
from gpu_platform.devcluster.hostnode.sources import NodeFacts

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
FACTS = NodeFacts(address="127.7.0.1", allocatable={"cpu": "4", "memory": "8Gi"})


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def make_container(name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "none", "command": ["run"], **fields}


def make_pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "pod",
            "namespace": "space",
            "uid": "0123abcd-4567-4000-8000-000000000000",
            "labels": {"app": "web"},
            "annotations": {"note": 'say "hi"'},
        },
        "spec": {"nodeName": "host", "containers": list(containers) or [make_container()], **spec},
        "status": {},
    }


def running(name: str = "main", **fields: Any) -> Container:
    state = Running(started_at=NOW - seconds(5), process=11, started=True, ready=True)
    return Container(name, replace(state, **fields))


def ended(name: str = "main", exit_code: int = 0) -> Container:
    return Container(name, ending(exit_code))


def ending(exit_code: int = 0) -> Terminated:
    reason = "Error" if exit_code else "Completed"
    return Terminated(exit_code, reason, "", NOW - seconds(5), NOW, process=11)
