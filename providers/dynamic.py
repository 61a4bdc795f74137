"""`GpuUnit`, `GpuStorage` and `GpuFunction` for a tenant's own Pulumi program: over the REST API, with no plugin to
install.

The state names the providers (`GpuUnitProvider`, `GpuStorageProvider`, `GpuFunctionProvider`) by module and name, and
finds them there again to refresh and to delete: none may be moved. Nothing of them is kept in the state, neither
address nor key.
"""

import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pulumi
from pulumi.dynamic import (
    CheckFailure,
    CheckResult,
    ConfigureRequest,
    CreateResult,
    DiffResult,
    ReadResult,
    Resource,
    ResourceProvider,
    UpdateResult,
)
from pydantic import BaseModel

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.storages import Accessor, Prepare
from gpu_platform.domain.units import Access, Framework, Serverless, StorageMount, Template
from providers.rest.connection import PlatformError, connect, refuse_open_key
from providers.rest.kinds import FUNCTIONS, STORAGES, UNITS, Kind
from providers.rest.lifecycle import Lifecycle

Fields = Mapping[str, Any]
"""Fields under their names in the REST API. Each value may be an output."""


class _OverRest(Resource):
    """What the resources have in common."""

    def __init__(
        self,
        provider: "_RestProvider",
        resource_name: str,
        properties: Mapping[str, Any],
        opts: pulumi.ResourceOptions | None,
    ) -> None:
        refuse_open_key()
        options = _with_replacement(opts)
        owner = _build_owner(self._resource_type_name, resource_name, options)
        known_later = dict.fromkeys(provider.kind.shown)
        inputs = {name: build_input(value) for name, value in properties.items()}
        super().__init__(provider, resource_name, {**inputs, "owner": owner, **known_later}, options)

    # Not by the SDK's translation of names, which would also reach into the template.

    @property
    def operation_id(self) -> pulumi.Output[str]:
        """With which it was made."""
        return self._output("operationID")

    def _output(self, name: str) -> pulumi.Output[Any]:
        output: pulumi.Output[Any] = self.__dict__[name]
        return output


