"""Who may change a unit through its own address."""

import pytest

from gpu_platform.domain import names
from platform_api.http.errors import ApiError
from platform_api.objects.optimistic_update import refuse_worker
from tests.support.builders import make_unit


def test_a_worker_is_changed_through_its_function() -> None:
    unit = make_unit("words-worker-0")
    unit["metadata"]["ownerReferences"] = [names.owner_reference("GPUFunction", "words", "uid-words")]

    with pytest.raises(ApiError, match="it is a worker of the function 'words': change the function") as caught:
        refuse_worker(unit)

    assert (caught.value.status, caught.value.code) == (409, "operation_conflict")


def test_a_unit_of_its_own_is_not_refused() -> None:
    refuse_worker(make_unit("own", serverless={"requestID": "words"}))


def test_a_unit_of_another_groups_controller_is_its_tenants() -> None:
    unit = make_unit("theirs")
    owner = names.owner_reference("GPUFunction", "words", "uid-words")
    unit["metadata"]["ownerReferences"] = [{**owner, "apiVersion": "example.com/v1"}]
    refuse_worker(unit)
