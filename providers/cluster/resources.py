"""The package `gpuplatform`: what programs and the engine call it and its resources, and the resources as a Python
program declares them. Imports nothing but `pulumi`, so that a program starts quickly."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pulumi

PACKAGE = "gpuplatform"

VERSION = "0.1.0"
"""Of the resources' inputs and outputs, which programs depend on; not the platform's own."""

GPU_UNIT = f"{PACKAGE}:index:GpuUnit"
GPU_STORAGE = f"{PACKAGE}:index:GpuStorage"
GPU_FUNCTION = f"{PACKAGE}:index:GpuFunction"
STOCK_POOL = f"{PACKAGE}:index:StockPool"
GPU_SPEC = f"{PACKAGE}:index:GpuSpec"
Spec = pulumi.Input[Mapping[str, Any]]


def attachment(port: int) -> dict[str, str]:
    """The environment with which a `pulumi` command attaches to the provider on this port of this machine."""
    return {"PULUMI_DEBUG_PROVIDERS": f"{PACKAGE}:{port}"}


class _Declared(pulumi.CustomResource):
    """What they have in common."""

    spec: pulumi.Output[Any]
    """As accepted, with its defaults said."""

    uid: pulumi.Output[str]

    def __init__(
        self, token: str, resource_name: str, properties: Mapping[str, Any], opts: pulumi.ResourceOptions | None
    ) -> None:
        known_later = {"uid": None, "acceptedHash": None}
        options = pulumi.ResourceOptions.merge(pulumi.ResourceOptions(version=VERSION), opts)
        super().__init__(token, resource_name, {**properties, **known_later}, options)

    # Not by the SDK's translation of names, which would also reach into the spec.

    @property
    def accepted_hash(self) -> pulumi.Output[str]:
        """SHA-256 of what was accepted, as it stands in the object's annotation `accepted-spec`."""
        return self._output("acceptedHash")

    @property
    def operation_id(self) -> pulumi.Output[str | None]:
        return self._output("operationID")

    @property
    def request_hash(self) -> pulumi.Output[str | None]:
        return self._output("requestHash")

    def _output(self, name: str) -> pulumi.Output[Any]:
        output: pulumi.Output[Any] = self.__dict__[name]
        return output


class _OfTenant(_Declared):
    """What lives in the namespace of a tenant."""

    token: ClassVar[str]
    tenant: pulumi.Output[str]
    name: pulumi.Output[str]
    namespace: pulumi.Output[str]

    def __init__(
        self,
        resource_name: str,
        *,
        name: pulumi.Input[str],
        spec: Spec,
        tenant: pulumi.Input[str] | None = None,
        operation_id: pulumi.Input[str] | None = None,
        request_hash: pulumi.Input[str] | None = None,
        object_uid: pulumi.Input[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`spec` as in the custom resource. Without a tenant it is `default`; `operation_id` and `request_hash` say
        which request it comes from, `object_uid` which object came of it last: once the end of that was asked for, it
        is not made again."""
        properties = {"tenant": tenant, "name": name, "spec": spec, "namespace": None}
        provenance = _provenance(operation_id, request_hash, object_uid)
        super().__init__(self.token, resource_name, {**properties, **provenance}, opts)


class GpuUnit(_OfTenant):
    """A unit of a tenant. Exists already as it is declared here: taken over as it is, and nothing is written. Does not
    exist: made, in the place of free stock where there is some."""

    token = GPU_UNIT


class GpuStorage(_OfTenant):
    """A storage of a tenant: a volume that outlives the units which mount it. One that exists already as it is declared
    here is taken over, with its data."""

    token = GPU_STORAGE


class GpuFunction(_OfTenant):
    """A function of a tenant: code that answers calls. One that exists already as it is declared here is taken over."""

    token = GPU_FUNCTION


class StockPool(_Declared):
    """A pool of warm stock, in the namespace of the stock."""

    name: pulumi.Output[str]
    namespace: pulumi.Output[str]

    def __init__(
        self,
        resource_name: str,
        *,
        name: pulumi.Input[str],
        spec: Spec,
        operation_id: pulumi.Input[str] | None = None,
        request_hash: pulumi.Input[str] | None = None,
        object_uid: pulumi.Input[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`spec` as in a StockPool."""
        properties = {"name": name, "spec": spec, "namespace": None}
        provenance = _provenance(operation_id, request_hash, object_uid)
        super().__init__(STOCK_POOL, resource_name, {**properties, **provenance}, opts)


class GpuSpec(_Declared):
    """An entry of the catalogue."""

    name: pulumi.Output[str]

    def __init__(
        self,
        resource_name: str,
        *,
        name: pulumi.Input[str],
        spec: Spec,
        operation_id: pulumi.Input[str] | None = None,
        request_hash: pulumi.Input[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`spec` as in a GPUSpec."""
        properties = {"name": name, "spec": spec}
        super().__init__(GPU_SPEC, resource_name, {**properties, **_provenance(operation_id, request_hash, None)}, opts)


def _provenance(
    operation_id: pulumi.Input[str] | None, request_hash: pulumi.Input[str] | None, object_uid: pulumi.Input[str] | None
) -> dict[str, Any]:
    return {"operationID": operation_id, "requestHash": request_hash, "objectUID": object_uid}
