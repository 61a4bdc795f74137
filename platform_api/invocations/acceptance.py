"""Acceptance of an invocation: payload, record, queue; each step is one guarded write.

| step | what                                      | what repairs it when this process dies right after    |
| ---- | ----------------------------------------- | ----------------------------------------------------- |
| 1    | look up the function, check for room, and | nothing was written                                   |
|      | only then parse the payload               |                                                       |
| 2    | store a large payload                     | the sweep deletes it                                  |
| 3    | write the record, if the id has none      | the sweep queues it; so does the same request again   |
| 4    | queue it, if it is not there              | nothing is left to do                                 |
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime

from gpu_platform.api_models.invocations import FunctionState
from gpu_platform.domain.functions import GPUFunctionSpec
from gpu_platform.domain.invocations import INLINE_BODY, Invocation, InvocationRequest, InvocationState, accept
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.kube.paths import GPU_FUNCTIONS
from gpu_platform.nats.errors import (
    OutdatedError,
    QueueFullError,
    QueueUnavailableError,
    TooLargeError,
    UnreadableError,
)
from gpu_platform.nats.records import Seen
from gpu_platform.process import pass_point
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.functions.views import view_function
from platform_api.http.errors import (
    RETRY_SECONDS,
    ApiError,
    conflict,
    in_progress,
    invalid_field,
    object_not_found,
    unavailable,
)
from platform_api.invocations.limits import ONE_RECORD, PATH, QueueCounts, RecordRoom, TenantRoom, usage_of_body
from platform_api.invocations.parsing import Payload, TextThreads, check_payload
from platform_api.invocations.reads import Store
from platform_api.nats_connection import QueueLink
from platform_api.objects.idempotent_create import Accepted
from platform_api.objects.optimistic_update import refuse_leaving


def is_over(invocation_id: str, state: InvocationState) -> ApiError:
    return conflict(f"the invocation {invocation_id!r} is over: it is {state}")


def too_large(message: str) -> ApiError:
    return ApiError(413, "body_too_large", message)


def outcome_unknown(invocation_id: str, problem: str) -> ApiError:
    return unavailable(
        f"{problem}; whether the call was accepted is not known: send it again with invocationID {invocation_id!r}, "
        "and it runs once"
    )


def not_queued_yet(invocation_id: str) -> ApiError:
    return ApiError(
        503,
        "not_queued_yet",
        f"the call {invocation_id!r} was accepted and is safe, but could not be queued just now: it is queued later by "
        f"itself, or when it is sent again with this invocationID; GET {PATH}/{invocation_id} shows it",
        headers={"Retry-After": str(RETRY_SECONDS), "Location": f"{PATH}/{invocation_id}"},
    )


async def find_function(cluster: Cluster, namespace: str, name: str) -> GPUFunctionSpec:
    function = await cluster.find(GPU_FUNCTIONS, namespace, name)
    if function is None:
        raise object_not_found("function", name)
    refuse_leaving(function, "function")
    return GPUFunctionSpec.model_validate(function["spec"])


def state_of(function: Json) -> FunctionState:
    view = view_function(function)
    return FunctionState(phase=view.phase, reason=view.reason, message=view.message)


class CallAcceptance:
    def __init__(
        self,
        cluster: Cluster,
        link: QueueLink,
        counts: QueueCounts,
        threads: TextThreads,
        limits_of: Callable[[str], TenantLimits],
        now: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._link = link
        self._counts = counts
        self._threads = threads
        self._record_room = RecordRoom()
        self.tenant_room = TenantRoom(limits_of)
        self._now = now

    async def accept(
        self, store: Store, caller: Caller, request: InvocationRequest, content: bytes
    ) -> Accepted[Invocation]:
        """The content is the request's payload, as the caller sent it."""
        function = await find_function(self._cluster, caller.namespace, request.function)
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._room_of(store, caller, request.function, function))
            except ApiError:
                # An earlier call is answered also when there is no room for a new one.
                if (known := await self._find(store, caller, request)) is None:
                    raise
                payload = await self._check(caller, request, content)
                return await self._replay(store, known.call, request, payload)
            try:
                payload = await self._check(caller, request, content)
            except ApiError:
                self._counts.give_back_room(caller.tenant, request.function)
                raise
            accepted = await self._accept_new(store, caller, request, payload, function)
            if not accepted.is_new:
                self.tenant_room.give_back(caller.tenant, ONE_RECORD)
            return accepted

    async def _check(self, caller: Caller, request: InvocationRequest, content: bytes) -> Payload:
        return await self._threads.run(caller.tenant, content, lambda: check_payload(request, content))

    async def _accept_new(
        self, store: Store, caller: Caller, request: InvocationRequest, payload: Payload, function: GPUFunctionSpec
    ) -> Accepted[Invocation]:
        call = accept(
            caller.tenant,
            request,
            self._now(),
            default_timeout_seconds=function.timeout_seconds,
            request_hash=payload.request_hash,
        )
        inline = payload.content
        if inline is not None and len(inline) > INLINE_BODY:
            if known := await self._find(store, caller, request):
                return await self._replay(store, known.call, request, payload)
            call, inline = await self.store_payload(store, call, inline), None
        accepted = await self.write(store, call, inline)
        return accepted if accepted.is_new else await self._replay(store, accepted.item, request, payload)

    @asynccontextmanager
    async def room(self, store: Store, caller: Caller, function_name: str) -> AsyncIterator[None]:
        """For one call, which the block writes."""
        function = await find_function(self._cluster, caller.namespace, function_name)
        async with self._room_of(store, caller, function_name, function):
            yield

    @asynccontextmanager
    async def _room_of(self, store: Store, caller: Caller, name: str, function: GPUFunctionSpec) -> AsyncIterator[None]:
        self._link.check_storage()
        await self._record_room.check(store.listing)
        async with (
            self.tenant_room.hold(store.listing, caller.tenant, ONE_RECORD, is_scarce=self._record_room.is_scarce),
            self._counts.room(caller.tenant, name, function.queue_limit),
        ):
            yield

    async def write(self, store: Store, call: Invocation, payload: bytes | None = None) -> Accepted[Invocation]:
        """Steps 3 and 4, with a payload that becomes a part of the record. The answer names the id: its caller may not
        know it."""
        try:
            accepted = await store.records.accept(call, payload)
        except UnreadableError as error:
            raise invalid_field("payload", str(error)) from error
        except TooLargeError as error:
            raise too_large(str(error)) from error
        except OutdatedError:
            raise in_progress(
                f"the invocation {call.id!r} ended long ago and is just being forgotten; ask again"
            ) from None
        except QueueFullError as error:
            raise unavailable("there is no room for more calls just now; nothing was accepted") from error
        except QueueUnavailableError as error:
            raise outcome_unknown(call.id, await self._link.explain(error)) from error
        pass_point("api.call-recorded")
        if accepted.is_new:
            await self._enqueue(store, call)
        else:
            self._counts.give_back_room(call.tenant, call.function)
        return Accepted(accepted.seen.call, accepted.is_new)

    async def _find(self, store: Store, caller: Caller, request: InvocationRequest) -> Seen | None:
        """The call of this function, or else whatever has its id."""
        exact = await store.records.find(caller.tenant, request.id, request.function)
        return exact or await store.records.find(caller.tenant, request.id)

    async def _replay(
        self, store: Store, known: Invocation, request: InvocationRequest, payload: Payload
    ) -> Accepted[Invocation]:
        if (known.function, known.request_hash) != (request.function, payload.request_hash):
            raise conflict(
                f"the invocation {request.id!r} was made before with another request; a new call needs a new id"
            )
        if known.state is InvocationState.QUEUED:
            # Whoever accepted it may have died before it was queued.
            await self._enqueue(store, known)
        return Accepted(known, is_new=False)

    async def _enqueue(self, store: Store, call: Invocation) -> None:
        try:
            await store.records.enqueue(call)
        except (QueueUnavailableError, QueueFullError) as error:
            raise not_queued_yet(call.id) from error

    async def store_payload(self, store: Store, call: Invocation, content: bytes) -> Invocation:
        """Returns the call with a reference in place of the payload. 429 where the tenant has no room for it."""
        try:
            async with self.tenant_room.hold(store.listing, call.tenant, usage_of_body(len(content))):
                body = await store.bodies.put_payload(call, content)
        except QueueFullError as error:
            raise unavailable("there is no room for large payloads now; nothing was accepted") from error
        except QueueUnavailableError as error:
            problem = await self._link.explain(error)
            raise unavailable(f"{problem}; nothing was accepted") from error
        return call.model_copy(update={"payload_body": body})
