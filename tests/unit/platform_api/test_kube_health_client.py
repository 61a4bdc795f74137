"""How long a lost Kubernetes keeps anybody waiting: less than the 3 s within which every caller is answered."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import ConflictError, KubeClient, KubeError, UnreachableError
from platform_api.kube_health import BoundedClient, Pulse
from tests.support.virtual_time import now, run_in_virtual_time

ANSWERED_WITHIN = 3.0
NOTICED_WITHIN = 3.0
HEALED_WITHIN = 10.0


WRITTEN: Json = {"metadata": {"name": "x", "namespace": "acme"}}
STORED: Json = {**WRITTEN, "spec": {"image": "example/x"}}


class Server(KubeClient):
    """Answers, refuses, or hangs until its caller has no time left."""

    def __init__(self) -> None:
        self.hangs = False
        self.asked = 0
        self.refusal: KubeError | None = None

    async def text(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 10.0) -> str:
        await self._answer(path, timeout)
        return f"{params}"

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 10.0) -> Json:
        await self._answer(path, timeout)
        return {"params": params}

    async def create(
        self, path: str, body: Json, params: Mapping[str, str] | None = None, *, timeout: float = 10.0
    ) -> Json:
        await self._answer(path, timeout)
        return {**STORED, "body": body, "params": params}

    async def replace(
        self, path: str, body: Json, params: Mapping[str, str] | None = None, *, timeout: float = 10.0
    ) -> Json:
        await self._answer(path, timeout)
        return {**STORED, "body": body, "params": params}

    async def patch(self, path: str, body: Json | list[Json], *options: Any, timeout: float = 10.0) -> Json:
        await self._answer(path, timeout)
        return {**STORED, "body": body, "options": options}

    async def delete(self, path: str, body: Json | None = None, *, timeout: float = 10.0) -> Json:
        await self._answer(path, timeout)
        return {"body": body}

    async def _answer(self, path: str, timeout: float) -> None:
        self.asked += 1
        if self.hangs:
            await asyncio.sleep(timeout)
            raise UnreachableError(0, "Timeout", path)
        if self.refusal is not None:
            raise self.refusal


CALLS: dict[str, Callable[[BoundedClient], Awaitable[Json]]] = {
    "get": lambda client: client.get("/x"),
    "create": lambda client: client.create("/x", {}),
    "replace": lambda client: client.replace("/x", {}),
    "patch": lambda client: client.patch("/x", {}),
    "delete": lambda client: client.delete("/x"),
}


@pytest.mark.parametrize("verb", list(CALLS))
def test_a_call_that_hangs_is_given_up_before_its_caller_must_be_answered(verb: str) -> None:
    async def main() -> None:
        server = Server()
        server.hangs = True
        with pytest.raises(UnreachableError):
            await CALLS[verb](BoundedClient(server, Pulse(server)))
        assert 0 < now() < ANSWERED_WITHIN

    run_in_virtual_time(main())


WRITES: dict[str, Callable[[BoundedClient], Awaitable[Json]]] = {
    "create": lambda client: client.create("/x", WRITTEN),
    "replace": lambda client: client.replace("/x", WRITTEN),
    "patch": lambda client: client.patch("/x", WRITTEN),
}


@pytest.mark.parametrize("hangs", [False, True], ids=["answered", "unanswered"])
@pytest.mark.parametrize("verb", list(WRITES))
def test_what_is_written_is_counted_also_without_an_answer(verb: str, hangs: bool) -> None:
    async def main() -> None:
        server, counted = Server(), list[tuple[str, int]]()
        server.hangs = hangs
        stored = WRITTEN
        with suppress(UnreachableError):
            stored = await WRITES[verb](BoundedClient(server, Pulse(server), lambda *written: counted.append(written)))
        assert counted == [("acme", len(json.dumps(stored).encode()))]

    run_in_virtual_time(main())


def test_a_refused_write_and_a_deletion_are_not_counted() -> None:
    async def main() -> None:
        server, counted = Server(), list[tuple[str, int]]()
        server.refusal = ConflictError(409, "Conflict", "x")
        client = BoundedClient(server, Pulse(server), lambda *written: counted.append(written))
        with pytest.raises(ConflictError):
            await client.replace("/x", WRITTEN)
        server.refusal = None
        await client.delete("/x", WRITTEN)
        assert counted == []

    run_in_virtual_time(main())


@pytest.mark.parametrize("verb", list(CALLS))
def test_while_kubernetes_is_lost_a_call_fails_at_once_and_asks_nothing(verb: str) -> None:
    async def main() -> None:
        server = Server()
        server.hangs = True
        pulse = Pulse(server)
        await pulse.feel()
        asked, lost_at = server.asked, now()
        with pytest.raises(UnreachableError):
            await CALLS[verb](BoundedClient(server, pulse))
        assert (server.asked, now()) == (asked, lost_at)

    run_in_virtual_time(main())


def test_an_outage_and_its_end_are_noticed_in_time() -> None:
    async def main() -> None:
        server = Server()
        pulse = Pulse(server)
        running = asyncio.create_task(pulse.run())
        await asyncio.sleep(10)
        assert pulse.is_felt
        server.hangs = True
        await asyncio.sleep(NOTICED_WITHIN)
        assert pulse.problem == "no answer in time"
        server.hangs = False
        await asyncio.sleep(HEALED_WITHIN)
        assert pulse.is_felt
        running.cancel()
        await asyncio.wait({running})

    run_in_virtual_time(main())
