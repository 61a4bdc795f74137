"""All that can be done with calls, put together once per process."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from datetime import datetime

from gpu_platform.domain.invocations import Invocation, InvocationRequest, InvocationState
from gpu_platform.nats.errors import QueueUnavailableError
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.http.errors import ApiError
from platform_api.http.holding import release_held
from platform_api.invocations.acceptance import AcceptedCall, CallAcceptance
from platform_api.invocations.changes import CallChanges
from platform_api.invocations.figures import QueueCounts
from platform_api.invocations.functions import find_function, state_of
from platform_api.invocations.parsing import Asked, TextThreads, read_asked
from platform_api.invocations.reads import CallReads, Shown
from platform_api.invocations.schemas import InvocationView, Redrive, Redriven, view_of
from platform_api.invocations.store import Store, open_store
from platform_api.invocations.waiting import DEFAULT_SECONDS, CallWaits
from platform_api.invocations.watching import watch_calls
from platform_api.metrics import ApiMetrics
from platform_api.nats_connection import QueueLink
from platform_api.settings import ApiSettings
from platform_api.tenant_limits import TenantLimitReader

WAITING_SHARE = 2
"""Half of the requests under way may wait for a result."""


class InvocationService:
    def __init__(
        self,
        cluster: Cluster,
        link: QueueLink,
        counts: QueueCounts,
        settings: ApiSettings,
        limits: TenantLimitReader,
        metrics: ApiMetrics,
        now: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._link = link
        self._retention = settings.result_retention
        self._metrics = metrics
        self._threads = TextThreads()
        self._acceptance = CallAcceptance(cluster, link, counts, self._threads, limits.of, now)
        self._reads = CallReads(settings.max_invocation_bytes, self._threads)
        self._changes = CallChanges(self._acceptance, self._reads, now)
        self._waits = CallWaits(max(1, settings.max_requests_in_flight // WAITING_SHARE), metrics)

    async def read(self, caller: Caller, body: bytes) -> Asked:
        """What a caller asks for, with the payload not parsed."""
        return await self._threads.run(caller.tenant, body, lambda: read_asked(body))

    async def invoke(self, caller: Caller, asked: Asked) -> tuple[Shown, bool]:
        """The call, and whether it is new."""
        store, accepted = await self._accept(caller, asked.fields.to_request(), asked.take_payload())
        return await self._show(caller, store, accepted.call), accepted.is_new

    async def invoke_and_wait(self, caller: Caller, asked: Asked) -> tuple[Shown, bool]:
        """The call, and whether it is over."""
        request = asked.fields.to_request()
        # From before it is queued: its end may be here sooner than the answer that it is.
        with self._link.hints.waiting(caller.tenant, request.id) as waiter:
            store, accepted = await self._accept(caller, request, asked.take_payload())
            seconds = asked.fields.timeout_seconds or DEFAULT_SECONDS
            call = await self._waits.wait(store, accepted.call, waiter, seconds)
        return await self._show(caller, store, call), call.is_over

    async def get(self, caller: Caller, invocation_id: str) -> Shown:
        store = self._store()
        return await self._show(caller, store, (await self._reads.get(store, caller, invocation_id)).call)

    async def list_page(
        self, caller: Caller, sequence: int, limit: int, function: str | None, state: InvocationState | None
    ) -> tuple[list[InvocationView], str | None]:
        seen, next_sequence = await self._reads.list_page(
            self._store(), caller, sequence=sequence, limit=limit, function=function, state=state
        )
        return [view_of(one.call) for one in seen], str(next_sequence) if next_sequence is not None else None

    async def cancel(self, caller: Caller, invocation_id: str) -> InvocationView:
        return view_of(await self._changes.cancel(self._writable_store(), caller, invocation_id))

    async def delete(self, caller: Caller, invocation_id: str) -> InvocationView:
        return view_of(await self._changes.delete(self._writable_store(), caller, invocation_id))

    async def retry(self, caller: Caller, invocation_id: str) -> tuple[InvocationView, bool]:
        accepted = await self._changes.retry(self._store(), caller, invocation_id)
        return view_of(accepted.call), accepted.is_new

    async def redrive(self, caller: Caller, wish: Redrive) -> Redriven:
        return await self._changes.redrive(self._writable_store(), caller, wish)

    async def purge(self, caller: Caller, function: str) -> int:
        store = self._writable_store()
        await find_function(self._cluster, caller.namespace, function)
        return await self._changes.purge(store, caller, function)

    def watch(self, caller: Caller, function: str | None, last_seen: str | None) -> AsyncGenerator[bytes, None]:
        return watch_calls(self._store, self._link.hints, caller.tenant, function, last_seen)

    async def _accept(self, caller: Caller, request: InvocationRequest, payload: bytes) -> tuple[Store, AcceptedCall]:
        try:
            store = self._store()
            accepted = await self._acceptance.accept(store, caller, request, payload)
        except ApiError as error:
            self._metrics.count_refused_call(error.code)
            raise
        except QueueUnavailableError:
            self._metrics.count_refused_call("service_unavailable")
            raise
        # Its payload is stored: a caller may wait for the result for minutes, with others beside it.
        release_held()
        if accepted.is_new:
            self._metrics.count_accepted_call(request.mode)
        return store, accepted

    def _writable_store(self) -> Store:
        """503 at once while NATS stores nothing."""
        self._link.check_storage()
        return self._store()

    async def _show(self, caller: Caller, store: Store, call: Invocation) -> Shown:
        """With how the function is, while the call is not over. From the cache: it costs no request."""
        shown = await self._reads.show(store, call)
        function = None if call.is_over else self._cluster.functions.get(caller.namespace, call.function)
        if function is None:
            return shown
        return replace(shown, view=shown.view.model_copy(update={"function_state": state_of(function)}))

    def _store(self) -> Store:
        return open_store(self._link.js, self._retention)
