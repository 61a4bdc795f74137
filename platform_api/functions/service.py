"""Accepting a function: a declaration, of a spec that is in the catalogue."""

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
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.units import with_accepted_spec
from gpu_platform.kube.paths import GPU_FUNCTIONS
from gpu_platform.kube.requests import find
from gpu_platform.process import pass_point
from gpu_platform.store.ledger import build_deletion, delete_on_record, open_operation, settle_creation, spec_of
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.functions.views import FunctionHealthReads, QueueFigures
from platform_api.http.errors import ApiError, not_found
from platform_api.objects.idempotent_create import Declarations, Declared, build_creation, check_catalogue
from platform_api.objects.limits import ObjectLimits
from platform_api.objects.optimistic_update import change_as_seen, check_match, refuse_owned
from platform_api.objects.reads import read_page
from platform_api.stacks.service import RecordingWaits


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


class FunctionService:
    def __init__(
        self, cluster: Cluster, limits: ObjectLimits, now: Callable[[], datetime], figures: QueueFigures | None
    ) -> None:
        self.client = cluster.client
        self._limits = limits
        self.acceptance = FunctionAcceptance(cluster, limits, now)
        self.health = FunctionHealthReads(figures)
        self.recordings = RecordingWaits(cluster.client)
        self._now = now

    async def get(self, caller: Caller, name: str) -> Json:
        function = await find(self.client, GPU_FUNCTIONS, name, caller.namespace)
        if function is None:
            raise function_not_found(name)
        return function

    async def list_page(self, caller: Caller, limit: int, token: str | None) -> tuple[list[Json], str | None]:
        return await read_page(self.client, GPU_FUNCTIONS, caller.namespace, limit, token)

    async def update(self, caller: Caller, name: str, change: FunctionChange, if_match: str | None) -> Json:
        async def write(function: Json) -> Json:
            before = GPUFunctionSpec.model_validate(function["spec"])
            after = merge_function_change(before, change)
            if after == before:
                return function
            path = GPU_FUNCTIONS.item(name, caller.namespace)
            return await self.client.replace(path, with_accepted_spec(function, after))

        return await change_as_seen("function", name, if_match, lambda: self._get_own(caller, name), write)

    async def delete(self, caller: Caller, name: str, if_match: str | None) -> None:
        """The wish is recorded first: from then on nobody puts the function back."""
        seen = await self._get_own(caller, name)
        check_match(seen, "function", if_match)

        async def record(function: Json) -> None:
            await settle_creation(self.client, function, caller.tenant, self._now())
            deletion = build_deletion(function, caller.tenant)
            await self._limits.find_replay(caller, deletion) or await open_operation(self.client, deletion)
            pass_point("api.function-delete-recorded")

        await delete_on_record(self.client, GPU_FUNCTIONS, seen, record)

    async def _get_own(self, caller: Caller, name: str) -> Json:
        """The function, if it is the tenant's to change. A change is one of what was accepted: it must not make
        somebody's edit a part of it."""
        function = await self.get(caller, name)
        refuse_owned(function, "function")
        return as_accepted(function)


def function_not_found(name: str) -> ApiError:
    return not_found("function_not_found", f"there is no function {name!r}")
