"""Everything that the API can say besides yes. One function per kind of refusal; services raise what they return."""

import re
from collections.abc import Mapping, Sequence

from gpu_platform.api_models.envelope import ErrorDetail
from gpu_platform.domain.names import INSTANCE_NAMESPACE_PREFIX
from gpu_platform.domain.tenant_limits import ReachedLimit, describe_reached, is_uncounted, parse_exceeded
from gpu_platform.kube import AlreadyExistsError, KubeError, QuotaBusyError, UnreachableError

RETRY_SECONDS = 1
CALLER_GONE = 499
UNCOUNTED_SECONDS = 5
"""Before a caller asks again whose objects are not counted yet."""

NAMESPACE_LIMITS = QUOTA, _, ENDING = "exceeded quota", "status unknown for quota", "being terminated"
"""Words of Kubernetes in a 403 that is about the tenant's namespace, not about our own rights."""

NO_RIGHTS = re.compile(rf'in the namespace "(?P<namespace>{INSTANCE_NAMESPACE_PREFIX}[a-z0-9-]+)"')
"""Words of RBAC in a 403. A tenant's namespace that does not exist has no role bindings either."""


NOT_FOUND_CODES = {
    "unit": "gpuunit_not_found",
    "storage": "gpustorage_not_found",
    "function": "function_not_found",
    "stock pool": "stockpool_not_found",
    "stock unit": "stockunit_not_found",
    "spec": "spec_not_found",
}


class ApiError(Exception):
    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Sequence[ErrorDetail] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.details = tuple(details)
        self.headers = dict(headers or {})


def invalid(*details: ErrorDetail) -> ApiError:
    message = "; ".join(f"{detail.field}: {detail.message}" if detail.field else detail.message for detail in details)
    return ApiError(400, "invalid_request", message, details)


def invalid_field(field: str, message: str) -> ApiError:
    return invalid(ErrorDetail(field=field, message=message))


def unauthenticated(message: str) -> ApiError:
    return ApiError(401, "unauthenticated", message, headers={"WWW-Authenticate": "Bearer"})


def forbidden(message: str) -> ApiError:
    return ApiError(403, "forbidden", message)


def quota_exceeded(reached: ReachedLimit) -> ApiError:
    return ApiError(403, "quota_exceeded", describe_reached(reached))


def not_found(code: str, message: str) -> ApiError:
    return ApiError(404, code, message)


def object_not_found(what: str, name: str) -> ApiError:
    """`what` is the kind in plain words."""
    return not_found(NOT_FOUND_CODES[what], f"there is no {what} {name!r}")


def conflict(message: str) -> ApiError:
    return ApiError(409, "operation_conflict", message)


def no_capacity(message: str) -> ApiError:
    return ApiError(409, "insufficient_capacity", message)


def storage_in_use(message: str) -> ApiError:
    return ApiError(409, "storage_in_use", message)


def changed_meanwhile(message: str) -> ApiError:
    return ApiError(412, "precondition_failed", message)


def body_too_slow(received: int) -> ApiError:
    return ApiError(408, "request_timeout", f"the body arrived too slowly: {received} bytes so far; send it at once")


def caller_gone(message: str) -> ApiError:
    """A refusal that has no reader: its status is for the log and the counts."""
    return ApiError(CALLER_GONE, "caller_gone", message)


def body_too_large(limit: int) -> ApiError:
    return ApiError(413, "body_too_large", f"the body has more than {limit} bytes, which is the limit")


def too_many(message: str, retry_seconds: int = RETRY_SECONDS) -> ApiError:
    return ApiError(429, "too_many_requests", message, headers={"Retry-After": str(retry_seconds)})


def unavailable(message: str) -> ApiError:
    return ApiError(503, "service_unavailable", message, headers={"Retry-After": str(RETRY_SECONDS)})


def not_ready(message: str) -> ApiError:
    return ApiError(503, "not_ready", message, headers={"Retry-After": str(RETRY_SECONDS)})


def bad_gateway(message: str) -> ApiError:
    return ApiError(502, "bad_gateway", message)


def gateway_timeout(message: str) -> ApiError:
    return ApiError(504, "gateway_timeout", message)


def in_progress(message: str) -> ApiError:
    return ApiError(503, "operation_in_progress", message, headers={"Retry-After": str(RETRY_SECONDS)})


def from_kube(error: KubeError) -> ApiError:
    """What Kubernetes' refusal means to our caller, where nobody knew better. Its own words are only passed on where
    they are about the caller's request: others name hosts, paths and accounts."""
    if isinstance(error, UnreachableError):
        return unavailable("Kubernetes does not answer just now")
    if (refusal := _from_quota(error)) is not None:
        return refusal
    if error.status in (400, 422):
        return invalid_field("", f"Kubernetes refuses this: {error.message}")
    if isinstance(error, AlreadyExistsError):
        return conflict("an object of this name exists already; choose another name, or try again when it is deleted")
    if error.status == 409:
        return conflict("it was modified concurrently; look at it and try again")
    if error.status == 403 and ENDING in error.message:
        return forbidden("the tenant's namespace is being deleted; ask an operator")
    if error.status == 403 and (unbound := NO_RIGHTS.search(error.message)):
        return forbidden(
            f"the platform has no rights in the namespace {unbound['namespace']} of this tenant, which may not exist "
            "yet; ask an operator to make it"
        )
    if error.status == 429 or error.status >= 500:
        return unavailable(f"Kubernetes answered with status {error.status}; try again")
    return ApiError(500, "internal_error", "Kubernetes refused what the platform asked of it; the log knows more")


def _from_quota(error: KubeError) -> ApiError | None:
    """Returns what the quotas of the tenant's namespace mean to our caller, if they are the cause."""
    if isinstance(error, QuotaBusyError):
        return unavailable("Kubernetes is busy with counting the tenant's objects; try again")
    if error.status != 403:
        return None
    if is_uncounted(error.message):
        return ApiError(
            503,
            "service_unavailable",
            "Kubernetes has not counted the objects of the tenant's namespace yet, which takes minutes after the "
            "platform was installed; try again",
            headers={"Retry-After": str(UNCOUNTED_SECONDS)},
        )
    if (reached := parse_exceeded(error.message)) is not None:
        return quota_exceeded(reached)
    if QUOTA in error.message:
        return forbidden(f"{error.message[error.message.index(QUOTA) :]}; ask an operator for more")
    return None
