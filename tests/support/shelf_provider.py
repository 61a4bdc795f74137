"""A provider of the package `gpuplatform` that keeps its objects in memory: what the runner needs, and no cluster."""

# ruff: noqa: ARG002, N802 -- names and arguments are the protocol's

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pulumi
from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from gpu_platform.domain.json_text import Json

TOKEN = "gpuplatform:index:Shelf"  # noqa: S105 -- a type token
THREADS = 16
LIMIT_SECONDS = 60


class Shelf(pulumi.CustomResource):
    """The program's side. The outputs are the inputs, and `shelf`, which the provider adds."""

    shelf: pulumi.Output[str]

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(TOKEN, name, {**properties, "shelf": None})


@dataclass
class Shelves:
    """The world behind the provider, which a test looks at and changes."""

    things: dict[str, Json] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    """What `Create` of the resource with this name fails with."""

    held: dict[str, threading.Event] = field(default_factory=dict)
    """`Create` of the resource with this name waits for the event."""

    reached: dict[str, threading.Event] = field(default_factory=dict)
    """Set when such a `Create` has come."""

    previews: int = 0

    def hold(self, name: str) -> threading.Event:
        self.reached[name] = threading.Event()
        self.held[name] = threading.Event()
        return self.reached[name]

    def let_go(self, name: str) -> None:
        self.held.pop(name).set()


class ShelfProvider(provider_pb2_grpc.ResourceProviderServicer):
    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves

    def Handshake(self, request: Any, context: Any) -> provider_pb2.ProviderHandshakeResponse:
        return provider_pb2.ProviderHandshakeResponse()

    def Attach(self, request: Any, context: Any) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    def GetPluginInfo(self, request: Any, context: Any) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version="0.1.0")

    def CheckConfig(self, request: Any, context: Any) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> provider_pb2.DiffResponse:
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> provider_pb2.ConfigureResponse:
        return provider_pb2.ConfigureResponse(acceptSecrets=False, supportsPreview=True)

    def Check(self, request: Any, context: Any) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    def Diff(self, request: Any, context: Any) -> provider_pb2.DiffResponse:
        old, new = to_json(request.old_inputs), to_json(request.news)
        changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
        kind = provider_pb2.PropertyDiff.UPDATE
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=changed,
            detailedDiff={name: provider_pb2.PropertyDiff(kind=kind, inputDiff=True) for name in changed},
            hasDetailedDiff=True,
        )

    def Create(self, request: Any, context: Any) -> provider_pb2.CreateResponse:
        if request.preview:
            self._shelves.previews += 1
            return provider_pb2.CreateResponse(properties=request.properties)
        if request.name in self._shelves.held:
            held = self._shelves.held[request.name]
            self._shelves.reached[request.name].set()
            held.wait(LIMIT_SECONDS)
        if request.name in self._shelves.refusals:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, self._shelves.refusals[request.name])
        return provider_pb2.CreateResponse(
            id=request.name, properties=self._put(request.name, to_json(request.properties))
        )

    def Read(self, request: Any, context: Any) -> provider_pb2.ReadResponse:
        there = self._shelves.things.get(request.id)
        if there is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(
            id=request.id,
            inputs=to_struct({name: value for name, value in there.items() if name != "shelf"}),
            properties=to_struct(there),
        )

    def Update(self, request: Any, context: Any) -> provider_pb2.UpdateResponse:
        if request.preview:
            self._shelves.previews += 1
            return provider_pb2.UpdateResponse(properties=request.news)
        return provider_pb2.UpdateResponse(properties=self._put(request.id, to_json(request.news)))

    def Delete(self, request: Any, context: Any) -> empty_pb2.Empty:
        self._shelves.things.pop(request.id, None)
        return empty_pb2.Empty()

    def Cancel(self, request: Any, context: Any) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    def _put(self, name: str, properties: Json) -> struct_pb2.Struct:
        self._shelves.things[name] = {**properties, "shelf": f"shelf of {name}"}
        return to_struct(self._shelves.things[name])


@contextmanager
def serve(shelves: Shelves) -> Iterator[int]:
    """The port of a provider that is there until the end of the block."""
    server = grpc.server(ThreadPoolExecutor(THREADS))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(ShelfProvider(shelves), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        for name in list(shelves.held):
            shelves.let_go(name)
        server.stop(0).wait()


def to_json(properties: Any) -> Json:
    return dict(json_format.MessageToDict(properties))


def to_struct(properties: Json) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(properties)
    return struct
