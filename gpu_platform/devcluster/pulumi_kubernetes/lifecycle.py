"""The life of one object as Pulumi sees it: check, diff, create, read, update, delete, and previews that write nothing.

Works on decoded values; what the wire looks like is `servicer`'s business.
"""

import asyncio

from gpu_platform.devcluster.pulumi_kubernetes.cluster import Cluster, Place, explain_conflict
from gpu_platform.devcluster.pulumi_kubernetes.configuration import Configuration
from gpu_platform.devcluster.pulumi_kubernetes.inputs import (
    Naming,
    ObjectType,
    build_inputs,
    check_inputs,
    find_refused,
    find_replacing,
    is_autonamed,
    parse_object_id,
    read_handling,
    type_of_object,
)
from gpu_platform.devcluster.pulumi_kubernetes.readiness import DEFAULT_SECONDS, wait_until_gone, wait_until_ready
from gpu_platform.devcluster.pulumi_kubernetes.state import (
    INPUTS,
    build_changed_outputs,
    build_imported_inputs,
    build_outputs,
    build_planned_outputs,
    field_manager_name,
    find_manager,
    find_secrets,
    is_managed_by,
    observe_inputs,
)
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import ConflictError, KubeError, ResourcePath
from gpu_platform.pulumi_protocol.properties import (
    UNKNOWN,
    Path,
    Properties,
    Unknown,
    contains_unknown,
    find_changes,
    without_inner,
)
from gpu_platform.pulumi_protocol.resource import (
    Difference,
    Failure,
    IncompleteError,
    NotReadyError,
    Observed,
    Patience,
    Resource,
    ResourceFailedError,
    describe,
)
from gpu_platform.pulumi_protocol.serving import EngineLog

WRONG_INPUT = (400, 422)


