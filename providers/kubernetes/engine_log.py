"""What the provider has to say beside its answers: lines beside a resource in Pulumi's own output."""

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc


class EngineLog:
    """Says nothing while no engine is known, or when it cannot be reached: a remark must not fail an update."""

    def __init__(self, address: str = "") -> None:
        self._channel: grpc.aio.Channel | None = None
        self.connect(address)

    def connect(self, address: str) -> None:
        if address:
            self._channel = grpc.aio.insecure_channel(address)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    async def warn(self, urn: str, message: str) -> None:
        await self._say(urn, message, engine_pb2.WARNING, ephemeral=False)

    async def show(self, urn: str, message: str) -> None:
        """A state that the next one replaces."""
        await self._say(urn, message, engine_pb2.INFO, ephemeral=True)

    async def _say(
        self, urn: str, message: str, severity: engine_pb2.LogSeverity.ValueType, *, ephemeral: bool
    ) -> None:
        if self._channel is None:
            return
        request = engine_pb2.LogRequest(severity=severity, urn=urn, message=message, ephemeral=ephemeral)
        try:
            await engine_pb2_grpc.EngineStub(self._channel).Log(request, timeout=5)
        except grpc.RpcError:
            return
