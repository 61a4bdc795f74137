"""Events: the same words about the same object are one Event with a count, and none of it fails the caller."""

from datetime import UTC, datetime

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeError, UnreachableError
from gpu_platform.kube.events import EventRecorder, build_event
from gpu_platform.kube.fencing import GuardedClient, Leadership
from tests.support.scripted_kube import StoredObjects, make_object
from tests.support.virtual_time import run_in_virtual_time

UNIT = make_object("unit", "7")
NODE: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"}}


def record(client: StoredObjects, *words: tuple[Json, str, str]) -> list[Json]:
    """The events that are there afterwards."""
    recorder = EventRecorder(client, "reconciler")

    async def main() -> None:
        for regarding, reason, message in words:
            await recorder.record(regarding, "Warning", reason, message)

    run_in_virtual_time(main())
    return [client.store.objects[path] for path in sorted(client.store.objects)]


def test_an_event_says_about_whom_what_and_by_whom() -> None:
    event = record(StoredObjects(), (UNIT, "Unschedulable", "no node has 8 GPUs"))[0]

    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "namespace": "a",
        "name": "unit",
        "uid": "uid-unit",
        "resourceVersion": "7",
    }
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "Unschedulable",
        "no node has 8 GPUs",
    )
    assert event["source"] == {"component": "reconciler"}
    assert event["count"] == 1
    assert event["firstTimestamp"] == event["lastTimestamp"]


def test_repeats_are_counted_also_by_another_process() -> None:
    client = StoredObjects()
    record(client, (UNIT, "Failed", "x"), (UNIT, "Failed", "x"))
    events = record(client, (UNIT, "Failed", "x"), (UNIT, "Failed", "y"), (UNIT, "Other", "x"))

    assert sorted(event["count"] for event in events) == [1, 1, 3]


def test_a_namesake_has_events_of_its_own() -> None:
    again = make_object("unit", "9", uid="another")

    assert len(record(StoredObjects(), (UNIT, "Failed", "x"), (again, "Failed", "x"))) == 2


def test_events_about_cluster_scoped_objects_are_in_the_default_namespace() -> None:
    event = record(StoredObjects(), (NODE, "Failed", "x"))[0]

    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]


def test_a_long_message_is_cut_to_what_the_api_accepts() -> None:
    event = build_event(UNIT, "Normal", "Long", "x" * 5_000, "reconciler", datetime.now(UTC))

    assert len(event["message"]) == 1_024
    assert len(event["metadata"]["name"]) <= 253


@pytest.mark.parametrize(
    "error", [UnreachableError(0, "Unreachable", "away"), KubeError(403, "Forbidden", "the namespace is going")]
)
def test_what_cannot_be_said_is_logged_and_harms_nobody(error: KubeError, caplog: pytest.LogCaptureFixture) -> None:
    client = StoredObjects()

    def refuse(_method: str, _path: str) -> None:
        raise error

    client.fault = refuse

    assert record(client, (UNIT, "Failed", "x")) == []
    assert [entry.message for entry in caplog.records] == ["event.lost"]


def test_whoever_does_not_lead_says_nothing() -> None:
    client = StoredObjects()
    recorder = EventRecorder(GuardedClient(client, Leadership()), "reconciler")

    run_in_virtual_time(recorder.record(UNIT, "Normal", "Late", "too late"))

    assert client.requests == []
