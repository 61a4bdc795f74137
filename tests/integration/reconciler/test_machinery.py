"""The reconciler's machinery on the real API server: what it survives, and how soon it is itself again.

The long stories run at the same time, each with a proxy and a cache, or with daemons, of its own. The last test
restarts the API server, alone.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from gpu_platform.adapters.kube import KubeClient
from gpu_platform.adapters.kube.connection import open_client
from gpu_platform.adapters.kube.guarded import GuardedClient
from gpu_platform.adapters.kube.leadership import Leadership, NotLeaderError
from gpu_platform.adapters.kube.paths import CONFIG_MAPS, EVENTS, LEASES, SERVICE_ACCOUNTS
from tests.support.clusters import RunningCluster
from tests.support.controllers import LEASE, Ground, compact, restart_api_server
from tests.support.mirror_daemon import LABEL, STEPS, mirrored
from tests.support.units_and_stock import find
from tests.support.waiting import eventually

HEALED_WITHIN = 75.0
"""Seconds, after whatever was broken is whole again; see `WATCH_SECONDS` of the watch."""

Story = Callable[[Ground], Awaitable[None]]


async def tell_of_cut_connections(ground: Ground) -> None:
    async with ground.follower() as follower:
        for name in ("one", "two", "three"):
            follower.proxy.cut()
            await follower.change(name)
            assert await follower.sees_everything(within=10) < 10
        await follower.delete("one")
        await follower.sees_everything(within=10)

        assert follower.deleted == {"one"}
        assert follower.client.lists == 1
        # The first cut may come before the first watch.
        assert follower.client.watches >= 3


async def tell_of_a_quiet_hour(ground: Ground) -> None:
    """Well, a minute: long enough for two watches to end by themselves."""
    async with ground.follower() as follower:

        async def third_watch() -> bool:
            assert follower.cache.seconds_since_contact < 45
            return follower.client.watches >= 3

        await eventually(third_watch, within=150, every=0.5)
        await follower.change("one")

        assert await follower.sees_everything(within=10) < 2
        assert follower.client.lists == 1


async def tell_of_a_dead_connection(ground: Ground) -> None:
    async with ground.follower() as follower:
        follower.proxy.freeze()
        follower.proxy.thaw(forget=True)
        await follower.do_one_of_each(created="four", changed="one", deleted="two")

        assert await follower.sees_everything(within=HEALED_WITHIN) < HEALED_WITHIN
        assert follower.deleted == {"two"}
        assert follower.client.lists == 1


async def tell_of_90_seconds_without_a_network(ground: Ground) -> None:
    async with ground.follower() as follower:
        follower.proxy.freeze()
        await follower.do_one_of_each(created="four", changed="one", deleted="two")
        await asyncio.sleep(90)
        assert follower.cache.get(follower.namespace, "two"), "the fault is not one"
        assert follower.cache.seconds_since_contact > 60
        attempts = follower.proxy.accepted
        follower.proxy.thaw(forget=True)

        assert await follower.sees_everything(within=HEALED_WITHIN) < HEALED_WITHIN
        assert follower.deleted == {"two"}
        assert attempts < 20


async def tell_of_an_api_server_that_is_away_for_20_seconds(ground: Ground) -> None:
    async with ground.follower() as follower:
        follower.proxy.refuse()
        asked = follower.client.lists + follower.client.watches
        await follower.do_one_of_each(created="four", changed="one", deleted="two")
        await asyncio.sleep(20)
        assert 3 <= follower.client.lists + follower.client.watches - asked <= 20
        follower.proxy.thaw()

        assert await follower.sees_everything(within=HEALED_WITHIN) < 10
        assert follower.deleted == {"two"}


async def tell_of_a_killed_leader(ground: Ground) -> None:
    async with ground.two_daemons() as (namespace, first, second):
        await ground.set_label(namespace, "one", "red")
        await ground.is_mirrored(namespace, "one", lambda *seen: seen == ("red", STEPS, first.pid))
        first.signal(signal.SIGKILL)
        await ground.set_label(namespace, "one", "blue")

        seconds = await ground.is_mirrored(
            namespace, "one", lambda *seen: seen[::2] == ("blue", second.pid), within=180
        )
        assert seconds <= 20
        assert (await second.says("leader.started"))["epoch"] == 2


async def tell_of_a_stopped_leader(ground: Ground) -> None:
    async with ground.two_daemons() as (namespace, first, second):
        await ground.set_label(namespace, "one", "red")
        await ground.is_mirrored(namespace, "one", lambda value, step, _: value == "red" and step >= 3)
        first.signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        await ground.is_mirrored(namespace, "one", lambda *seen: seen == ("red", STEPS, second.pid), within=90)
        await asyncio.sleep(stopped_at + 30 - time.monotonic())
        before = await ground.kube.get(CONFIG_MAPS.item("one", namespace))
        first.signal(signal.SIGCONT)
        await first.says("leader.lost")
        await asyncio.sleep(5)

        assert await ground.kube.get(CONFIG_MAPS.item("one", namespace)) == before
        lease = await ground.kube.get(LEASES.item(LEASE, namespace))
        assert lease["spec"]["holderIdentity"] == (await second.says("leader.started"))["identity"]
        # It is a candidate again, and not a harmed one.
        second.signal(signal.SIGTERM)
        await ground.set_label(namespace, "one", "blue")
        await ground.is_mirrored(namespace, "one", lambda *seen: seen == ("blue", STEPS, first.pid))


async def tell_of_an_orderly_end(ground: Ground) -> None:
    async with ground.two_daemons() as (namespace, first, second):
        await ground.set_label(namespace, "one", "red")
        await ground.is_mirrored(namespace, "one", lambda value, step, _: value == "red" and step >= 3)
        first.signal(signal.SIGTERM)
        assert await first.ends() == 0
        item = await ground.kube.get(CONFIG_MAPS.item("one", namespace))
        assert mirrored(item) == ("red", STEPS, first.pid), "the pass under way was not cut off"
        assert [entry for entry in first.entries() if entry["level"] in ("warning", "error")] == []

        await ground.set_label(namespace, "one", "blue")
        # It was handed over: who waits for the Lease's end waits 15 s.
        assert await ground.is_mirrored(namespace, "one", lambda *seen: seen[::2] == ("blue", second.pid)) < 10
        second.signal(signal.SIGINT)
        assert await second.ends() == 0


async def tell_of_what_it_answers(ground: Ground) -> None:
    async with (
        ground.namespace() as namespace,
        ground.daemon(namespace) as daemon,
        aiohttp.ClientSession() as session,
    ):
        await ground.set_label(namespace, "one", "red")
        await ground.is_mirrored(namespace, "one", lambda *seen: seen == ("red", STEPS, daemon.pid))
        started = await daemon.says("reconciler.started")

        async def ask(address: str, path: str) -> tuple[int, str]:
            async with session.get(f"http://{started[address]}{path}") as answer:
                return answer.status, await answer.text()

        assert await ask("probes", "/healthz") == (200, "ok\n")
        assert await ask("probes", "/readyz") == (200, "ok\n")

        async def pass_is_over() -> str | None:
            _, metrics = await ask("metrics", "/metrics")
            return metrics if 'passes_total{controller="mirror",result="done"}' in metrics else None

        metrics = await eventually(pass_is_over)
        assert f'api_writes_total{{resource="configmaps",verb="patch"}} {float(STEPS)}' in metrics
        assert 'api_writes_total{resource="events",verb="create"} 1.0' in metrics
        assert "is_leader 1.0" in metrics
        events = await ground.kube.get(EVENTS.collection(namespace))
        assert [(event["reason"], event["involvedObject"]["name"]) for event in events["items"]] == [
            ("Mirrored", "one")
        ]


STORIES = (
    tell_of_cut_connections,
    tell_of_a_quiet_hour,
    tell_of_a_dead_connection,
    tell_of_90_seconds_without_a_network,
    tell_of_an_api_server_that_is_away_for_20_seconds,
    tell_of_a_killed_leader,
    tell_of_a_stopped_leader,
    tell_of_an_orderly_end,
    tell_of_what_it_answers,
)


@pytest.fixture(scope="module")
def ground(cluster: RunningCluster, kube: KubeClient, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(cluster, kube, tmp_path_factory.mktemp("machinery"))


@pytest.fixture(scope="module")
async def told(ground: Ground) -> AsyncIterator[dict[Story, asyncio.Task[None]]]:
    """All stories, begun together: most of their time is waiting."""
    tasks: dict[Story, asyncio.Task[None]] = {
        story: asyncio.create_task(_tell(story, ground), name=story.__name__) for story in STORIES
    }
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _tell(story: Story, ground: Ground) -> None:
    await story(ground)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.removeprefix("tell_of_"))
async def test_the_machinery_survives(story: Story, told: dict[Story, asyncio.Task[None]]) -> None:
    await told[story]


class TurningClock:
    """Shows a good time for so many looks, and then one past every deadline."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def __call__(self) -> float:
        self._looks -= 1
        return 0.0 if self._looks >= 0 else 1_000.0


