"""Digests of FRP tokens are computed beside the event loop, and each tenant waits for its own."""

import asyncio
import threading

import pytest

from gpu_platform.domain.ssh import hash_token
from platform_api.gpu_units import acceptance as token_digests
from platform_api.gpu_units.acceptance import TokenDigests

LOOP_SECONDS = 60.0
"""Far more than an event loop needs for one turn: only a blocked one takes as long."""


async def test_the_event_loop_turns_while_a_digest_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    has_turned = threading.Event()

    def compute(*_: object) -> str:
        return "turned" if has_turned.wait(LOOP_SECONDS) else "blocked"

    monkeypatch.setattr(token_digests, "find_token_hash", compute)
    finding = asyncio.create_task(TokenDigests().find("tenant-a", "lab", "token"))
    await asyncio.sleep(0)
    has_turned.set()

    assert (await finding).digest == "turned"


async def test_many_tokens_of_one_tenant_wait_behind_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    all_asked = threading.Event()

    def compute(_: str, namespace: str, *__: object) -> str:
        all_asked.wait(LOOP_SECONDS)
        order.append(namespace)
        return ""

    monkeypatch.setattr(token_digests, "find_token_hash", compute)
    digests = TokenDigests()
    async with asyncio.TaskGroup() as asking:
        for index in range(20):
            asking.create_task(digests.find("greedy", "lab", f"token-{index}"))
        asking.create_task(digests.find("modest", "lab", "token"))
        await asyncio.sleep(0)
        all_asked.set()

    assert order.index("modest") == 1
    assert order.count("greedy") == 20


async def test_the_digest_is_the_unit_s_and_the_token_is_not_shown() -> None:
    found = await TokenDigests().find("runtime-instance", "lab", "open-sesame")

    assert found.digest == hash_token("open-sesame", "runtime-instance", "lab")
    assert "open-sesame" not in repr(found)
