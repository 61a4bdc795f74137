"""Whether the function of a call is still there."""

from collections.abc import Awaitable, Callable

from gpu_platform.domain.tenants import tenant_namespace
from gpu_platform.kube.informer import ObjectCache
from gpu_platform.kube.paths import GPU_FUNCTIONS
from gpu_platform.kube.requests import Getter, find

FunctionExists = Callable[[str, str], Awaitable[bool]]
"""By tenant and name."""


def function_lookup(cache: ObjectCache, client: Getter) -> FunctionExists:
    """One that memory does not know may be new: it is looked up before its calls are ended."""

    async def exists(tenant: str, name: str) -> bool:
        namespace = tenant_namespace(tenant)
        function = cache.get(namespace, name) or await find(client, GPU_FUNCTIONS, name, namespace)
        return function is not None and "deletionTimestamp" not in function["metadata"]

    return exists
