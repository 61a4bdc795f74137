"""Pulumi's provider protocol: requests decoded, handed on, and answered; failures as one readable line. Helm releases
are shown in previews, and refused when one has to be installed: there is no Helm in here. Of the functions that the
SDK's own components call while a program runs, it has the one that reads manifests."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import yaml
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from gpu_platform.devcluster.pulumi_kubernetes.cluster import Cluster
from gpu_platform.devcluster.pulumi_kubernetes.configuration import (
    UNSUPPORTED,
    Configuration,
    check_is_embedded,
    is_content,
    load_kubeconfig,
    read_configuration,
    read_version,
    write_kubeconfig,
)
from gpu_platform.devcluster.pulumi_kubernetes.inputs import HELM_RELEASE, Naming, build_name
from gpu_platform.devcluster.pulumi_kubernetes.lifecycle import Lifecycle
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import open_client
from gpu_platform.pulumi_protocol import properties as property_values
from gpu_platform.pulumi_protocol.properties import (
    UNKNOWN,
    Properties,
    decode_properties,
    encode_properties,
    find_changes,
    without_nulls,
)
from gpu_platform.pulumi_protocol.resource import Difference, Failure, Resource, ResourceFailedError, resource_of
from gpu_platform.pulumi_protocol.responses import check_response, diff_response, read_response, readable
from gpu_platform.pulumi_protocol.serving import EngineLog

IDENTITY: tuple[property_values.Path, ...] = (("name",), ("namespace",))
USER_AGENT = "pulumi-kubernetes-stand-in"
IDENTIFIER = "clusterIdentifier"
DECODE_YAML = "kubernetes:yaml:decode"


def check_release(news: Properties, name: str) -> tuple[Properties, tuple[Failure, ...]]:
    tree: Json = {"name": name, **without_nulls(news.tree)}
    return Properties(tree, news.secrets), tuple(_find_failures(tree))


def _find_failures(tree: Json) -> Iterator[Failure]:
    """The official plugin loads the chart here, also in a preview, and so fails when it cannot be had. Of that, this
    looks at what needs no Helm: whether a local chart is there."""
    chart = tree.get("chart")
    if chart is None:
        yield Failure("chart", "a Helm release needs a chart")
    elif isinstance(chart, str) and chart.startswith((".", "/")) and not Path(chart, "Chart.yaml").is_file():
        yield Failure("chart", f"there is no chart in {chart}: it has no Chart.yaml")


def refusal(inputs: Json, version: str) -> str:
    chart = f"{inputs.get('chart', 'its chart')} {inputs.get('version', '')}".strip()
    return (
        f"the stand-in kubernetes plugin cannot install, change or remove the Helm release of {chart}: install the "
        f"official plugin with `pulumi plugin install resource kubernetes v{version}` and run this again"
    )


class UnknownFunctionError(Exception):
    """A function that only the official plugin has."""


class BadArgumentError(Exception):
    """An argument of which nothing can be made."""


class _ManifestLoader(yaml.SafeLoader):
    """Kubernetes reads times as texts."""


_ManifestLoader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def call_function(token: str, arguments: Json) -> Json:
    if token != DECODE_YAML:
        raise UnknownFunctionError(
            f"the stand-in kubernetes plugin has no {token}: install the official plugin "
            "(pulumi plugin install resource kubernetes) for charts and kustomizations"
        )
    return {"result": decode_yaml(str(arguments.get("text", "")), arguments.get("defaultNamespace"))}


def decode_yaml(text: str, default_namespace: Any = None) -> list[Json]:
    """The objects of a manifest, in its order; what is empty is left out."""
    try:
        documents = [each for each in yaml.load_all(text, _ManifestLoader) if each]
    except yaml.YAMLError as error:
        raise BadArgumentError(f"this is not YAML: {error}") from error
    if wrong := [each for each in documents if not isinstance(each, dict)]:
        raise BadArgumentError(f"this is not a Kubernetes object: {wrong[0]!r}")
    if isinstance(default_namespace, str) and default_namespace:
        for each in documents:
            each.setdefault("metadata", {}).setdefault("namespace", default_namespace)
    return documents


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
        failures = [Failure(name, reason) for name, reason in UNSUPPORTED.items() if news.tree.get(name)]
        # A path is no secret; the content holds credentials.
        secrets = {("kubeconfig",)} if is_content(str(news.tree.get("kubeconfig", ""))) else set()
        return check_response(Properties(news.tree, news.secrets | secrets), failures)

    async def DiffConfig(self, request: Any, context: Any) -> provider_pb2.DiffResponse:
        """Only another `clusterIdentifier` is another cluster: to replace the provider is to replace all it made.

        As with the official plugin, one that is added or removed replaces nothing. The engine asks this too when a
        resource goes from one provider to another, as from the default one to one that the program declares.
        """
        old, new = decode_properties(request.old_inputs or request.olds).tree, decode_properties(request.news).tree
        changes = find_changes(old, new)
        is_other = bool(old.get(IDENTIFIER)) and bool(new.get(IDENTIFIER))
        replacing = frozenset(path for path in changes if path == (IDENTIFIER,) and is_other)
        return diff_response(Difference(changes, replacing))

    @readable
    async def Configure(self, request: Any, context: Any) -> provider_pb2.ConfigureResponse:
        configuration = read_configuration(decode_properties(request.args).tree, os.environ)
        if configuration is not None:
            kubeconfig = load_kubeconfig(configuration, os.environ)
            check_is_embedded(kubeconfig, os.environ)
            path = write_kubeconfig(kubeconfig, self._workplace) if kubeconfig else None
            self._cluster = Cluster(await open_client(path, USER_AGENT))
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
        resource, news = resource_of(request), decode_properties(request.news)
        naming = _naming(request, resource)
        old_inputs = decode_properties(request.olds).tree
        if resource.token == HELM_RELEASE:
            inputs, failures = check_release(news, old_inputs.get("name") or build_name(naming))
        else:
            inputs, failures = await self._lifecycle.check(resource, news, old_inputs, naming)
        return check_response(inputs, failures)

    @readable
    async def Diff(self, request: Any, context: Any) -> provider_pb2.DiffResponse:
        resource = resource_of(request)
        outputs, news = decode_properties(request.olds).tree, decode_properties(request.news).tree
        old_inputs = decode_properties(request.old_inputs).tree
        if resource.token == HELM_RELEASE:
            changes = find_changes(old_inputs, news)
            difference = Difference(changes, frozenset(path for path in changes if path in IDENTITY))
        else:
            difference = await self._lifecycle.diff(resource, outputs, old_inputs, news)
        return diff_response(difference)

    @readable
    async def Create(self, request: Any, context: Any) -> provider_pb2.CreateResponse:
        resource, inputs = resource_of(request), decode_properties(request.properties)
        if resource.token == HELM_RELEASE:
            object_id, outputs = "", _planned_release(inputs, preview=request.preview)
        else:
            object_id, outputs = await self._lifecycle.create(resource, inputs, preview=request.preview)
        return provider_pb2.CreateResponse(id=object_id, properties=encode_properties(outputs))

    @readable
    async def Read(self, request: Any, context: Any) -> provider_pb2.ReadResponse:
        resource = resource_of(request)
        if resource.token == HELM_RELEASE:
            await self._log.warn(resource.urn, "the stand-in kubernetes plugin cannot look at Helm releases")
            return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)
        outputs, inputs = decode_properties(request.properties).tree, decode_properties(request.inputs)
        return read_response(await self._lifecycle.read(resource, request.id, outputs, inputs))

    @readable
    async def Update(self, request: Any, context: Any) -> provider_pb2.UpdateResponse:
        resource, inputs = resource_of(request), decode_properties(request.news)
        if resource.token == HELM_RELEASE:
            outputs = _planned_release(inputs, preview=request.preview)
        else:
            before = decode_properties(request.olds).tree
            outputs = await self._lifecycle.update(resource, before, inputs, preview=request.preview)
        return provider_pb2.UpdateResponse(properties=encode_properties(outputs))

    @readable
    async def Delete(self, request: Any, context: Any) -> empty_pb2.Empty:
        resource, outputs = resource_of(request), decode_properties(request.properties).tree
        if resource.token == HELM_RELEASE:
            raise ResourceFailedError(refusal(outputs, read_version()))
        await self._lifecycle.delete(resource, request.id, outputs)
        return empty_pb2.Empty()


def _naming(request: Any, resource: Resource) -> Naming:
    options = provider_pb2.CheckRequest.AutonamingOptions
    if not request.HasField("autonaming"):
        return Naming(resource.name, request.randomSeed)
    disabled = request.autonaming.mode == options.DISABLE
    return Naming(resource.name, request.randomSeed, request.autonaming.proposed_name, allowed=not disabled)


def _planned_release(inputs: Properties, *, preview: bool) -> Properties:
    if not preview:
        raise ResourceFailedError(refusal(inputs.tree, read_version()))
    return Properties({**inputs.tree, "status": UNKNOWN}, inputs.secrets)
