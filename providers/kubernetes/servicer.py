"""Pulumi's provider protocol: requests decoded, handed on, and answered; failures as one readable line."""

import asyncio
import functools
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from gpu_platform.adapters.kube import NoConnectionError, open_client
from providers.kubernetes.cluster import Cluster
from providers.kubernetes.configuration import UNSUPPORTED, Configuration, read_configuration
from providers.kubernetes.diffing import Change, find_changes
from providers.kubernetes.engine_log import EngineLog
from providers.kubernetes.failures import ResourceFailedError
from providers.kubernetes.functions import BadArgumentError, UnknownFunctionError, call_function
from providers.kubernetes.helm_releases import IDENTITY, build_planned_release, check_release, refusal
from providers.kubernetes.kubeconfig import find_kubeconfig, is_content
from providers.kubernetes.lifecycle import Difference, IncompleteError, Lifecycle, Resource
from providers.kubernetes.object_names import Naming, build_name
from providers.kubernetes.plugin_version import read_version
from providers.kubernetes.property_paths import path_text
from providers.kubernetes.property_values import Properties, decode_properties, encode_properties
from providers.kubernetes.type_tokens import HELM_RELEASE

USER_AGENT = "pulumi-kubernetes-stand-in"
READABLE = (ResourceFailedError, NoConnectionError, ValueError)

Answer = TypeVar("Answer")
Handler = Callable[["KubernetesProvider", Any, Any], Awaitable[Answer]]


def readable(handler: Handler[Answer]) -> Handler[Answer]:
    """Turn what a person can act on into the call's failure; anything else is a defect and shows as one."""

    @functools.wraps(handler)
    async def handle(self: "KubernetesProvider", request: Any, context: Any) -> Answer:
        try:
            return await handler(self, request, context)
        except IncompleteError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error), _details(error))
        except READABLE as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        raise AssertionError("abort does not return")

    return handle


class KubernetesProvider(provider_pb2_grpc.ResourceProviderServicer):
    """One provider of one program. `workplace` is a directory of its own that goes when it ends."""

    def __init__(self, log: EngineLog, workplace: Path) -> None:
        self._log = log
        self._workplace = workplace
        self._cancelled = asyncio.Event()
        self._cluster: Cluster | None = None
        self._lifecycle = Lifecycle(None, Configuration(), log, self._cancelled)

    async def close(self) -> None:
        self._cancelled.set()
        await self._log.close()
        if self._cluster is not None:
            await self._cluster.close()

    async def GetPluginInfo(self, request: Any, context: Any) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=read_version())

    async def GetSchema(self, request: Any, context: Any) -> provider_pb2.GetSchemaResponse:
        schema = {"name": "kubernetes", "version": read_version(), "resources": {}, "types": {}, "functions": {}}
        return provider_pb2.GetSchemaResponse(schema=json.dumps(schema))

    async def Attach(self, request: Any, context: Any) -> empty_pb2.Empty:
        self._log.connect(request.address)
        return empty_pb2.Empty()

    async def Cancel(self, request: Any, context: Any) -> empty_pb2.Empty:
        self._cancelled.set()
        return empty_pb2.Empty()

    async def CheckConfig(self, request: Any, context: Any) -> provider_pb2.CheckResponse:
        news = decode_properties(request.news)
        failures = [
            provider_pb2.CheckFailure(property=name, reason=reason)
            for name, reason in UNSUPPORTED.items()
            if news.tree.get(name)
        ]
        # A path may be read by anybody; the content holds credentials.
        secrets = {("kubeconfig",)} if is_content(str(news.tree.get("kubeconfig", ""))) else set()
        inputs = Properties(news.tree, news.secrets | secrets)
        return provider_pb2.CheckResponse(inputs=encode_properties(inputs), failures=failures)

    async def DiffConfig(self, request: Any, context: Any) -> provider_pb2.DiffResponse:
        """Only another `clusterIdentifier` is another cluster: to replace the provider is to replace all it made."""
        old, new = decode_properties(request.old_inputs or request.olds).tree, decode_properties(request.news).tree
        changes = find_changes(old, new)
        replacing = frozenset(path for path in changes if path == ("clusterIdentifier",) and path[0] in old)
        return _diff_response(Difference(changes, replacing))

    @readable
    async def Configure(self, request: Any, context: Any) -> provider_pb2.ConfigureResponse:
        configuration = read_configuration(decode_properties(request.args).tree, os.environ)
        if configuration is not None:
            kubeconfig = find_kubeconfig(configuration, self._workplace)
            self._cluster = Cluster(await open_client(kubeconfig, USER_AGENT))
            self._lifecycle = Lifecycle(self._cluster, configuration, self._log, self._cancelled)
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, supports_autonaming_configuration=True
        )

    async def Invoke(self, request: Any, context: Any) -> provider_pb2.InvokeResponse:
        try:
            answer = call_function(request.tok, decode_properties(request.args).tree)
        except UnknownFunctionError as error:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, str(error))
        except BadArgumentError as error:
            failure = provider_pb2.CheckFailure(property="text", reason=str(error))
            return provider_pb2.InvokeResponse(failures=[failure])
        return provider_pb2.InvokeResponse(**{"return": encode_properties(Properties(answer))})

    async def Construct(self, request: Any, context: Any) -> provider_pb2.ConstructResponse:
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            f"the stand-in kubernetes plugin has no {request.type}: install the official plugin "
            f"(pulumi plugin install resource kubernetes v{read_version()}), or use the first version, yaml.ConfigFile",
        )
        raise AssertionError("abort does not return")

    @readable
    async def Check(self, request: Any, context: Any) -> provider_pb2.CheckResponse:
        resource, news = _resource(request), decode_properties(request.news)
        naming = _naming(request, resource)
        old_inputs = decode_properties(request.olds).tree
        if resource.token == HELM_RELEASE:
            inputs, failures = check_release(news, old_inputs.get("name") or build_name(naming))
        else:
            inputs, checked = await self._lifecycle.check(resource, news, old_inputs, naming)
            failures = checked.failures
        return provider_pb2.CheckResponse(
            inputs=encode_properties(inputs),
            failures=[provider_pb2.CheckFailure(property=each.property, reason=each.reason) for each in failures],
        )

    @readable
    async def Diff(self, request: Any, context: Any) -> provider_pb2.DiffResponse:
        resource = _resource(request)
        outputs, news = decode_properties(request.olds).tree, decode_properties(request.news).tree
        old_inputs = decode_properties(request.old_inputs).tree
        if resource.token == HELM_RELEASE:
            changes = find_changes(old_inputs, news)
            difference = Difference(changes, frozenset(path for path in changes if path in IDENTITY))
        else:
            difference = await self._lifecycle.diff(resource, outputs, old_inputs, news)
        return _diff_response(difference)

    @readable
    async def Create(self, request: Any, context: Any) -> provider_pb2.CreateResponse:
        resource, inputs = _resource(request), decode_properties(request.properties)
        if resource.token == HELM_RELEASE:
            object_id, outputs = "", _planned_release(inputs, preview=request.preview)
        else:
            object_id, outputs = await self._lifecycle.create(resource, inputs, preview=request.preview)
        return provider_pb2.CreateResponse(id=object_id, properties=encode_properties(outputs))

    @readable
    async def Read(self, request: Any, context: Any) -> provider_pb2.ReadResponse:
        resource = _resource(request)
        if resource.token == HELM_RELEASE:
            await self._log.warn(resource.urn, "the stand-in kubernetes plugin cannot look at Helm releases")
            return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)
        outputs, inputs = decode_properties(request.properties).tree, decode_properties(request.inputs)
        observed = await self._lifecycle.read(resource, request.id, outputs, inputs)
        if observed is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(
            id=observed.id,
            properties=encode_properties(observed.outputs),
            inputs=encode_properties(observed.inputs),
        )

    @readable
    async def Update(self, request: Any, context: Any) -> provider_pb2.UpdateResponse:
        resource, inputs = _resource(request), decode_properties(request.news)
        if resource.token == HELM_RELEASE:
            outputs = _planned_release(inputs, preview=request.preview)
        else:
            before = decode_properties(request.olds).tree
            outputs = await self._lifecycle.update(resource, before, inputs, preview=request.preview)
        return provider_pb2.UpdateResponse(properties=encode_properties(outputs))

    @readable
    async def Delete(self, request: Any, context: Any) -> empty_pb2.Empty:
        resource, outputs = _resource(request), decode_properties(request.properties).tree
        if resource.token == HELM_RELEASE:
            raise ResourceFailedError(refusal(outputs, read_version()))
        await self._lifecycle.delete(resource, request.id, outputs)
        return empty_pb2.Empty()


