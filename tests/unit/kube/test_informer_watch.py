"""`list_and_watch`: what is asked of the API server, and when, whatever it answers."""

import asyncio
from contextlib import aclosing
from datetime import timedelta
from itertools import pairwise

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import GoneError, KubeError, NotFoundError, UnreachableError
from gpu_platform.kube.informer import (
    DEFAULT_TIMING,
    LIFE_SPREAD,
    RETRY,
    SILENCE_MARGIN,
    WatchEvent,
    WatchTiming,
    list_and_watch,
)
from tests.support.scripted_kube import Line, ScriptedWatchClient, make_bookmark, make_event, make_object
from tests.support.virtual_time import now, run_in_virtual_time

LIVES = (30.0, 30.0 * LIFE_SPREAD)
"""Seconds: the shortest and the longest life of a watch by default."""

PATH = "/api/v1/configmaps"


def make_list(version: str, *items: Json, more: str = "") -> Json:
    metadata = {"resourceVersion": version} | ({"continue": more} if more else {})
    return {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": list(items)}


def follow(
    client: ScriptedWatchClient, seconds: float, timing: WatchTiming = DEFAULT_TIMING
) -> list[tuple[float, WatchEvent]]:
    """Everything that comes in so many (virtual) seconds, and when."""
    seen: list[tuple[float, WatchEvent]] = []

    async def collect() -> None:
        async with aclosing(list_and_watch(client, PATH, {"labelSelector": "x=y"}, timing=timing)) as events:
            async for event in events:
                seen.append((now(), event))  # noqa: PERF401 - what was seen must survive the cancellation

    async def main() -> None:
        task = asyncio.create_task(collect())
        await asyncio.wait({task}, timeout=seconds)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    run_in_virtual_time(main())
    return seen


def names(seen: list[tuple[float, WatchEvent]]) -> list[str]:
    return [f"{event.type} {event.object.get('metadata', {}).get('name', '')}".strip() for _, event in seen]


def test_everything_is_listed_then_changes_follow() -> None:
    client = ScriptedWatchClient(
        [make_list("10", make_object("one", "5"))],
        [[make_event("MODIFIED", make_object("one", "11")), make_event("DELETED", make_object("one", "12")), 999]],
    )

    seen = follow(client, 20)

    assert names(seen) == ["ADDED one", "SYNCED", "MODIFIED one", "DELETED one"]
    assert [event.listed for _, event in seen] == [True, False, False, False]
    assert client.asked_for("list") == [{"labelSelector": "x=y", "limit": "500"}]
    watch = client.asked_for("watch")[0]
    assert watch["resourceVersion"] == "10"
    assert watch["allowWatchBookmarks"] == watch["watch"] == "true"
    assert watch["labelSelector"] == "x=y"


def test_pages_are_put_together_before_anything_is_said() -> None:
    client = ScriptedWatchClient(
        [
            make_list("10", make_object("one", "5"), more="token"),
            GoneError(410, "Expired", "the continue token is too old"),
            make_list("20", make_object("two", "6"), more="token"),
            make_list("20", make_object("three", "7")),
        ],
        [],
    )

    assert names(follow(client, 20)) == ["ADDED two", "ADDED three", "SYNCED"]
    assert [params.get("continue") for params in client.asked_for("list")] == [None, "token", None, "token"]


def test_listed_objects_say_what_they_are() -> None:
    bare = {"metadata": make_object("one", "5")["metadata"]}
    client = ScriptedWatchClient([make_list("10", bare)], [])

    listed = follow(client, 5)[0][1].object

    assert (listed["apiVersion"], listed["kind"]) == ("v1", "ConfigMap")


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ([30.0], "the server ended the watch"),
        ([UnreachableError(0, "Unreachable", "reset")], "the connection was cut"),
        ([999.0], "the connection went silent"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_watch_goes_on_where_the_last_one_ended(ending: list[Line], reason: str) -> None:
    change = make_event("MODIFIED", make_object("one", "11"))
    client = ScriptedWatchClient(
        [make_list("10")],
        [[change, make_bookmark("15"), *ending], [make_event("DELETED", make_object("one", "16")), 999.0]],
    )

    assert names(follow(client, 100)) == ["SYNCED", "MODIFIED one", "DELETED one"]
    assert [params["resourceVersion"] for params in client.asked_for("watch")][:2] == ["10", "15"], reason
    assert len(client.asked_for("list")) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        GoneError(410, "Expired", "too old"),
        make_event("ERROR", {"code": 410, "reason": "Expired", "message": "too old"}),
        make_event("ERROR", {"code": 500, "reason": "InternalError", "message": "?"}),
        NotFoundError(404, "NotFound", "the kind is gone"),
    ],
    ids=["410", "410 in the stream", "500 in the stream", "404"],
)
def test_a_watch_that_the_server_refuses_leads_to_a_new_list(refusal: Line) -> None:
    client = ScriptedWatchClient([make_list("10"), make_list("30", make_object("two", "25"))], [[refusal]])

    assert names(follow(client, 20)) == ["SYNCED", "ADDED two", "SYNCED"]
    assert client.asked_for("watch")[1]["resourceVersion"] == "30"


