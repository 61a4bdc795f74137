"""The function that a call is for."""

from typing import Any

from gpu_platform.domain.gpu_functions import GPUFunctionSpec
from platform_api.cluster import Cluster
from platform_api.functions.service import function_not_found
from platform_api.functions.views import view_of
from platform_api.invocations.schemas import FunctionState
from platform_api.objects.optimistic_update import refuse_leaving

Json = dict[str, Any]


async def find_function(cluster: Cluster, namespace: str, name: str) -> GPUFunctionSpec:
    function = await cluster.find_function(namespace, name)
    if function is None:
        raise function_not_found(name)
    refuse_leaving(function, "function")
    return GPUFunctionSpec.model_validate(function["spec"])


def state_of(function: Json) -> FunctionState:
    view = view_of(function)
    return FunctionState(phase=view.phase, reason=view.reason, message=view.message)