class Lifecycle:
    """`cluster` is None while a preview cannot know which one it will be."""

    def __init__(
        self, cluster: Cluster | None, configuration: Configuration, log: EngineLog, cancelled: asyncio.Event
    ) -> None:
        self._cluster = cluster
        self._configuration = configuration
        self._log = log
        self._cancelled = cancelled

    async def check(
        self, resource: Resource, news: Properties, old_inputs: Json, naming: Naming
    ) -> tuple[Properties, tuple[Failure, ...]]:
        inputs = build_inputs(resource.token, news.tree)
        kind = type_of_object(inputs, resource.token)
        path = await self._cluster.find_kind(kind) if self._cluster else None
        namespaced = path.namespaced if path else None
        checked = check_inputs(resource.token, inputs, old_inputs, naming, namespaced, self._configuration.namespace)
        secrets = without_inner(find_secrets(kind, news.secrets, news.tree, checked.inputs))
        return Properties(checked.inputs, secrets), checked.failures

    async def diff(self, resource: Resource, outputs: Json, old_inputs: Json, news: Json) -> Difference:
        old = _with_namespace(old_inputs or outputs.get(INPUTS) or {}, outputs)
        new = _with_namespace(news, outputs)
        changes = find_changes(old, new)
        kind = type_of_object(new, resource.token)
        replacing = find_replacing(kind, old, changes, self._configuration.mutable_kinds)
        if changes and not replacing and not contains_unknown(new) and self._cluster:
            replacing = await self._find_refused(self._cluster, resource, outputs, new, frozenset(changes))
        delete_first = bool(replacing) and not is_autonamed(new) and _may_be_same(old, new, resource.token)
        return Difference(changes, replacing, delete_first)

    async def create(self, resource: Resource, inputs: Properties, *, preview: bool) -> tuple[str, Properties]:
        kind, manager = type_of_object(inputs.tree, resource.token), field_manager_name(resource.urn)
        if preview:
            rehearsed = await self._rehearse_create(resource, kind, inputs.tree, manager)
            return "", build_planned_outputs(kind, inputs, manager, rehearsed)
        cluster = self._connected()
        place = self._place(kind, await cluster.get_kind(kind), inputs.tree)
        existing = await cluster.find(place)
        if existing and existing["metadata"].get("deletionTimestamp"):
            # To apply to what is ending would look like success, and leave nothing.
            await wait_until_gone(cluster, place, existing["metadata"]["uid"], self._patience(resource, inputs.tree))
            existing = None
        ours = existing is not None and is_managed_by(existing, manager)
        is_wanted = read_handling(inputs.tree).patch_force or self._configuration.upsert_existing_objects
        if existing and not (ours or is_wanted):
            raise ResourceFailedError(_already_exists(resource, place))
        live = await cluster.apply(place, inputs.tree, manager, force=ours or self._is_forced(inputs.tree))
        return place.id, await self._finished(resource, place, live, inputs, manager)

    async def read(self, resource: Resource, object_id: str, outputs: Json, inputs: Properties) -> Observed | None:
        """The object as it is now, also for an import, which has no inputs yet; None if it is gone."""
        cluster = self._connected()
        kind = type_of_object(inputs.tree or outputs, resource.token)
        place = await self._locate(kind, object_id)
        live = await cluster.find(place) if place else None
        if place is None or live is None:
            return None
        manager = find_manager(outputs, resource.urn)
        if inputs.tree:
            tree = await self._observe(cluster, place, inputs.tree, live, manager)
        else:
            tree = build_imported_inputs(live)
        secrets = without_inner(find_secrets(kind, inputs.secrets, inputs.tree, tree))
        seen = Properties(tree, secrets)
        return Observed(place.id, build_outputs(kind, live, seen, manager), seen)

    async def update(self, resource: Resource, outputs: Json, inputs: Properties, *, preview: bool) -> Properties:
        kind, manager = type_of_object(inputs.tree, resource.token), find_manager(outputs, resource.urn)
        if preview and (self._cluster is None or contains_unknown(inputs.tree)):
            return build_changed_outputs(kind, outputs, inputs, manager)
        cluster = self._connected()
        path = await cluster.get_kind(kind)
        place = self._place(kind, path, _with_namespace(inputs.tree, outputs))
        if preview:
            after = await self._rehearse(resource, place, inputs.tree, manager)
            return build_changed_outputs(kind, after or outputs, inputs, manager)
        live = await cluster.apply(place, inputs.tree, manager, force=self._is_forced(inputs.tree))
        return await self._finished(resource, place, live, inputs, manager)

    async def delete(self, resource: Resource, object_id: str, outputs: Json) -> None:
        cluster = self._connected()
        place = await self._locate(type_of_object(outputs, resource.token), object_id)
        if place is None:
            return
        uid = outputs.get("metadata", {}).get("uid")
        if await cluster.delete(place, uid, read_handling(outputs).propagation):
            await wait_until_gone(cluster, place, uid, self._patience(resource, outputs))

    async def _finished(
        self, resource: Resource, place: Place, live: Json, inputs: Properties, manager: str
    ) -> Properties:
        if not read_handling(inputs.tree).skip_await:
            try:
                patience = self._patience(resource, inputs.tree)
                live = await wait_until_ready(self._connected(), place, live, patience)
            except NotReadyError as error:
                outputs = build_outputs(place.kind, live, inputs, manager)
                raise IncompleteError(str(error), Observed(place.id, outputs, inputs)) from error
        return build_outputs(place.kind, live, inputs, manager)

    async def _find_refused(
        self, cluster: Cluster, resource: Resource, outputs: Json, news: Json, changed: frozenset[Path]
    ) -> frozenset[Path]:
        kind = type_of_object(news, resource.token)
        if (path := await cluster.find_kind(kind)) is None:
            return frozenset()
        place = self._place(kind, path, news)
        try:
            await cluster.dry_run(place, news, find_manager(outputs, resource.urn))
        except KubeError as error:
            return find_refused(error, changed)
        return frozenset()

    async def _rehearse_create(self, resource: Resource, kind: ObjectType, inputs: Json, manager: str) -> Json | None:
        if self._cluster is None or contains_unknown(inputs):
            return None
        # A kind that is not served may be one that this very program defines.
        if (path := await self._cluster.find_kind(kind)) is None:
            return None
        place = self._place(kind, path, inputs)
        existing = await self._cluster.find(place)
        if existing is None:
            return await self._rehearse(resource, place, inputs, manager)
        # What is there will be deleted first if this is a replacement, so that its dry run would say nothing; an
        # imported object that is replaced looks the same as another owner's, hence only a warning.
        handled = read_handling(inputs).patch_force or self._configuration.upsert_existing_objects
        if not handled and not is_managed_by(existing, manager):
            await self._log.warn(resource.urn, _already_exists(resource, place))
        return None

    async def _rehearse(self, resource: Resource, place: Place, inputs: Json, manager: str) -> Json | None:
        """A dry run: a wrong field is known before the update. None if the API server cannot tell yet."""
        cluster = self._connected()
        try:
            return await cluster.dry_run(place, inputs, manager, force=self._is_forced(inputs))
        except ConflictError as error:
            raise ResourceFailedError(explain_conflict(error, place)) from error
        except KubeError as error:
            if error.status in WRONG_INPUT:
                message = describe(error, place.label, cluster.server)
                if place.kind.is_built_in:
                    raise ResourceFailedError(message) from error
                # The definition of a custom resource may change in the same update.
                await self._log.warn(resource.urn, f"the API server would refuse this now: {message}")
            # Anything else, such as a namespace that does not exist, may come with the same update.
            return None

    async def _observe(self, cluster: Cluster, place: Place, inputs: Json, live: Json, manager: str) -> Json:
        seen = observe_inputs(inputs, live, None)
        if seen == inputs:
            return seen
        try:
            applied = await cluster.dry_run(place, inputs, manager)
        except KubeError:
            # An account that may read need not be allowed to patch.
            return seen
        return observe_inputs(inputs, live, applied)

    def _is_forced(self, inputs: Json) -> bool:
        """Whether declared fields that another tool has set are taken back, instead of reported as a conflict."""
        return read_handling(inputs).patch_force or self._configuration.enable_patch_force

    async def _locate(self, kind: ObjectType, object_id: str) -> Place | None:
        """The place of the object with this id; None where the API server has no such kind."""
        path = await self._connected().find_kind(kind)
        if path is None:
            return None
        default = self._configuration.namespace
        namespace, name = parse_object_id(object_id, namespaced=path.namespaced, default_namespace=default)
        return Place(kind, path, namespace, name)

    def _place(self, kind: ObjectType, path: ResourcePath, tree: Json) -> Place:
        metadata = tree["metadata"]
        namespace = metadata.get("namespace") or self._configuration.namespace
        return Place(kind, path, namespace if path.namespaced else None, metadata["name"])

    def _patience(self, resource: Resource, tree: Json) -> Patience:
        seconds = read_handling(tree).timeout_seconds or resource.timeout_seconds or DEFAULT_SECONDS

        async def report(message: str) -> None:
            await self._log.show(resource.urn, message)

        return Patience(seconds, report, self._cancelled)

    def _connected(self) -> Cluster:
        if self._cluster is None:
            raise ResourceFailedError(
                "the provider does not know its cluster: its kubeconfig or context is not known yet"
            )
        return self._cluster


def _already_exists(resource: Resource, place: Place) -> str:
    return (
        f"{place.label} exists already and is not this resource's: delete it, adopt it "
        f"(pulumi import {resource.token} {resource.name} {place.id}), or set the annotation pulumi.com/patchForce"
    )


def _with_namespace(inputs: Json, outputs: Json) -> Json:
    """Inputs from before the kind was known have no namespace; the object has one."""
    namespace, metadata = outputs.get("metadata", {}).get("namespace"), inputs.get("metadata")
    if namespace is None or not isinstance(metadata, dict) or "namespace" in metadata:
        return inputs
    return {**inputs, "metadata": {"namespace": namespace, **metadata}}


def _may_be_same(old: Json, new: Json, token: str) -> bool:
    """Whether both are one object of the cluster, as far as is known before the update."""
    before, after = _identity(old, token), _identity(new, token)
    return any(isinstance(each, Unknown) for each in (*before, *after)) or before == after


def _identity(tree: Json, token: str) -> tuple[object, ...]:
    kind, metadata = type_of_object(tree, token), tree.get("metadata")
    if not isinstance(metadata, dict):
        return (UNKNOWN,)
    return (kind.group, kind.kind, metadata.get("namespace"), metadata.get("name"))
