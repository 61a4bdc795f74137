"""Whether the servers keep what they acknowledge, also through a power cut of them all."""

import json
from dataclasses import dataclass
from typing import Any

from nats.aio.subscription import Subscription

from gpu_platform.nats.connection import ANSWER_SECONDS, QueueAccess, open_client
from gpu_platform.nats.errors import QueueUnavailableError, translated
from gpu_platform.nats.permissions import SERVERS, QueueUser, inbox_prefix_of

QUIET_SECONDS = 1.0
"""Nobody knows how many servers there are: who has not answered after this much silence is not there."""

ENOUGH_REPLICAS = 3
"""A majority of as many has each message, in memory at least: not all of them lose their power at once."""


class NotDurableError(Exception):
    """A server acknowledges what it may still lose. The message names it and the fix."""


@dataclass(frozen=True)
class ServerSync:
    name: str
    has_jetstream: bool
    syncs_always: bool


async def check_durability(access: QueueAccess, replicas: int, name: str = "durability") -> None:
    """`access` is that of the `system` user. NotDurableError; QueueUnavailableError where no server answers."""
    async with open_client(access, name, inbox_prefix=inbox_prefix_of(QueueUser.SYSTEM)) as client:
        with translated():
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox)
            await client.publish(f"{SERVERS}.VARZ", reply=inbox)
            servers = []
            seconds: float = ANSWER_SECONDS
            while answer := await _next(answers, seconds):
                servers.append(read_server(json.loads(answer)))
                seconds = QUIET_SECONDS
    if not any(server.has_jetstream for server in servers):
        raise QueueUnavailableError("NATS says nothing about its servers; are these the credentials of `system`?")
    judge_durability(servers, replicas)


def judge_durability(servers: list[ServerSync], replicas: int) -> None:
    if replicas >= ENOUGH_REPLICAS:
        return
    loose = sorted(server.name for server in servers if server.has_jetstream and not server.syncs_always)
    if loose:
        raise NotDurableError(
            f"{', '.join(loose)} of NATS may lose what it has acknowledged: with {replicas} replica(s), "
            "set `sync_interval: always` in the jetstream block of its configuration"
        )


def read_server(document: dict[str, Any]) -> ServerSync:
    """Of an answer to VARZ. Where it is not said that it syncs always, it does not."""
    config = document.get("data", {}).get("jetstream", {}).get("config") or {}
    name = document.get("server", {}).get("name", "a server")
    return ServerSync(str(name), bool(config), config.get("sync_always") is True)


async def _next(answers: Subscription, seconds: float) -> bytes | None:
    """Empty where nobody may be asked."""
    try:
        return bytes((await answers.next_msg(timeout=seconds)).data)
    except TimeoutError:
        return None
