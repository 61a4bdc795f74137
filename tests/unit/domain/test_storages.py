"""What a tenant's request for a storage becomes: checked, hashed, merged, built; and when it may be prepared again."""

import json
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import marks_of, request_hash
from gpu_platform.domain.storages import (
    GPUStorageSpec,
    Prepare,
    RecoveryRefusedError,
    StorageChange,
    StorageRequest,
    build_recovery,
    build_storage,
    check_recovery,
    merge_storage_change,
    normalise_storage,
    prepare_digest,
)
from gpu_platform.domain.value import RequestError
from tests.support.builders import make_storage

HASH = "a" * 64
FETCH = {"fromImage": "example/fetch", "command": ["fetch"]}


def request(**fields: Any) -> StorageRequest:
    return StorageRequest.model_validate({"name": "weights", "size": "10Gi", **fields})


def spec(**fields: Any) -> GPUStorageSpec:
    return GPUStorageSpec.model_validate({"size": "10Gi", **fields})


@pytest.mark.parametrize(
    "fields", [{"size": "10240Mi"}, {"accessor": {"enabled": False}}, {"retain": False}, {"prepare": None}]
)
def test_the_same_wish_in_other_words_is_the_same_request(fields: Json) -> None:
    assert request_hash(normalise_storage(request(**fields))) == request_hash(normalise_storage(request()))


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "other"},
        {"size": "11Gi"},
        {"storageClassName": "fast"},
        {"prepare": FETCH},
        {"accessor": {"enabled": True}},
        {"retain": True},
    ],
)
def test_whatever_is_said_differently_is_another_request(fields: Json) -> None:
    assert request_hash(normalise_storage(request(**fields))) != request_hash(normalise_storage(request()))


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"name": "Weights"}, "name", "1 to 40 lower-case letters"),
        ({"name": "a" * 41}, "name", "1 to 40"),
        ({"name": "a.b"}, "name", "inner hyphens"),
        ({"size": "much"}, "size", "'much' is not a quantity"),
        ({"size": "0"}, "size", "more than zero"),
        ({"size": "-1Gi"}, "size", "more than zero"),
        ({"prepare": {}}, "prepare", "exactly one of `fromImage` and `fromStorageName`"),
        ({"prepare": {**FETCH, "fromStorageName": "base"}}, "prepare", "exactly one"),
        ({"prepare": {"fromImage": "example/fetch"}}, "prepare.command", "what `fromImage` is to run"),
        ({"prepare": {"fromStorageName": "base", "args": ["a"]}}, "prepare.command", "go with `fromImage`"),
        ({"prepare": {"fromStorageName": "Base"}}, "prepare.fromStorageName", "1 to 40"),
        ({"prepare": {"fromStorageName": "weights"}}, "prepare.fromStorageName", "cannot be a copy of itself"),
    ],
)
def test_what_the_schema_cannot_see_is_refused_by_field(fields: Json, field: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        normalise_storage(request(**fields))
    assert caught.value.field == field
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ({}, {}, {}),
        ({}, {"size": "20Gi"}, {"size": "20Gi"}),
        ({}, {"size": "20480Mi"}, {"size": "20Gi"}),
        ({"size": "10Gi"}, {"size": "10240Mi"}, {"size": "10Gi"}),
        ({"prepare": FETCH}, {"accessor": {"enabled": True}}, {"prepare": FETCH, "accessor": {"enabled": True}}),
        ({"accessor": {"enabled": True}}, {"accessor": {}}, {"accessor": {"enabled": False}}),
        ({"retain": True}, {"retain": False}, {"retain": False}),
    ],
)
def test_what_is_said_takes_the_place_of_what_was_and_the_rest_stays(before: Json, change: Json, after: Json) -> None:
    assert merge_storage_change(spec(**before), StorageChange.model_validate(change)) == spec(**after)


def test_a_storage_does_not_shrink() -> None:
    with pytest.raises(RequestError, match="cannot shrink: it has 10Gi") as caught:
        merge_storage_change(spec(), StorageChange(size="9Gi"))
    assert caught.value.field == "size"


def test_class_and_preparation_are_fixed() -> None:
    assert set(GPUStorageSpec.model_fields) - set(StorageChange.model_fields) == {"storage_class_name", "prepare"}


def test_a_storage_says_what_was_accepted_and_is_protected_from_the_start() -> None:
    wanted = normalise_storage(request(size="10240Mi", prepare=FETCH))
    storage = build_storage(wanted, "runtime-instance-acme", "op-1", HASH)
    metadata = storage["metadata"]
    assert (storage["kind"], metadata["name"], metadata["namespace"]) == (
        "GPUStorage",
        "weights",
        "runtime-instance-acme",
    )
    assert metadata["finalizers"] == [names.STORAGE_FINALIZER]
    assert marks_of(storage) == ("op-1", HASH)
    assert json.loads(metadata["annotations"][names.ANNOTATION_ACCEPTED_SPEC]) == storage["spec"]
    assert storage["spec"]["size"] == "10Gi"


def prepared(phase: str, **annotations: str) -> Json:
    storage = make_storage(prepare=FETCH)
    storage["metadata"]["annotations"] = {f"{names.GROUP}/{key.replace('_', '-')}": v for key, v in annotations.items()}
    digest = prepare_digest(Prepare.model_validate(FETCH), None)
    return {**storage, "status": {"prepare": {"phase": phase, "observedDigest": digest}}}


def test_a_failed_preparation_of_a_free_storage_may_be_repeated() -> None:
    storage = prepared("Failed")
    check_recovery(storage)
    patch = build_recovery(storage, "again")
    assert patch["metadata"] == {
        "uid": "uid-weights",
        "resourceVersion": "7",
        "annotations": {names.ANNOTATION_RECOVERY_NONCE: "again"},
    }


def test_nothing_is_repeated_where_nothing_was_prepared() -> None:
    with pytest.raises(RequestError, match="nothing to repeat"):
        check_recovery(make_storage())


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        (prepared("Running"), "has not ended yet"),
        (prepared("Pending"), "has not ended yet"),
        ({**prepared("Failed"), "status": {}}, "has not ended yet"),
        (prepared("Failed", mounted_by="unit/train"), "unit/train uses it"),
        (prepared("Failed", mounted_by="storage/copy"), "storage/copy uses it"),
        (prepared("Failed", storage_recovery_nonce="asked for a moment ago"), "has not ended yet"),
        (prepared("Succeeded"), "must not overwrite"),
        (
            {**prepared("Failed"), "metadata": {**prepared("Failed")["metadata"], "deletionTimestamp": "now"}},
            "is being deleted",
        ),
    ],
)
def test_a_preparation_is_not_repeated_under_anybodys_hands(storage: Json, words: str) -> None:
    with pytest.raises(RecoveryRefusedError, match=words):
        check_recovery(storage)


def test_a_preparation_is_another_one_with_another_wish_or_another_nonce() -> None:
    fetch = Prepare.model_validate(FETCH)
    other = Prepare.model_validate({**FETCH, "args": ["a"]})
    digests = [prepare_digest(fetch, None), prepare_digest(fetch, "again"), prepare_digest(other, None)]
    assert len(set(digests)) == 3
    assert prepare_digest(Prepare.model_validate(FETCH), None) == digests[0]


def test_no_name_of_a_job_is_longer_than_a_label() -> None:
    job = names.prepare_job_name("a" * names.UNIT_NAME_LIMIT, "f" * 64)
    assert job == f"prep-{'a' * 40}-{'f' * 10}"
    assert len(job) <= 63
