"""Decisions as the protocol's answers, and failures as a call's one readable line."""

import functools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import grpc
from google.protobuf import any_pb2
from pulumi.runtime.proto import provider_pb2, status_pb2

from gpu_platform.kube import NoConnectionError
from gpu_platform.pulumi_protocol.properties import Properties, encode_properties, path_text
from gpu_platform.pulumi_protocol.resource import Difference, Failure, IncompleteError, Observed, ResourceFailedError

READABLE = (ResourceFailedError, NoConnectionError, ValueError)

Provider = TypeVar("Provider")
Answer = TypeVar("Answer")
Handler = Callable[[Provider, Any, Any], Awaitable[Answer]]


def readable(handler: Handler[Provider, Answer]) -> Handler[Provider, Answer]:
    """Turn what a person can act on into the call's failure; anything else is a defect and shows as one."""

    @functools.wraps(handler)
    async def handle(self: Provider, request: Any, context: Any) -> Answer:
        try:
            return await handler(self, request, context)
        except IncompleteError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error), _details(error))
        except READABLE as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        raise AssertionError("abort does not return")

    return handle


def check_response(inputs: Properties, failures: Iterable[Failure] = ()) -> provider_pb2.CheckResponse:
    return provider_pb2.CheckResponse(
        inputs=encode_properties(inputs),
        failures=[provider_pb2.CheckFailure(property=each.property, reason=each.reason) for each in failures],
    )


def diff_response(difference: Difference) -> provider_pb2.DiffResponse:
    detailed = {}
    for path, change in difference.changes.items():
        # The protocol names its kinds as we do, with a suffix where the change replaces the object.
        name = f"{change.name}_REPLACE" if path in difference.replacing else change.name
        kind = provider_pb2.PropertyDiff.Kind.Value(name)
        detailed[path_text(path)] = provider_pb2.PropertyDiff(kind=kind, inputDiff=True)
    answer = provider_pb2.DiffResponse
    return answer(
        changes=answer.DIFF_SOME if detailed else answer.DIFF_NONE,
        diffs=sorted({str(path[0]) for path in difference.changes}),
        replaces=sorted(path_text(path) for path in difference.replacing),
        deleteBeforeReplace=difference.delete_first,
        detailedDiff=detailed,
        hasDetailedDiff=True,
    )


def read_response(observed: Observed | None) -> provider_pb2.ReadResponse:
    """Without an id, the engine knows that the object is gone."""
    if observed is None:
        return provider_pb2.ReadResponse()
    return provider_pb2.ReadResponse(
        id=observed.id,
        properties=encode_properties(observed.outputs),
        inputs=encode_properties(observed.inputs),
    )


def _details(error: IncompleteError) -> tuple[tuple[str, bytes], ...]:
    """With these the engine remembers the object, and tries to complete it the next time."""
    failed = provider_pb2.ErrorResourceInitFailed(
        id=error.observed.id,
        properties=encode_properties(error.observed.outputs),
        inputs=encode_properties(error.observed.inputs),
        reasons=[str(error)],
    )
    detail = any_pb2.Any()
    detail.Pack(failed)
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error), details=[detail])
    return (("grpc-status-details-bin", status.SerializeToString()),)
