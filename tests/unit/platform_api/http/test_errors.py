"""What a refusal of Kubernetes is to a caller: the cause that Kubernetes named, and no other."""

import pytest

from gpu_platform.kube import AlreadyExistsError, ConflictError, KubeError, QuotaBusyError
from platform_api.http.errors import from_kube

OVER_QUOTA = 'gpuunits "web" is forbidden: exceeded quota: tenant, requested: count/gpuunits=1, used: 5, limited: 5'
NO_NAMESPACE = (
    'operations.runtime.lokiwager.io is forbidden: User "system:serviceaccount:runtime-system:gpu-platform-api" '
    'cannot create resource "operations" in API group "runtime.lokiwager.io" in the namespace "runtime-instance-acme"'
)
OVER_COUNT = (
    'gpuunits.runtime.lokiwager.io "web" is forbidden: exceeded quota: platform-object-counts, requested: '
    "count/gpuunits.runtime.lokiwager.io=1, used: count/gpuunits.runtime.lokiwager.io=5k, limited: "
    "count/gpuunits.runtime.lokiwager.io=5k"
)
UNCOUNTED = (
    'operations.runtime.lokiwager.io "op-1" is forbidden: status unknown for quota: platform-object-counts, resources: '
    "count/operations.runtime.lokiwager.io"
)
ENDING = 'gpuunits "web" is forbidden: unable to create new content in namespace x because it is being terminated'


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (
            KubeError(403, "Forbidden", OVER_QUOTA),
            403,
            "exceeded quota: tenant, requested: count/gpuunits=1, used: 5, limited: 5; ask an operator for more",
        ),
        (
            KubeError(403, "Forbidden", OVER_COUNT),
            403,
            "the tenant has 5000 units, and its limit units is 5000; workers of functions count, too: delete units, or "
            "ask an operator for more",
        ),
        (
            KubeError(403, "Forbidden", UNCOUNTED),
            503,
            "Kubernetes has not counted the objects of the tenant's namespace yet, which takes minutes after the "
            "platform was installed; try again",
        ),
        (KubeError(403, "Forbidden", ENDING), 403, "the tenant's namespace is being deleted; ask an operator"),
        (
            KubeError(403, "Forbidden", NO_NAMESPACE),
            403,
            "the platform has no rights in the namespace runtime-instance-acme of this tenant, which may not exist "
            "yet; ask an operator to make it",
        ),
        (KubeError(503, "ServiceUnavailable", "etcd"), 503, "Kubernetes answered with status 503; try again"),
        (
            QuotaBusyError(409, "Conflict", "x"),
            503,
            "Kubernetes is busy with counting the tenant's objects; try again",
        ),
        (ConflictError(409, "Conflict", "x"), 409, "it was modified concurrently; look at it and try again"),
        (
            AlreadyExistsError(409, "AlreadyExists", "x"),
            409,
            "an object of this name exists already; choose another name, or try again when it is deleted",
        ),
    ],
)
def test_a_refusal_names_the_one_cause_that_was_seen(error: KubeError, status: int, message: str) -> None:
    refusal = from_kube(error)
    assert (refusal.status, refusal.message) == (status, message)


def test_the_limit_of_a_kind_has_the_code_of_the_same_refusal_at_accept() -> None:
    assert from_kube(KubeError(403, "Forbidden", OVER_COUNT)).code == "quota_exceeded"
    assert from_kube(KubeError(403, "Forbidden", OVER_QUOTA)).code == "forbidden"


def test_a_caller_whose_objects_are_not_counted_yet_is_told_when_to_try_again() -> None:
    assert from_kube(KubeError(403, "Forbidden", UNCOUNTED)).headers["Retry-After"] == "5"


def test_a_refusal_of_the_platforms_own_rights_is_not_shown() -> None:
    refusal = from_kube(KubeError(403, "Forbidden", 'User "system:serviceaccount:x" cannot list pods'))
    assert refusal.status == 500
    assert "serviceaccount" not in refusal.message