def test_a_dead_connection_is_left_early_enough_to_catch_up_within_75_seconds() -> None:
    client = ScriptedWatchClient([make_list("10")], [[999.0], [make_event("ADDED", make_object("new", "11")), 99.0]])

    at, event = follow(client, 100)[-1]

    assert event.type == "ADDED"
    assert LIVES[0] + SILENCE_MARGIN <= at <= LIVES[1] + 1 + SILENCE_MARGIN + RETRY.first * 2
    assert at < 75 - 20, "leaves time for a connection attempt that times out, and its pause"


def test_watches_do_not_all_end_together() -> None:
    lives = set()
    for _ in range(20):
        client = ScriptedWatchClient([make_list("10")], [])
        follow(client, 1)
        lives.add(client.asked_for("watch")[0]["timeoutSeconds"])

    assert len(lives) > 3
    assert all(LIVES[0] <= int(life) <= LIVES[1] for life in lives)


def test_everything_is_listed_again_after_the_resync_time() -> None:
    quiet: list[Line] = [30.0]
    client = ScriptedWatchClient([make_list(str(number)) for number in range(20)], [quiet] * 100)

    seen = follow(client, 1_000)

    times = [at for at, event in seen if event.type == "SYNCED"]
    assert all(300 <= later - sooner < 335 for sooner, later in pairwise(times))
    assert len(times) == 4


def test_a_short_resync_shortens_the_watch() -> None:
    client = ScriptedWatchClient([make_list("10")] * 10, [[2.0]] * 10)

    follow(client, 5, timing=WatchTiming(resync=timedelta(seconds=2)))

    assert {params["timeoutSeconds"] for params in client.asked_for("watch")} == {"2"}


@pytest.mark.parametrize(
    ("lists", "watches", "reason"),
    [
        ([UnreachableError(0, "Unreachable", "refused")] * 999, [], "nobody answers"),
        ([KubeError(403, "Forbidden", "no")] * 999, [], "the list is forbidden"),
        ([make_list("1")] * 999, [[GoneError(410, "Expired", "too old")]] * 999, "every version is too old"),
        ([make_list("1")] * 999, [[]] * 999, "every watch ends at once"),
        ([make_list("1")] * 999, [[UnreachableError(0, "Unreachable", "reset")]] * 999, "every watch is cut"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_trouble_never_becomes_a_busy_loop(
    lists: list[Json | KubeError], watches: list[list[Line]], reason: str
) -> None:
    client = ScriptedWatchClient(lists, watches)

    follow(client, 60)

    assert 60 / RETRY.longest <= len(client.asked) <= 60, reason


def test_contact_is_noted_also_when_there_is_nothing_to_say() -> None:
    client = ScriptedWatchClient([make_list("10")], [[20.0, make_bookmark("11"), 10.0], [999.0]])
    contacts: list[float] = []

    async def main() -> None:
        stream = list_and_watch(client, PATH, on_contact=lambda: contacts.append(now()))
        async with aclosing(stream) as events, asyncio.timeout(40):
            async for _ in events:
                pass

    with pytest.raises(TimeoutError):
        run_in_virtual_time(main())

    assert contacts == pytest.approx([0.0, 20.0, 30.0])
