"""The plugin's process: says on which port it listens, and serves until the engine, or whoever started it, is gone."""

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from providers.kubernetes.engine_log import EngineLog
from providers.kubernetes.servicer import KubernetesProvider

MESSAGE_BYTES = 400 * 1024 * 1024
"""As Pulumi itself: gRPC's own limit of 4 MB is too small for large stacks."""

OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
)
PARENT_SECONDS = 1.0


async def serve(engine: str) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with tempfile.TemporaryDirectory(prefix="pulumi-kubernetes-") as workplace:
        provider = KubernetesProvider(EngineLog(engine), Path(workplace))
        server = grpc.aio.server(options=OPTIONS)
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        parent = os.getppid()
        # An engine that is killed tells nobody.
        while not stopped.is_set() and os.getppid() == parent:
            await _pause(stopped)
        await server.stop(grace=0)
        await provider.close()


async def _pause(stopped: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stopped.wait(), PARENT_SECONDS)
    except TimeoutError:
        return


def main() -> None:
    # The engine passes its address, and sometimes flags for its logs, which are not for us.
    addresses = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    asyncio.run(serve(addresses[0] if addresses else ""))


if __name__ == "__main__":
    main()
