"""A provider as a server: in a process of its own that the engine starts, or in one that lives already."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

MESSAGE_BYTES = 400 * 1024 * 1024
"""As Pulumi itself: gRPC's own limit of 4 MB is too small for large stacks."""

OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
)
PARENT_SECONDS = 1.0


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
            await _pause(stopped)


def find_engine(arguments: list[str]) -> str:
    """The engine passes its address, and sometimes flags for its logs, which are not for us."""
    addresses = [argument for argument in arguments if not argument.startswith("-")]
    return addresses[0] if addresses else ""


async def _pause(stopped: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stopped.wait(), PARENT_SECONDS)
    except TimeoutError:
        return
