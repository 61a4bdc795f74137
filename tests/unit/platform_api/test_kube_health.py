"""When Kubernetes counts as lost: judged by more than one answer, in virtual time."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, KubeError, NotFoundError, UnreachableError
from platform_api.kube_health import BoundedClient, Pulse, judge
from tests.support.virtual_time import now, run_in_virtual_time

NO_ANSWER = "no answer in time"


@dataclass
class Server(KubeClient):
    """How long it takes for `/readyz` and for everything else; what has not come in time fails."""

    readiness_seconds: float = 0.01
    call_seconds: float = 0.01
    readiness_error: KubeError | None = None
    call_error: KubeError | None = None
    calls: int = 0

    async def text(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 10.0) -> str:
        await self._take(path, self.readiness_seconds, timeout)
        if self.readiness_error:
            raise self.readiness_error
        return f"{params}"

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 10.0) -> Json:
        self.calls += 1
        await self._take(path, self.call_seconds, timeout)
        if self.call_error:
            raise self.call_error
        return {"params": params}

    async def _take(self, path: str, seconds: float, timeout: float) -> None:
        await asyncio.sleep(min(seconds, timeout))
        if seconds > timeout:
            raise UnreachableError(0, "Timeout", path)


def lost(**fields: Any) -> Server:
    return Server(readiness_seconds=60, call_seconds=60, **fields)


@pytest.mark.parametrize("readiness", [None, NO_ANSWER], ids=["answers", "fails"])
@pytest.mark.parametrize("call_answered", [False, True])
@pytest.mark.parametrize("requests_answered", [False, True])
def test_only_what_fails_in_every_way_is_lost(
    readiness: str | None, *, call_answered: bool, requests_answered: bool
) -> None:
    problem = judge(readiness, call_answered=call_answered, requests_answered=requests_answered)
    expected = NO_ANSWER if readiness and not call_answered and not requests_answered else None
    assert problem == expected


@pytest.mark.parametrize(
    "server",
    [
        Server(readiness_seconds=60),
        Server(readiness_error=KubeError(500, "Unknown", "[-]etcd failed")),
        # A refusal is an answer of a server that works.
        Server(readiness_seconds=60, call_error=NotFoundError(404, "NotFound", "no such kind")),
        Server(readiness_seconds=60, call_error=KubeError(429, "TooManyRequests", "later")),
    ],
    ids=["slow", "not ready", "slow, and refuses", "slow, and busy"],
)
def test_a_readyz_that_fails_refuses_nothing_while_calls_are_answered(server: Server) -> None:
    async def main() -> None:
        pulse = Pulse(server)
        running = asyncio.create_task(pulse.run())
        client = BoundedClient(Server(), pulse)
        for _ in range(100):
            await asyncio.sleep(0.3)
            await client.get("/x")
        assert pulse.is_felt
        assert server.calls
        running.cancel()
        await asyncio.wait({running})

    run_in_virtual_time(main())


def test_calls_of_requests_that_are_answered_speak_for_kubernetes() -> None:
    async def main() -> None:
        pulse = Pulse(lost())
        requests = BoundedClient(Server(), pulse)
        feeling = asyncio.create_task(pulse.feel())
        await asyncio.sleep(0.2)
        await requests.get("/x")
        await feeling
        assert pulse.is_felt
        # The next time, none speaks for it: an answer from before the question counts no more.
        await pulse.feel()
        assert pulse.problem == NO_ANSWER

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    "error", [UnreachableError(0, "Unreachable", "refused"), KubeError(503, "Unknown", "no leader")]
)
def test_calls_of_requests_that_fail_do_not(error: KubeError) -> None:
    async def main() -> None:
        pulse = Pulse(lost())
        requests = BoundedClient(Server(call_error=error), pulse)
        feeling = asyncio.create_task(pulse.feel())
        await asyncio.sleep(0.2)
        with pytest.raises(KubeError):
            await requests.get("/x")
        await feeling
        assert pulse.problem == NO_ANSWER

    run_in_virtual_time(main())


def test_a_connection_that_is_refused_once_is_asked_for_again_after_a_pause() -> None:
    async def main() -> None:
        refused = UnreachableError(0, "Unreachable", "refused")
        server = Server(readiness_error=refused, call_error=refused)
        pulse = Pulse(server)
        feeling = asyncio.create_task(pulse.feel())
        await asyncio.sleep(0.1)
        server.call_error = None
        await feeling
        assert pulse.is_felt
        server.call_error = refused
        await pulse.feel()
        assert pulse.problem == "no connection"
        assert now() < 2

    run_in_virtual_time(main())


def test_an_outage_counts_from_its_first_sign_and_ends_with_an_answer() -> None:
    async def main() -> None:
        server = Server()
        pulse = Pulse(server)
        await pulse.feel()
        assert pulse.lost_seconds == 0

        server.readiness_seconds = server.call_seconds = 60
        began_at = now()
        await pulse.feel()
        assert pulse.lost_seconds == now() - began_at > 0
        await pulse.feel()
        assert pulse.lost_seconds == now() - began_at

        server.readiness_seconds = 0.01
        await pulse.feel()
        assert pulse.lost_seconds == 0

    run_in_virtual_time(main())
