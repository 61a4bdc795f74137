"""Computes the digests of FRP tokens in a thread: each takes milliseconds, and the event loop serves all tenants."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from weakref import WeakValueDictionary

from gpu_platform.domain.ssh import find_token_hash, hash_token_unsalted
from gpu_platform.store.ssh_tokens import UnitToken

THREADS = 1
"""However many tokens are sent, their digests occupy at most one core. That is 100 to 200 tokens per second."""


class TokenDigests:
    """Computes one digest at a time for each tenant: many tokens of one tenant wait for each other, not in front of
    those of other tenants."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="token-digest")
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    async def find(self, namespace: str, unit: str, token: str, known: str | None = None) -> UnitToken:
        """Returns the token with its digest; `known` as in `find_token_hash`."""
        return UnitToken(token, await self._compute(namespace, partial(find_token_hash, token, namespace, unit, known)))

    async def find_unsalted(self, namespace: str, token: str) -> str:
        """Returns the digest of this tenant's token as earlier versions recorded it."""
        return await self._compute(namespace, partial(hash_token_unsalted, token))

    async def _compute(self, namespace: str, digest: Callable[[], str]) -> str:
        turn = self._turns.setdefault(namespace, asyncio.Lock())
        async with turn:
            return await asyncio.get_running_loop().run_in_executor(self._threads, digest)
