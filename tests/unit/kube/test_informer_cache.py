"""`ObjectCache`: equal to the API server whatever sequence of lists, events and outages it sees."""

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_platform.domain.json_text import Json
from gpu_platform.kube.informer import ObjectCache, WatchEvent
from gpu_platform.kube.paths import CONFIG_MAPS
from tests.support.scripted_kube import ScriptedWatchClient, make_event, make_object
from tests.support.virtual_time import run_in_virtual_time

SYNCED = WatchEvent("SYNCED", {})


def colours(item: Json) -> Iterable[str]:
    values: list[str] = item.get("data", {}).get("colours", [])
    return values


class Recorded:
    """A cache that is fed by hand, and what its handler was told."""

    def __init__(self) -> None:
        self.cache = ObjectCache(ScriptedWatchClient([], []), CONFIG_MAPS, indexes={"colour": colours})
        self.told: list[tuple[Json | None, Json | None]] = []
        self.cache.on_change(lambda old, new: self.told.append((old, new)))

    def relist(self, *items: Json) -> None:
        for item in items:
            self.cache._take(WatchEvent("ADDED", item, listed=True))
        self.cache._take(SYNCED)

    def see(self, kind: str, item: Json) -> None:
        assert kind in ("ADDED", "MODIFIED", "DELETED")
        self.cache._take(WatchEvent(kind, item))  # type: ignore[arg-type]

    def changes(self) -> list[tuple[str | None, str | None]]:
        """The versions that the handler was told since the last time."""
        told, self.told = self.told, []
        return [(_version(old), _version(new)) for old, new in told]


def _version(item: Json | None) -> str | None:
    return f"{item['metadata']['name']}@{item['metadata']['resourceVersion']}" if item else None


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_objects_are_found_by_name_namespace_and_index(recorded: Recorded) -> None:
    red = make_object("red", "1", data={"colours": ["red", "warm"]})
    blue = make_object("blue", "2", namespace="b", data={"colours": ["blue"]})
    recorded.relist(red, blue)

    assert recorded.cache.get("a", "red") is red
    assert recorded.cache.get("b", "red") is None
    assert recorded.cache.objects("b") == (blue,)
    assert recorded.cache.objects() == (red, blue)
    assert recorded.cache.by_index("colour", "warm") == (red,)
    assert recorded.cache.by_index("colour", "green") == ()
    assert len(recorded.cache) == 2


def test_cluster_scoped_objects_have_no_namespace(recorded: Recorded) -> None:
    node = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}}
    recorded.relist(node)

    assert recorded.cache.get(None, "n") is node
    assert recorded.cache.objects() == (node,)


def test_every_change_is_told_with_what_was_before(recorded: Recorded) -> None:
    recorded.relist(make_object("one", "1"))
    recorded.see("MODIFIED", make_object("one", "2"))
    recorded.see("ADDED", make_object("two", "3"))
    recorded.see("DELETED", make_object("one", "4"))

    assert recorded.changes() == [(None, "one@1"), ("one@1", "one@2"), (None, "two@3"), ("one@2", None)]


def test_what_was_deleted_during_an_outage_is_told_after_the_list(recorded: Recorded) -> None:
    recorded.relist(make_object("kept", "1"))
    # Seen in a watch: its absence from the next list counts all the same.
    recorded.see("ADDED", make_object("gone", "2"))
    recorded.changes()

    recorded.relist(make_object("kept", "1"))

    assert recorded.changes() == [("kept@1", "kept@1"), ("gone@2", None)]
    assert recorded.cache.get("a", "gone") is None


def test_each_list_names_every_object_again(recorded: Recorded) -> None:
    recorded.relist(make_object("same", "1"), make_object("changed", "1"))
    recorded.changes()

    recorded.relist(make_object("same", "1"), make_object("changed", "2"), make_object("new", "3"))

    assert recorded.changes() == [("same@1", "same@1"), ("changed@1", "changed@2"), (None, "new@3")]


