"""What the provider has to say beside its answers: lines beside a resource in Pulumi's own output."""

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

SAY_SECONDS = 5.0


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
