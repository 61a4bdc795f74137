"""The engines that are attached, each known by its connection: one's cancellation must not stop another's work."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from providers.protocol.engine_log import EngineLog

LIMIT = 1_000
"""Engines that are remembered. They end without a word, so the ones that were not heard of for longest are forgotten;
far more than one process ever has attached at once."""


@dataclass(frozen=True)
class Session:
    log: EngineLog
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)


class Sessions:
    def __init__(self, engine: str = "") -> None:
        """`engine` is the address of the one that started this process, if one did."""
        self._engine = engine
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def of(self, peer: str) -> Session:
        session = self._sessions.setdefault(peer, Session(EngineLog(self._engine)))
        self._sessions.move_to_end(peer)
        if len(self._sessions) > LIMIT:
            self._sessions.popitem(last=False)
        return session
