"""Accepting a function: a declaration, of a spec that is in the catalogue."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from gpu_platform.domain.functions import build_function, normalise_function
from gpu_platform.domain.operations import OperationKind
from gpu_platform.kube.paths import GPU_FUNCTIONS
from gpu_platform.store.ledger import spec_of
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.declarations import Declarations, Declared
from platform_api.functions.views import CreateFunction
from platform_api.objects.idempotent_create import build_creation, check_catalogue
from platform_api.objects.limits import ObjectLimits


class FunctionAcceptance:
    def __init__(self, cluster: Cluster, limits: ObjectLimits, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._declarations = Declarations(cluster.client, limits, GPU_FUNCTIONS, "function", now)

    async def accept(self, caller: Caller, body: CreateFunction) -> Declared:
        request = normalise_function(body.to_request())
        wanted = build_creation(caller, body.operation_id, OperationKind.CREATE_FUNCTION, "GPUFunction", request)
        function = build_function(request, caller.namespace, body.operation_id, spec_of(wanted).request_hash)
        return await self._declarations.accept(
            caller, wanted, function, partial(check_catalogue, self._cluster, request.spec_name)
        )