@pytest.mark.parametrize(
    ("write", "looks"),
    [("create", 2), ("create", 3), ("patch", 2), ("patch", 3), ("delete", 2)],
    ids=lambda value: {2: "with its connection in hand", 3: "with its headers written"}.get(value, value),
)
async def test_a_write_is_stopped_at_the_last_moment(ground: Ground, write: str, looks: int) -> None:
    """Two looks come with the call itself, at the deadline; the rest are those of the connection."""
    async with ground.namespace() as namespace, await open_client(ground.cluster.kubeconfig) as client:
        await ground.set_label(namespace, "one", "red")
        before = await client.get(CONFIG_MAPS.collection(namespace), {"labelSelector": LABEL})
        leadership = Leadership(TurningClock(looks))
        leadership.begin(epoch=1, deadline=10.0)
        writer = GuardedClient(client, leadership)
        attempts = {
            "create": lambda: writer.create(CONFIG_MAPS.collection(namespace), {"metadata": {"name": "two"}}),
            "patch": lambda: writer.patch(CONFIG_MAPS.item("one", namespace), {"data": {"late": "yes"}}),
            "delete": lambda: writer.delete(CONFIG_MAPS.item("one", namespace)),
        }
        with pytest.raises(NotLeaderError, match="does not lead"):
            await attempts[write]()

        after = await client.get(CONFIG_MAPS.collection(namespace), {"labelSelector": LABEL})
        assert after["items"] == before["items"]


async def test_a_version_that_the_server_forgot_leads_to_a_new_list(ground: Ground) -> None:
    """Compaction alone is not enough: the API server's memory still knows. So it is restarted, too."""
    async with ground.follower() as follower:
        follower.proxy.refuse()
        await follower.do_one_of_each(created="four", changed="one", deleted="two")
        await follower.change("one")
        await compact(ground.cluster)
        await restart_api_server(ground.cluster, ground.kube)
        follower.proxy.thaw()

        assert await follower.sees_everything(within=HEALED_WITHIN) < HEALED_WITHIN
        assert follower.deleted == {"two"}
        assert follower.client.expired == 1
        assert follower.client.lists == 2
    await wait_for_controllers(ground)


async def wait_for_controllers(ground: Ground) -> None:
    """Until Kubernetes' own controllers are back at the restarted API server too: whoever comes next needs them."""
    async with ground.namespace() as namespace:
        await eventually(lambda: find(ground.kube, SERVICE_ACCOUNTS.item("default", namespace)), within=120)
