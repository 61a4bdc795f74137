"""What is particular about refusing calls."""

from gpu_platform.domain.invocations import InvocationState
from platform_api.http.errors import RETRY_SECONDS, ApiError, conflict, not_found, unavailable

PATH = "/api/v1/serverless/invocations"
FULL_SECONDS = 5
"""A queue that is full will not be empty in a moment."""


def invocation_not_found(invocation_id: str) -> ApiError:
    return not_found(
        "invocation_not_found",
        f"there is no invocation {invocation_id!r}; after their end they are kept for a limited time",
    )


def queue_full(function: str, limit: int) -> ApiError:
    message = f"{limit} calls of the function {function!r} wait or run, which is its queueLimit; try again later"
    return ApiError(429, "queue_full", message, headers={"Retry-After": str(FULL_SECONDS)})


def too_many_records(used: int, limit: int) -> ApiError:
    message = (
        f"the tenant has {used} invocations, and its limit invocationRecords is {limit}; delete invocations that are "
        f"over (DELETE {PATH}/{{invocationID}}), or wait until their retention ends"
    )
    return ApiError(429, "too_many_invocations", message, headers={"Retry-After": str(FULL_SECONDS)})


def too_many_records_while_scarce(used: int, limit: int) -> ApiError:
    message = (
        f"the tenant has {used} invocations; room for records is scarce, and tenants with {limit} or more cannot add "
        f"any; delete invocations that are over (DELETE {PATH}/{{invocationID}}), or wait until their retention ends"
    )
    return ApiError(429, "too_many_invocations", message, headers={"Retry-After": str(FULL_SECONDS)})


def too_many_bytes(used: int, asked: int, limit: int) -> ApiError:
    addition = f", this payload would add {asked}" if asked else ""
    message = (
        f"the payloads and results of the tenant's invocations take {used} bytes{addition}, and its limit "
        f"invocationBytes is {limit}; delete invocations that are over (DELETE {PATH}/{{invocationID}}), cancel those "
        "that wait, or wait until their retention ends"
    )
    return ApiError(429, "too_many_invocation_bytes", message, headers={"Retry-After": str(FULL_SECONDS)})


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
