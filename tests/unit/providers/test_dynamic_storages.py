"""What a tenant's program may wish of a storage, and what of a change needs a new one."""

from collections.abc import Iterator
from typing import Any

import pytest
from pulumi.output import Unknown

from gpu_platform.domain.json_text import Json
from providers.rest.connection import Connection, RefusedError
from providers.rest.kinds import STORAGES, UNITS
from providers.rest.lifecycle import Lifecycle
from tests.unit.client.api_server import NO_CONTENT, Answer, ApiServer, data, refusal, running_server

UNKNOWN = Unknown()  # type: ignore[no-untyped-call]
OWNER = "acme/urn:pulumi:dev::shop::storage::weights"
FROM_IMAGE = {"fromImage": "example/fill", "command": ["fill"]}


def wish(**fields: Any) -> Json:
    return {"name": "weights", "size": "10Gi", "owner": OWNER, **fields}


def checked(**fields: Any) -> Json:
    inputs, failures = STORAGES.check(wish(**fields))
    assert failures == ()
    return inputs


def view_of(inputs: Json, **fields: Any) -> Json:
    """How the API shows a storage with these inputs."""
    shown = {key: value for key, value in inputs.items() if key not in ("owner", "readyWithinSeconds")}
    return {
        **shown,
        "namespace": "runtime-instance",
        "phase": "Ready",
        "capacity": inputs["size"],
        "mountedBy": [],
        "generation": 1,
        "operationID": "order-1",
        **fields,
    }


def test_what_is_left_out_is_kept_as_its_default_and_a_size_as_the_cluster_writes_it() -> None:
    inputs = checked(size="10240Mi")
    assert (inputs["size"], inputs["accessor"], inputs["retain"]) == ("10Gi", {"enabled": False}, False)
    assert inputs["readyWithinSeconds"] == 300
    assert STORAGES.check(inputs) == (inputs, ())


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"name": "Weights"}, "name"),
        ({"size": "many"}, "size"),
        ({"size": "0"}, "size"),
        ({"prepare": {"fromImage": "example/fill"}}, "prepare.command"),
        ({"prepare": {**FROM_IMAGE, "fromStorageName": "other"}}, "prepare"),
        ({"prepare": {"fromStorageName": "weights"}}, "prepare.fromStorageName"),
        ({"accessor": {"on": True}}, "accessor.on"),
    ],
)
def test_what_the_api_would_refuse_is_refused_here(fields: Json, place: str) -> None:
    _, [failure] = STORAGES.check(wish(**fields))
    assert failure.field == place


@pytest.mark.parametrize(
    ("old", "new", "changed", "replacing"),
    [
        ({}, {"size": "20Gi"}, ("size",), ()),
        # Refused by the API then, and no reason to throw the data away.
        ({"size": "20Gi"}, {"size": "10Gi"}, ("size",), ()),
        ({}, {"size": "10240Mi"}, (), ()),
        ({}, {"accessor": {"enabled": True}}, ("accessor",), ()),
        ({}, {"retain": True}, ("retain",), ()),
        ({}, {"storageClassName": "fast"}, ("storageClassName",), ("storageClassName",)),
        ({"prepare": FROM_IMAGE}, {}, ("prepare",), ("prepare",)),
        ({}, {"name": "other"}, ("name",), ("name",)),
        ({}, {"readyWithinSeconds": 1}, (), ()),
    ],
)
def test_what_a_change_does(old: Json, new: Json, changed: tuple[str, ...], replacing: tuple[str, ...]) -> None:
    found = STORAGES.find_difference(checked(**old), checked(**new))
    assert (found.changed, found.replacing) == (changed, replacing)


def test_a_refresh_finds_what_the_program_said_and_what_somebody_changed() -> None:
    inputs = checked(prepare=FROM_IMAGE)
    view = view_of(inputs, colour="green")
    assert STORAGES.find_difference(STORAGES.build_outputs(view, inputs), inputs).changed == ()
    assert STORAGES.build_inputs(STORAGES.build_outputs(view, inputs)) == inputs
    grown = STORAGES.build_outputs({**view, "size": "30Gi"}, inputs)
    assert STORAGES.find_difference(grown, inputs).changed == ("size",)


def test_requests_have_what_the_api_knows() -> None:
    inputs = checked(prepare=FROM_IMAGE)
    assert set(STORAGES.build_request(inputs, "order-1")) == {
        "operationID",
        "name",
        "size",
        "prepare",
        "accessor",
        "retain",
    }
    assert set(STORAGES.build_change(inputs)) == {"size", "accessor", "retain"}


def test_what_is_not_known_yet_is_not_refused() -> None:
    inputs, failures = STORAGES.check(wish(size=UNKNOWN))
    assert failures == ()
    assert STORAGES.find_difference(checked(), inputs).changed == ("size",)


def test_a_unit_that_no_longer_mounts_is_told_so() -> None:
    """To a PUT, an empty list unmounts, and one that is left out changes nothing."""

    def mounting(*mounts: Json) -> Json:
        unit = {"name": "web", "specName": "g1.1", "image": "example/web", "storageMounts": list(mounts)}
        inputs, failures = UNITS.check(unit)
        assert failures == ()
        return inputs

    before, after = mounting({"name": "weights", "mountPath": "/weights"}), mounting()
    found = UNITS.find_difference(before, after)
    assert (found.changed, found.replacing) == (("storageMounts",), ())
    assert UNITS.build_change(after)["storageMounts"] == []
    assert before["storageMounts"] == [{"name": "weights", "mountPath": "/weights", "readOnly": False}]


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with running_server() as server:
        yield server


IN_USE = refusal(409, "storage_in_use", "the storage 'weights' is mounted by the unit 'train'")
GONE = refusal(404, "gpustorage_not_found", "no storage 'weights'")


def take_away(api: ApiServer) -> None:
    Lifecycle(STORAGES, Connection(api.url, "key"), stock_seconds=0).delete("weights", None)


@pytest.mark.parametrize(
    "unit",
    [
        refusal(404, "gpuunit_not_found", "no unit 'train'"),
        data({"name": "train", "phase": "Terminating", "storageMounts": [{"name": "weights"}]}),
        data({"name": "train", "phase": "Ready", "storageMounts": []}),
    ],
    ids=["gone", "being deleted", "unmounted"],
)
def test_a_storage_waits_for_its_release_by_a_unit_that_needs_it_no_more(api: ApiServer, unit: Answer) -> None:
    view = data(view_of(checked(), mountedBy=["train"]))
    api.on("GET", "/gpu-storages/weights", view, view, GONE)
    api.on("GET", "/gpu-units/train", unit)
    api.on("DELETE", "/gpu-storages/weights", IN_USE, NO_CONTENT)

    take_away(api)

    assert len(api.asked("DELETE", "/gpu-storages/weights")) == 2


def test_a_storage_that_a_live_unit_mounts_is_not_deleted(api: ApiServer) -> None:
    api.on("GET", "/gpu-storages/weights", data(view_of(checked(), mountedBy=["train"])))
    api.on(
        "GET", "/gpu-units/train", data({"name": "train", "phase": "Stopped", "storageMounts": [{"name": "weights"}]})
    )
    api.on("DELETE", "/gpu-storages/weights", IN_USE)

    with pytest.raises(RefusedError, match="is mounted by the unit 'train'"):
        take_away(api)
