"""Where objects live under the API server: one value per kind, no string building at the call sites."""

import re
from dataclasses import dataclass

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import API_VERSION
from gpu_platform.kube.errors import NotFoundError

OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class ResourcePath:
    """A kind's place in the API, for example `ResourcePath("apps/v1", "deployments")`."""

    api_version: str
    plural: str
    namespaced: bool = True

    def collection(self, namespace: str | None = None) -> str:
        """All objects of the kind, in one namespace or (without one) in the whole cluster."""
        prefix = "/api" if "/" not in self.api_version else "/apis"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{prefix}/{self.api_version}{scope}/{self.plural}"

    def item(self, name: str, namespace: str | None = None, subresource: str | None = None) -> str:
        """The path of one object. NotFoundError for a name or a namespace that none can have: in a path, `..` would
        mean something else."""
        if not OBJECT_NAME.fullmatch(name):
            raise NotFoundError(404, "NotFound", f"no {self.plural} can be called {name!r}")
        if self.namespaced and not namespace:
            raise ValueError(f"{self.plural} are namespaced: {name!r} needs a namespace")
        if namespace and not OBJECT_NAME.fullmatch(namespace):
            raise NotFoundError(404, "NotFound", f"no namespace can be called {namespace!r}")
        path = f"{self.collection(namespace)}/{name}"
        return f"{path}/{subresource}" if subresource else path

    def of(self, item: Json, subresource: str | None = None) -> str:
        """The path of this object of the kind."""
        return self.item(item["metadata"]["name"], item["metadata"].get("namespace"), subresource)


CONFIG_MAPS = ResourcePath("v1", "configmaps")
DEPLOYMENTS = ResourcePath("apps/v1", "deployments")
ENDPOINT_SLICES = ResourcePath("discovery.k8s.io/v1", "endpointslices")
EVENTS = ResourcePath("v1", "events")
GPU_FUNCTIONS = ResourcePath(API_VERSION, "gpufunctions")
GPU_SPECS = ResourcePath(API_VERSION, "gpuspecs", namespaced=False)
GPU_STORAGES = ResourcePath(API_VERSION, "gpustorages")
GPU_UNITS = ResourcePath(API_VERSION, "gpuunits")
HTTP_ROUTES = ResourcePath("gateway.networking.k8s.io/v1", "httproutes")
INGRESSES = ResourcePath("networking.k8s.io/v1", "ingresses")
JOBS = ResourcePath("batch/v1", "jobs")
LEASES = ResourcePath("coordination.k8s.io/v1", "leases")
NAMESPACES = ResourcePath("v1", "namespaces", namespaced=False)
NETWORK_POLICIES = ResourcePath("networking.k8s.io/v1", "networkpolicies")
NODES = ResourcePath("v1", "nodes", namespaced=False)
OPERATIONS = ResourcePath(API_VERSION, "operations")
PERSISTENT_VOLUMES = ResourcePath("v1", "persistentvolumes", namespaced=False)
PERSISTENT_VOLUME_CLAIMS = ResourcePath("v1", "persistentvolumeclaims")
PODS = ResourcePath("v1", "pods")
RESOURCE_QUOTAS = ResourcePath("v1", "resourcequotas")
SECRETS = ResourcePath("v1", "secrets")
SERVICE_ACCOUNTS = ResourcePath("v1", "serviceaccounts")
SERVICES = ResourcePath("v1", "services")
STORAGE_CLASSES = ResourcePath("storage.k8s.io/v1", "storageclasses", namespaced=False)
STOCK_POOLS = ResourcePath(API_VERSION, "stockpools")

PATH_OF_KIND = {
    "ConfigMap": CONFIG_MAPS,
    "Deployment": DEPLOYMENTS,
    "GPUFunction": GPU_FUNCTIONS,
    "GPUSpec": GPU_SPECS,
    "GPUStorage": GPU_STORAGES,
    "GPUUnit": GPU_UNITS,
    "HTTPRoute": HTTP_ROUTES,
    "Ingress": INGRESSES,
    "Job": JOBS,
    "NetworkPolicy": NETWORK_POLICIES,
    "PersistentVolumeClaim": PERSISTENT_VOLUME_CLAIMS,
    "Pod": PODS,
    "Secret": SECRETS,
    "Service": SERVICES,
    "StockPool": STOCK_POOLS,
}
"""Of the kinds that plans name in their writes."""