class GpuUnit(_OverRest, module="gpuplatform", name="GpuUnit"):
    """A rented GPU unit. Its id is its name."""

    name: pulumi.Output[str]
    image: pulumi.Output[str]
    running: pulumi.Output[bool]
    namespace: pulumi.Output[str]
    memory: pulumi.Output[str]
    gpu: pulumi.Output[int]
    phase: pulumi.Output[str]
    """As of the last `up` or `refresh`."""

    stack: pulumi.Output[str]
    """The platform's own record of the unit, `gpu-unit/<tenant>.<name>`."""

    def __init__(
        self,
        resource_name: str,
        *,
        name: pulumi.Input[str],
        spec_name: pulumi.Input[str],
        image: pulumi.Input[str],
        template: pulumi.Input[Template | Fields] | None = None,
        access: pulumi.Input[Access | Fields] | None = None,
        serverless: pulumi.Input[Serverless | Fields] | None = None,
        storage_mounts: pulumi.Input[Sequence[pulumi.Input[StorageMount | Fields]]] | None = None,
        running: pulumi.Input[bool] | None = None,
        stock_name: pulumi.Input[str] | None = None,
        ready_within_seconds: pulumi.Input[int] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Without `running`, it runs; False frees its GPUs and keeps the unit. An `up` waits `ready_within_seconds`
        (300) for the unit to be Ready, or Stopped; with 0 it does not wait.

        A replacement gives the old unit back first. With the option `delete_before_replace=False` it comes last, so
        that a new unit needs a new name; and what an interrupted `up` has left is then not taken over.
        """
        properties = {
            "name": name,
            "specName": spec_name,
            "image": image,
            "template": template,
            "access": access,
            "serverless": serverless,
            "storageMounts": storage_mounts,
            "running": running,
            "stockName": stock_name,
            "readyWithinSeconds": ready_within_seconds,
        }
        super().__init__(GpuUnitProvider(), resource_name, properties, opts)

    @property
    def access_url(self) -> pulumi.Output[str | None]:
        """Where the unit answers, inside the cluster; None while it has no ports or does not run."""
        return self._output("accessURL")

    @property
    def public_url(self) -> pulumi.Output[str | None]:
        """Where everybody can call the unit; None while it is not public or does not run."""
        return self._output("publicURL")

    @property
    def spec_name(self) -> pulumi.Output[str]:
        return self._output("specName")

    @property
    def node_name(self) -> pulumi.Output[str | None]:
        return self._output("nodeName")


class GpuStorage(_OverRest, module="gpuplatform", name="GpuStorage"):
    """A storage: a volume that outlives the units which mount it. Its id is its name."""

    name: pulumi.Output[str]
    size: pulumi.Output[str]
    capacity: pulumi.Output[str]
    namespace: pulumi.Output[str]
    phase: pulumi.Output[str]
    """As of the last `up` or `refresh`."""

    stack: pulumi.Output[str]
    """The platform's own record of the storage, `gpu-storage/<tenant>.<name>`."""

    def __init__(
        self,
        resource_name: str,
        *,
        name: pulumi.Input[str],
        size: pulumi.Input[str],
        storage_class_name: pulumi.Input[str] | None = None,
        prepare: pulumi.Input[Prepare | Fields] | None = None,
        accessor: pulumi.Input[Accessor | Fields] | None = None,
        retain: pulumi.Input[bool] | None = None,
        ready_within_seconds: pulumi.Input[int] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """As in the REST API. It may grow; a smaller `size` is refused. Another class or preparation is another
        storage: the old one goes with its data, unless the option `protect` or `retain_on_delete` says otherwise.

        An `up` waits `ready_within_seconds` (300) for the storage to be Ready; with 0 it does not wait. What is said of
        a replacement of a GpuUnit is true here, too.
        """
        properties = {
            "name": name,
            "size": size,
            "storageClassName": storage_class_name,
            "prepare": prepare,
            "accessor": accessor,
            "retain": retain,
            "readyWithinSeconds": ready_within_seconds,
        }
        super().__init__(GpuStorageProvider(), resource_name, properties, opts)

    @property
    def claim_name(self) -> pulumi.Output[str | None]:
        """The PersistentVolumeClaim with the data."""
        return self._output("claimName")


class GpuFunction(_OverRest, module="gpuplatform", name="GpuFunction"):
    """A function: code that answers calls, and the workers that run it. Its id is its name."""

    name: pulumi.Output[str]
    image: pulumi.Output[str]
    concurrency: pulumi.Output[int]
    namespace: pulumi.Output[str]
    phase: pulumi.Output[str]
    """As of the last `up` or `refresh`."""

    stack: pulumi.Output[str]
    """The platform's own record of the function, `gpu-function/<tenant>.<name>`."""

    def __init__(
        self,
        resource_name: str,
        *,
        name: pulumi.Input[str],
        spec_name: pulumi.Input[str],
        image: pulumi.Input[str],
        template: pulumi.Input[Template | Fields] | None = None,
        framework: pulumi.Input[Framework | Fields] | None = None,
        concurrency: pulumi.Input[int] | None = None,
        min_workers: pulumi.Input[int] | None = None,
        max_workers: pulumi.Input[int] | None = None,
        idle_timeout_seconds: pulumi.Input[int] | None = None,
        timeout_seconds: pulumi.Input[int] | None = None,
        max_attempts: pulumi.Input[int] | None = None,
        ack_wait_seconds: pulumi.Input[int] | None = None,
        queue_limit: pulumi.Input[int] | None = None,
        ready_within_seconds: pulumi.Input[int] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """As in the REST API. An `up` waits `ready_within_seconds` (300) for the function to be Ready; with 0 it does
        not wait. What is said of a replacement of a GpuUnit is true here, too."""
        properties = {
            "name": name,
            "specName": spec_name,
            "image": image,
            "template": template,
            "framework": framework,
            "concurrency": concurrency,
            "minWorkers": min_workers,
            "maxWorkers": max_workers,
            "idleTimeoutSeconds": idle_timeout_seconds,
            "timeoutSeconds": timeout_seconds,
            "maxAttempts": max_attempts,
            "ackWaitSeconds": ack_wait_seconds,
            "queueLimit": queue_limit,
            "readyWithinSeconds": ready_within_seconds,
        }
        super().__init__(GpuFunctionProvider(), resource_name, properties, opts)


class _RestProvider(ResourceProvider):
    """What Pulumi calls, in a process of its own. It decides nothing itself."""

    kind: ClassVar[Kind[Any]]
    _lifecycle: Lifecycle
    """Made by `configure`, in that process: what is pickled into the state is the name of the class."""

    def configure(self, req: ConfigureRequest) -> None:
        _tell_errors_as_sentences()
        self._lifecycle = Lifecycle(self.kind, connect(req))

    def check(self, _olds: Json, news: Json) -> CheckResult:
        """No operationID is made here. Pulumi checks in the preview and again in the update, and a saved plan allows no
        other inputs; and after a crash it has no old inputs to give. `create` makes it, the outputs keep it."""
        inputs, failures = self.kind.check(news)
        return CheckResult(inputs, [CheckFailure(each.field, each.reason) for each in failures])

    def diff(self, _id: str, olds: Json, news: Json) -> DiffResult:
        found = self.kind.find_difference(olds, news)
        self._lifecycle.check_replacement(news, found.replacing)
        return DiffResult(changes=bool(found.changed), replaces=list(found.replacing))

    def create(self, props: Json) -> CreateResult:
        inputs, _ = self.kind.check(props)
        view = self._lifecycle.create(inputs)
        return CreateResult(view["name"], self.kind.build_outputs(view, inputs))

    def read(self, id_: str, props: Json) -> ReadResult:
        """What is gone, on its way out, or another one under the same name has no id: the next `up` makes it anew."""
        answer = self._lifecycle.find(id_, props.get("operationID"))
        if answer is None or answer.document["phase"] == "Terminating":
            return ReadResult("", {})
        outputs = self.kind.build_outputs(answer.document, props)
        return ReadResult(id_, outputs, self.kind.build_inputs(outputs))

    def update(self, id_: str, olds: Json, news: Json) -> UpdateResult:
        inputs, _ = self.kind.check(news)
        view = self._lifecycle.change(id_, olds.get("operationID"), inputs)
        return UpdateResult(self.kind.build_outputs(view, inputs))

    def delete(self, id_: str, props: Json) -> None:
        self._lifecycle.delete(id_, props.get("operationID"))


class GpuUnitProvider(_RestProvider):
    kind = UNITS


class GpuStorageProvider(_RestProvider):
    kind = STORAGES


class GpuFunctionProvider(_RestProvider):
    kind = FUNCTIONS


def build_input(value: Any) -> Any:
    """Models as JSON, with the fields that were set; everything else is left to Pulumi."""
    match value:
        case BaseModel():
            return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
        case pulumi.Output():
            return value.apply(build_input)
        case list() | tuple():
            return [build_input(each) for each in value]
    return value


def _with_replacement(opts: pulumi.ResourceOptions | None) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions.merge(pulumi.ResourceOptions(delete_before_replace=True), opts)


def _build_owner(type_name: str, resource_name: str, options: pulumi.ResourceOptions) -> pulumi.Output[str] | None:
    """The new one first, under the same name, would be taken for the one that an interrupted try has left; then Pulumi
    would delete it as the old one. `diff` cannot help: `--replace` does not ask it."""
    if not options.delete_before_replace:
        return None
    urn = pulumi.create_urn(resource_name, f"pulumi-python:{type_name}", options.parent)
    return pulumi.Output.concat(pulumi.get_organization(), "/", urn)


def _tell_errors_as_sentences() -> None:
    """Pulumi answers every error of a dynamic provider with `traceback.format_exc()`, and offers no other way. To the
    person who reads it, ours are complete as they are; all others keep their trace."""
    original = traceback.format_exc

    def format_exc(limit: int | None = None, chain: bool = True) -> str:
        error = sys.exc_info()[1]
        return str(error) if isinstance(error, PlatformError) else original(limit, chain)

    traceback.format_exc = format_exc
