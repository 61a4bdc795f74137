"""Pulumi's provider protocol: requests decoded, handed on, and answered; failures as one readable line. `hosted` is the
provider inside a process that lives already: Pulumi attaches to it instead of starting one.

Nothing is kept between two calls but who is attached: any number of engines may be at work at once.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from gpu_platform.clock import now_utc
from gpu_platform.kube import KubeClient, open_client
from gpu_platform.pulumi_protocol.properties import (
    Properties,
    decode_properties,
    encode_properties,
    find_moved_secrets,
    without_inner,
)
from gpu_platform.pulumi_protocol.resource import Difference, resource_of
from gpu_platform.pulumi_protocol.responses import check_response, diff_response, read_response, readable
from gpu_platform.pulumi_protocol.serving import EngineLog, listening
from providers.cluster.inputs import check_inputs, find_difference
from providers.cluster.kinds import build_package_schema, get_kind
from providers.cluster.lifecycle import Lifecycle, Session
from providers.cluster.objects import build_planned_outputs
from providers.cluster.resources import VERSION

LIMIT = 1_000
"""Engines that are remembered. They end without a word, so the ones that were not heard of for longest are forgotten;
far more than one process ever has attached at once."""

USER_AGENT = "pulumi-gpuplatform"


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


class ClusterProvider(provider_pb2_grpc.ResourceProviderServicer):
    """Works with the given client, which stays its owner's; or with one of its own, of KUBECONFIG, opened when it is
    first needed."""

    def __init__(self, client: KubeClient | None = None, engine: str = "") -> None:
        self._client = client
        self._own: KubeClient | None = None
        self._opening = asyncio.Lock()
        self._sessions = Sessions(engine)

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()

    async def GetPluginInfo(self, request: Any, context: Any) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=VERSION)

    async def GetSchema(self, request: Any, context: Any) -> provider_pb2.GetSchemaResponse:
        return provider_pb2.GetSchemaResponse(schema=json.dumps(build_package_schema()))

    async def Handshake(self, request: Any, context: Any) -> None:
        # The engine goes on without it; left out, each run would be an error in the log of the process around us.
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "the provider needs no handshake")

    async def Attach(self, request: Any, context: Any) -> empty_pb2.Empty:
        self._sessions.of(context.peer()).log.connect(request.address)
        return empty_pb2.Empty()

    async def Cancel(self, request: Any, context: Any) -> empty_pb2.Empty:
        self._sessions.of(context.peer()).cancelled.set()
        return empty_pb2.Empty()

    async def CheckConfig(self, request: Any, context: Any) -> provider_pb2.CheckResponse:
        return check_response(decode_properties(request.news))

    async def DiffConfig(self, request: Any, context: Any) -> provider_pb2.DiffResponse:
        return diff_response(Difference({}))

    async def Configure(self, request: Any, context: Any) -> provider_pb2.ConfigureResponse:
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    @readable
    async def Check(self, request: Any, context: Any) -> provider_pb2.CheckResponse:
        news = decode_properties(request.news)
        checked = check_inputs(get_kind(resource_of(request).token), news.tree)
        secrets = without_inner(find_moved_secrets(news.secrets, news.tree, checked.inputs))
        return check_response(Properties(checked.inputs, secrets), checked.failures)

    @readable
    async def Diff(self, request: Any, context: Any) -> provider_pb2.DiffResponse:
        old_inputs, outputs, news = (
            decode_properties(each).tree for each in (request.old_inputs, request.olds, request.news)
        )
        return diff_response(find_difference(get_kind(resource_of(request).token), old_inputs, outputs, news))

    @readable
    async def Create(self, request: Any, context: Any) -> provider_pb2.CreateResponse:
        resource, inputs = resource_of(request), decode_properties(request.properties)
        if request.preview:
            object_id, outputs = "", build_planned_outputs(get_kind(resource.token), inputs)
        else:
            lifecycle = await self._lifecycle(resource.token, context)
            object_id, outputs = await lifecycle.create(resource, inputs)
        return provider_pb2.CreateResponse(id=object_id, properties=encode_properties(outputs))

    @readable
    async def Read(self, request: Any, context: Any) -> provider_pb2.ReadResponse:
        lifecycle = await self._lifecycle(resource_of(request).token, context)
        known = decode_properties(request.properties).tree.get("uid")
        return read_response(await lifecycle.read(request.id, decode_properties(request.inputs), known))

    @readable
    async def Update(self, request: Any, context: Any) -> provider_pb2.UpdateResponse:
        resource, inputs = resource_of(request), decode_properties(request.news)
        before = decode_properties(request.olds).tree
        if request.preview:
            outputs = build_planned_outputs(get_kind(resource.token), inputs, before)
        else:
            outputs = await (await self._lifecycle(resource.token, context)).update(resource, before, inputs)
        return provider_pb2.UpdateResponse(properties=encode_properties(outputs))

    @readable
    async def Delete(self, request: Any, context: Any) -> empty_pb2.Empty:
        resource, outputs = resource_of(request), decode_properties(request.properties).tree
        await (await self._lifecycle(resource.token, context)).delete(resource, request.id, outputs)
        return empty_pb2.Empty()

    async def _lifecycle(self, token: str, context: Any) -> Lifecycle:
        session = self._sessions.of(context.peer())
        return Lifecycle(await self._connected(), get_kind(token), session, now_utc)

    async def _connected(self) -> KubeClient:
        async with self._opening:
            if self._client is None:
                self._client = self._own = await open_client(None, USER_AGENT)
            return self._client


@asynccontextmanager
async def hosted(client: KubeClient) -> AsyncIterator[int]:
    """The port of the provider, on 127.0.0.1, while the block runs. The client stays its owner's to close."""
    async with listening(ClusterProvider(client)) as port:
        yield port
