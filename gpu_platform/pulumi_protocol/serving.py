"""A provider as a server, in a process of its own that the engine starts or in one that lives already; and its lines
beside a resource in Pulumi's own output."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2_grpc

from gpu_platform.clock import wait_at_most

SAY_SECONDS = 5.0

MESSAGE_BYTES = 400 * 1024 * 1024
"""As Pulumi itself: gRPC's own limit of 4 MB is too small for large stacks."""

OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
)

PARENT_SECONDS = 1.0


class EngineLog:
    """Says nothing while no engine is known, or when it cannot be reached: a remark must not fail an update."""

    def __init__(self, address: str = "") -> None:
        self._address = address

    def connect(self, address: str) -> None:
        self._address = address or self._address

    async def warn(self, urn: str, message: str) -> None:
        await self._say(urn, message, engine_pb2.WARNING, ephemeral=False)

    async def show(self, urn: str, message: str) -> None:
        """A state that the next one replaces."""
        await self._say(urn, message, engine_pb2.INFO, ephemeral=True)

    async def _say(
        self, urn: str, message: str, severity: engine_pb2.LogSeverity.ValueType, *, ephemeral: bool
    ) -> None:
        if not self._address:
            return
        request = engine_pb2.LogRequest(severity=severity, urn=urn, message=message, ephemeral=ephemeral)
        try:
            # A connection for each line: they are few, and an engine ends without a word.
            async with grpc.aio.insecure_channel(self._address) as channel:
                await engine_pb2_grpc.EngineStub(channel).Log(request, timeout=SAY_SECONDS)
        except grpc.RpcError:
            return


@asynccontextmanager
async def listening(provider: provider_pb2_grpc.ResourceProviderServicer) -> AsyncIterator[int]:
    """The port on which it answers while the block runs."""
    server = grpc.aio.server(options=OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port: int = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace=0)


async def serve(provider: provider_pb2_grpc.ResourceProviderServicer) -> None:
    """A plugin's life: it says on which port it listens, and serves until the engine that started it is gone."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with listening(provider) as port:
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        parent = os.getppid()
        # An engine that is killed tells nobody.
        while not stopped.is_set() and os.getppid() == parent:
            await wait_at_most(PARENT_SECONDS, stopped)


def find_engine(arguments: list[str]) -> str:
    """The engine passes its address, and sometimes flags for its logs, which are not for us."""
    addresses = [argument for argument in arguments if not argument.startswith("-")]
    return addresses[0] if addresses else ""