def test_the_same_state_in_a_watch_is_no_news(recorded: Recorded) -> None:
    recorded.relist(make_object("one", "1"))
    recorded.changes()

    recorded.see("MODIFIED", make_object("one", "1"))

    assert recorded.changes() == []


def test_the_late_deletion_of_a_namesake_is_ignored(recorded: Recorded) -> None:
    recorded.relist(make_object("one", "5", uid="second"))
    recorded.changes()

    recorded.see("DELETED", make_object("one", "4", uid="first"))
    recorded.see("DELETED", make_object("never-seen", "6"))

    assert recorded.changes() == []
    assert len(recorded.cache) == 1


def test_an_index_follows_the_object(recorded: Recorded) -> None:
    recorded.relist(make_object("one", "1", data={"colours": ["red", "red"]}))
    recorded.see("MODIFIED", make_object("one", "2", data={"colours": ["blue"]}))

    assert recorded.cache.by_index("colour", "red") == ()
    assert len(recorded.cache.by_index("colour", "blue")) == 1

    recorded.see("DELETED", make_object("one", "3", data={"colours": []}))
    assert recorded.cache.by_index("colour", "blue") == ()


def test_managed_fields_are_left_out(recorded: Recorded) -> None:
    item = make_object("one", "1")
    item["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    recorded.relist(item)

    held = recorded.cache.get("a", "one")
    assert held is not None
    assert "managedFields" not in held["metadata"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "delete", "list", "cut"]),
        st.sampled_from(["one", "two", "three"]),
        st.lists(st.sampled_from(["red", "blue"]), max_size=2),
    ),
    max_size=60,
)


@given(STEPS)
def test_after_a_list_the_cache_equals_the_server_whatever_was_missed(
    steps: list[tuple[str, str, list[str]]],
) -> None:
    """`cut`: from here to the next list no event arrives."""
    recorded, server, connected = Recorded(), dict[str, Json](), True
    recorded.relist()
    heard: dict[str, Json] = {}
    recorded.cache.on_change(lambda old, new: _apply_change(heard, old, new))
    for version, (step, name, values) in enumerate([*steps, ("list", "", [])]):
        match step:
            case "cut":
                connected = False
            case "list":
                recorded.relist(*server.values())
                connected = True
            case "write":
                uid = server[name]["metadata"]["uid"] if name in server else f"uid-{version}"
                kind = "MODIFIED" if name in server else "ADDED"
                server[name] = make_object(name, str(version), uid=uid, data={"colours": values})
                if connected:
                    recorded.see(kind, server[name])
            case "delete" if name in server:
                gone = server.pop(name)
                if connected:
                    recorded.see("DELETED", gone)

    expected = {item["metadata"]["name"]: item for item in recorded.cache.objects()}
    assert expected == server == heard
    for colour in ("red", "blue"):
        found = {item["metadata"]["name"] for item in recorded.cache.by_index("colour", colour)}
        assert found == {name for name, item in server.items() if colour in colours(item)}


def _apply_change(heard: dict[str, Json], old: Json | None, new: Json | None) -> None:
    if new is not None:
        heard[new["metadata"]["name"]] = new
    elif old is not None:
        del heard[old["metadata"]["name"]]


def test_it_is_synced_after_the_first_list_and_knows_when_it_last_heard() -> None:
    listed = {"metadata": {"resourceVersion": "1"}, "items": [make_object("one", "1")]}
    client = ScriptedWatchClient([listed], [[make_event("ADDED", make_object("two", "2")), 5.0]])
    cache = ObjectCache(client, CONFIG_MAPS, label_selector="x=y")

    async def main() -> None:
        assert (cache.is_synced, cache.seconds_since_contact) == (False, float("inf"))
        running = asyncio.create_task(cache.run())
        await cache.wait_synced()
        assert (cache.is_synced, cache.seconds_since_contact < 5) == (True, True)
        await asyncio.sleep(1)
        assert len(cache) == 2
        running.cancel()
        await asyncio.wait({running})

    run_in_virtual_time(main())
    assert client.asked_for("list")[0]["labelSelector"] == "x=y"
