"""What version 0.1.0 recorded of its objects is read as it was meant then: same specs, same hashes, same intents."""

from collections.abc import Callable

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.functions import FunctionRequest, normalise_function
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.operations import OperationSpec, is_made_by, operation_name, request_hash
from gpu_platform.domain.stacks import SPECS, Intent, is_recorded, parse_address, parse_record, read_intent
from gpu_platform.domain.stock import Claim, PoolRequest, claim_of, claimed_at, is_claimed
from gpu_platform.domain.storages import StorageRequest, normalise_storage
from gpu_platform.domain.units import UnitRequest, accepted_text, normalise_request
from gpu_platform.domain.value import Value
from stacks.restore.plan import Kept, parse_checkpoint
from tests.support.builders import NOW
from tests.support.earlier_version import EARLIER_CLAIMED_STOCK, EARLIER_STACKS

REQUESTS: dict[str, Callable[[Json], Value]] = {
    "CreateUnit": lambda request: normalise_request(UnitRequest.model_validate(request)),
    "CreateStorage": lambda request: normalise_storage(StorageRequest.model_validate(request)),
    "CreateFunction": lambda request: normalise_function(FunctionRequest.model_validate(request)),
    "CreateStockPool": PoolRequest.model_validate,
}


@pytest.fixture(params=EARLIER_STACKS)
def earlier(request: pytest.FixtureRequest) -> Json:
    return EARLIER_STACKS[request.param]


@pytest.fixture
def intent(earlier: Json) -> Intent:
    found = read_intent(earlier["object"])
    assert isinstance(found, Intent)
    return found


def test_an_accepted_spec_has_the_hash_that_the_api_showed_then(earlier: Json, intent: Intent) -> None:
    assert intent.address.full_name == earlier["stack"]
    assert intent.accepted_hash == earlier["acceptedHash"]
    assert intent.accepted_spec == annotations_of(earlier["object"])[names.ANNOTATION_ACCEPTED_SPEC]
    for spec in (intent.spec, earlier["object"]["spec"]):
        assert accepted_text(SPECS[intent.address.kind].model_validate(spec)) == intent.accepted_spec


def test_a_recorded_request_has_the_hash_that_was_recorded_with_it(earlier: Json, intent: Intent) -> None:
    operation = OperationSpec.model_validate(earlier["operation"]["spec"])
    assert request_hash(REQUESTS[operation.kind](operation.request)) == operation.request_hash == intent.request_hash
    assert is_made_by(earlier["object"], operation)
    name = operation_name(intent.address.ledger_tenant, operation.operation_id)
    assert earlier["operation"]["metadata"]["name"] == name


def test_the_index_says_that_the_object_is_recorded(earlier: Json, intent: Intent) -> None:
    record = parse_record(earlier["lease"])
    assert record is not None
    assert earlier["lease"]["metadata"]["name"] == intent.address.lease
    assert is_recorded(record, intent)
    assert record.intent == intent


def test_the_state_of_its_stack_keeps_the_same_intent(earlier: Json, intent: Intent) -> None:
    address = parse_address(*earlier["stack"].split("/"))
    assert address is not None
    kept = parse_checkpoint(address, earlier["checkpoint"])
    assert isinstance(kept, Kept)
    assert kept.intent == intent


def test_a_claim_is_one_still() -> None:
    operation = EARLIER_STACKS["unit"]["operation"]["metadata"]["name"]
    assert is_claimed(EARLIER_CLAIMED_STOCK)
    assert claim_of(EARLIER_CLAIMED_STOCK) == Claim(f"{names.DEFAULT_INSTANCE_NAMESPACE}/earlier-web", operation)
    assert claimed_at(EARLIER_CLAIMED_STOCK, NOW) is not None
