"""The function that a call is for."""

from gpu_platform.adapters.kube.paths import GPU_FUNCTIONS
from gpu_platform.adapters.kube.requests import find
from gpu_platform.domain.gpu_functions import GPUFunctionSpec
from platform_api.cluster import Cluster
from platform_api.functions.service import function_not_found
from platform_api.http.errors import conflict


async def find_function(cluster: Cluster, namespace: str, name: str) -> GPUFunctionSpec:
    """From memory; one that is too new for that is looked up before a caller hears that there is none."""
    function = cluster.functions.get(namespace, name) or await find(cluster.client, GPU_FUNCTIONS, name, namespace)
    if function is None:
        raise function_not_found(name)
    if "deletionTimestamp" in function["metadata"]:
        raise conflict(f"the function {name!r} is being deleted")
    return GPUFunctionSpec.model_validate(function["spec"])
