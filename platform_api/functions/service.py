"""The service of functions: accepts, reads, changes and deletes them."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from gpu_platform.api_models.functions import CreateFunction
from gpu_platform.domain.functions import (
    FunctionChange,
    GPUFunctionSpec,
    build_function,
    merge_function_change,
    normalise_function,
)
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import OperationKind
from gpu_platform.domain.units import with_accepted_spec
from gpu_platform.kube.paths import GPU_FUNCTIONS
from gpu_platform.process import pass_point
from gpu_platform.store.ledger import delete_on_record, spec_of
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.functions.views import FunctionHealthReads, ReadBacklog
from platform_api.objects.idempotent_create import Accepted, Declarations, build_creation, check_catalogue
from platform_api.objects.optimistic_update import check_match
from platform_api.objects.service import ObjectService
from platform_api.objects.tenant_limits import ObjectLimits


class FunctionService(ObjectService):
    path = GPU_FUNCTIONS
    what = "function"

    def __init__(
        self, cluster: Cluster, limits: ObjectLimits, now: Callable[[], datetime], read_backlog: ReadBacklog | None
    ) -> None:
        super().__init__(cluster, limits, now)
        self._cluster = cluster
        self._declarations = Declarations(cluster.client, limits, self.path, self.what, now)
        self.health = FunctionHealthReads(read_backlog)

    async def accept(self, caller: Caller, body: CreateFunction) -> Accepted[Json]:
        """A declaration, of a spec that is in the catalogue."""
        request = normalise_function(body.to_request())
        wanted = build_creation(caller, body.operation_id, OperationKind.CREATE_FUNCTION, "GPUFunction", request)
        function = build_function(request, caller.namespace, body.operation_id, spec_of(wanted).request_hash)
        return await self._declarations.accept(
            caller, wanted, function, partial(check_catalogue, self._cluster, request.spec_name)
        )

    async def update(self, caller: Caller, name: str, change: FunctionChange, if_match: str | None) -> Json:
        async def write(function: Json) -> Json:
            before = GPUFunctionSpec.model_validate(function["spec"])
            after = merge_function_change(before, change)
            if after == before:
                return function
            return await self.client.replace(
                self.path.item(name, caller.namespace), with_accepted_spec(function, after)
            )

        return await self._change(caller, name, if_match, write)

    async def delete(self, caller: Caller, name: str, if_match: str | None) -> None:
        seen = await self._get_own(caller, name)
        check_match(seen, self.what, if_match)

        async def record(function: Json) -> None:
            await self._record_deletion(caller, function)
            pass_point("api.function-delete-recorded")

        await delete_on_record(self.client, self.path, seen, record)
