"""Informers, leader election and fencing on the real API server: what they survive.

`test_informer_watch.py` and `test_leader_election.py` assert the times in which they must recover, in virtual time.
"""

import signal
from datetime import datetime

import aiohttp
import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient
from gpu_platform.kube.connection import open_client
from gpu_platform.kube.fencing import GuardedClient, Leadership, NotLeaderError
from gpu_platform.kube.paths import CONFIG_MAPS, EVENTS, SERVICE_ACCOUNTS
from tests.support.clusters import RunningCluster
from tests.support.controllers import LEASE_SECONDS, WATCH_SECONDS, Ground, compact, restart_api_server
from tests.support.mirror_daemon import LABEL, STEPS, mirrored
from tests.support.units_and_stock import find
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def ground(cluster: RunningCluster, kube: KubeClient, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(cluster, kube, tmp_path_factory.mktemp("machinery"))


async def test_cut_connections_lose_no_change_and_need_no_new_list(ground: Ground) -> None:
    async with ground.follower() as follower:
        for name in ("one", "two", "three"):
            follower.proxy.cut()
            await follower.change(name)
            await follower.sees_everything()
        await follower.delete("one")
        await follower.sees_everything()

        assert follower.deleted == {"one"}
        assert follower.client.lists == 1
        # The first cut may come before the first watch.
        assert follower.client.watches >= 3


async def test_watches_that_end_by_themselves_are_followed_by_others(ground: Ground) -> None:
    async with ground.follower() as follower:

        async def third_watch() -> bool:
            return follower.client.watches >= 3

        await eventually(third_watch)
        await follower.change("one")
        await follower.sees_everything()

        assert follower.client.lists == 1


async def test_a_connection_that_died_silently_is_replaced(ground: Ground) -> None:
    async with ground.follower() as follower:
        follower.proxy.freeze()
        follower.proxy.thaw(forget=True)
        await follower.do_one_of_each(created="four", changed="one", deleted="two")
        await follower.sees_everything()

        assert follower.deleted == {"two"}
        assert follower.client.lists == 1


async def test_a_cache_without_a_network_knows_it_and_catches_up(ground: Ground) -> None:
    async with ground.follower() as follower:
        follower.proxy.freeze()
        before = follower.proxy.accepted
        await follower.do_one_of_each(created="four", changed="one", deleted="two")

        async def has_tried_again() -> bool:
            return follower.proxy.accepted >= before + 2

        await eventually(has_tried_again)
        assert follower.cache.get(follower.namespace, "two"), "the fault is not one"
        # Its watch should have ended by itself before.
        assert follower.cache.seconds_since_contact > WATCH_SECONDS
        follower.proxy.thaw(forget=True)

        await follower.sees_everything()
        assert follower.deleted == {"two"}


async def test_an_api_server_that_is_away_is_asked_again_until_it_is_back(ground: Ground) -> None:
    """How often, `test_trouble_never_becomes_a_busy_loop` says."""
    async with ground.follower() as follower:
        follower.proxy.refuse()
        asked = follower.client.lists + follower.client.watches
        await follower.do_one_of_each(created="four", changed="one", deleted="two")

        async def has_asked_again() -> bool:
            return follower.client.lists + follower.client.watches >= asked + 3

        await eventually(has_asked_again)
        follower.proxy.thaw()

        await follower.sees_everything()
        assert follower.deleted == {"two"}


async def test_a_leader_that_ends_finishes_its_pass_and_hands_the_lease_over(ground: Ground) -> None:
    async with ground.two_daemons() as (namespace, first, second):
        await ground.set_label(namespace, "one", "red")
        await ground.is_mirrored(namespace, "one", lambda value, step, _: value == "red" and step >= 3)
        first.signal(signal.SIGTERM)
        assert await first.ends() == 0
        item = await ground.kube.get(CONFIG_MAPS.item("one", namespace))
        assert mirrored(item) == ("red", STEPS, first.pid), "the pass under way was not cut off"
        assert [entry for entry in first.entries() if entry["level"] in ("warning", "error")] == []

        await ground.set_label(namespace, "one", "blue")
        await ground.is_mirrored(namespace, "one", lambda *seen: seen[::2] == ("blue", second.pid))
        waited = _time_of(await second.says("leader.started")) - _time_of(await first.says("reconciler.stopped"))
        assert waited.total_seconds() < LEASE_SECONDS, "it waited for the Lease's end"
        second.signal(signal.SIGINT)
        assert await second.ends() == 0


async def test_a_reconciler_answers_probes_and_shows_its_work_in_metrics_and_events(ground: Ground) -> None:
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


def _time_of(entry: Json) -> datetime:
    return datetime.fromisoformat(entry["time"])


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

        await follower.sees_everything()
        assert follower.deleted == {"two"}
        assert follower.client.expired == 1
        assert follower.client.lists == 2
    await wait_for_controllers(ground)


async def wait_for_controllers(ground: Ground) -> None:
    """Until Kubernetes' own controllers are back at the restarted API server too: whoever comes next needs them."""
    async with ground.namespace() as namespace:
        await eventually(lambda: find(ground.kube, SERVICE_ACCOUNTS.item("default", namespace)))