def _resource(request: Any) -> Resource:
    # Older engines send only the URN: urn:pulumi:<stack>::<project>::<parents>$<type>::<name>.
    token = getattr(request, "type", "") or request.urn.split("::")[2].rpartition("$")[2]
    return Resource(request.urn, token, float(getattr(request, "timeout", 0.0)))


def _naming(request: Any, resource: Resource) -> Naming:
    options = provider_pb2.CheckRequest.AutonamingOptions
    if not request.HasField("autonaming"):
        return Naming(resource.name, request.randomSeed)
    disabled = request.autonaming.mode == options.DISABLE
    return Naming(resource.name, request.randomSeed, request.autonaming.proposed_name, allowed=not disabled)


def _planned_release(inputs: Properties, *, preview: bool) -> Properties:
    if not preview:
        raise ResourceFailedError(refusal(inputs.tree, read_version()))
    return build_planned_release(inputs)


def _diff_response(difference: Difference) -> provider_pb2.DiffResponse:
    kinds = provider_pb2.PropertyDiff
    plain = {Change.ADD: kinds.ADD, Change.DELETE: kinds.DELETE, Change.UPDATE: kinds.UPDATE}
    replacing = {
        Change.ADD: kinds.ADD_REPLACE,
        Change.DELETE: kinds.DELETE_REPLACE,
        Change.UPDATE: kinds.UPDATE_REPLACE,
    }
    detailed = {
        path_text(path): kinds(kind=(replacing if path in difference.replacing else plain)[change], inputDiff=True)
        for path, change in difference.changes.items()
    }
    answer = provider_pb2.DiffResponse
    return answer(
        changes=answer.DIFF_SOME if detailed else answer.DIFF_NONE,
        diffs=sorted({str(path[0]) for path in difference.changes}),
        replaces=sorted(path_text(path) for path in difference.replacing),
        deleteBeforeReplace=difference.delete_first,
        detailedDiff=detailed,
        hasDetailedDiff=True,
    )


def _details(error: IncompleteError) -> tuple[tuple[str, bytes], ...]:
    """With these the engine remembers the object, and tries to complete it the next time."""
    failed = provider_pb2.ErrorResourceInitFailed(
        id=error.observed.id,
        properties=encode_properties(error.observed.outputs),
        inputs=encode_properties(error.observed.inputs),
        reasons=[str(error)],
    )
    detail = any_pb2.Any()
    detail.Pack(failed)
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error), details=[detail])
    return (("grpc-status-details-bin", status.SerializeToString()),)
