"""What a tenant's request becomes: checked, hashed, merged, and built into a unit."""

import json
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import request_hash
from gpu_platform.domain.units import (
    Access,
    GPUUnitSpec,
    Template,
    UnitChange,
    UnitRequest,
    accepted_text,
    build_started,
    build_unit,
    merge_change,
    normalise_request,
)
from gpu_platform.domain.value import RequestError

WEB = {"name": "web", "port": 80}
SSH = {"name": "ssh", "port": 22}
HASH = "a" * 64


def request(**fields: Any) -> UnitRequest:
    return UnitRequest.model_validate({"name": "train", "specName": "g1.1", "image": "example/train", **fields})


def spec(**fields: Any) -> GPUUnitSpec:
    said = {"specName": "g1.1", "image": "example/train", "memory": "16Gi", "gpu": 1, "restarts": 2, **fields}
    return GPUUnitSpec.model_validate(said)


def stock(**labels: str) -> Json:
    return {
        "metadata": {"name": "warm-3", "namespace": "runtime-stock", "uid": "uid-warm-3", "labels": labels},
        "spec": {"specName": "g1.1", "memory": "16Gi", "gpu": 1},
    }


@pytest.mark.parametrize(
    ("template", "access", "normalised"),
    [
        ({}, None, None),
        ({}, {"scheme": "https"}, None),
        ({"ports": [WEB, SSH]}, None, {"primaryPort": "web", "scheme": "http"}),
        ({"ports": [WEB, SSH]}, {"scheme": "tcp"}, {"primaryPort": "web", "scheme": "tcp"}),
        ({"ports": [WEB, SSH]}, {"primaryPort": "ssh"}, {"primaryPort": "ssh", "scheme": "http"}),
        ({"ports": [WEB]}, {"public": True}, {"primaryPort": "web", "scheme": "http", "public": True}),
        ({"ports": [WEB]}, {"tenant": True}, {"primaryPort": "web", "scheme": "http", "tenant": True}),
    ],
)
def test_the_access_names_its_port_or_there_is_none(template: Json, access: Json | None, normalised: Json) -> None:
    found = normalise_request(request(template=template, access=access)).access
    assert (found.to_json() if found else None) == normalised


def test_normalising_twice_changes_nothing() -> None:
    once = normalise_request(request(template={"ports": [WEB]}))
    assert normalise_request(once) == once


def test_unsaid_defaults_make_no_other_request() -> None:
    said = request(template={"ports": [{**WEB, "protocol": "TCP"}]}, access={"primaryPort": "web", "scheme": "http"})
    unsaid = request(template={"ports": [WEB]})
    assert request_hash(normalise_request(said)) == request_hash(normalise_request(unsaid))


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "other"},
        {"specName": "g1.2"},
        {"image": "example/train:2"},
        {"stockName": "warm-1"},
        {"template": {"args": ["a b"]}},
        {"template": {"args": ["a", "b"]}},
        {"template": {"command": ["a", "b"]}},
        {"template": {"ports": [WEB, SSH]}},
        {"template": {"ports": [SSH, WEB]}},
        {"serverless": {"requestID": "words"}},
    ],
)
def test_whatever_is_said_differently_is_another_request(fields: Json) -> None:
    plain = request_hash(normalise_request(request()))
    hashes = {request_hash(normalise_request(request(**each))) for each in ({}, fields, {"template": {"args": ["ab"]}})}
    assert plain in hashes
    assert len(hashes) == 3


PROBE_BOTH = {"http": {"port": "web"}, "command": ["true"]}
PROBE_TCP = {"tcp": {"port": "web"}}


def test_a_request_without_a_tcp_probe_has_the_hash_that_it_had_before_there_were_any() -> None:
    probes = {"readiness": {"http": {"path": "/ok", "port": "web"}}, "liveness": {"command": ["true"]}}
    asked = normalise_request(request(template={"ports": [WEB], "probes": probes}))
    assert request_hash(asked) == "6d15a5216fe732ed5262efbc394f146566174f25984497169ec6d886dc2da384"


def test_a_tcp_probe_names_a_port_for_tcp() -> None:
    asked = normalise_request(request(template={"ports": [WEB], "probes": {"readiness": PROBE_TCP}}))
    assert asked.to_json()["template"]["probes"]["readiness"]["tcp"] == {"port": "web"}


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"name": "Train"}, "name", "lower-case"),
        ({"name": ""}, "name", "1 to 40"),
        ({"name": "a" * 41}, "name", "1 to 40"),
        ({"name": "a..b"}, "name", "lower-case"),
        ({"name": "train\n"}, "name", "lower-case"),
        ({"template": {"envs": [{"name": "A"}, {"name": "A"}]}}, "template.envs[1].name", "'A' is there twice"),
        ({"template": {"ports": [WEB, {**SSH, "name": "web"}]}}, "template.ports[1].name", "'web' is there twice"),
        ({"template": {"ports": [WEB, {**SSH, "port": 80}]}}, "template.ports[1].port", "80 is there twice"),
        ({"template": {"probes": {"startup": {}}}}, "template.probes.startup", "exactly one of"),
        (
            {"template": {"ports": [WEB], "probes": {"liveness": PROBE_BOTH}}},
            "template.probes.liveness",
            "exactly one of",
        ),
        (
            {"template": {"ports": [WEB], "probes": {"liveness": {**PROBE_TCP, "command": ["true"]}}}},
            "template.probes.liveness",
            "exactly one of `http`, `tcp` and `command`",
        ),
        (
            {"template": {"ports": [SSH], "probes": {"startup": PROBE_TCP}}},
            "template.probes.startup.tcp.port",
            "'web' is no port of the template",
        ),
        (
            {"template": {"ports": [{**WEB, "protocol": "UDP"}], "probes": {"startup": PROBE_TCP}}},
            "template.probes.startup.tcp.port",
            "'web' is a port for UDP; name one for TCP",
        ),
        (
            {"template": {"ports": [WEB], "probes": {"readiness": {"http": {"port": "ssh"}}}}},
            "template.probes.readiness.http.port",
            "'ssh' is no port of the template",
        ),
        (
            {"serverless": {"requestID": "words", "framework": {"socketPath": "/tmp/serverless-framework/.."}}},
            "serverless.framework.socketPath",
            "should name a file",
        ),
        ({"access": {"primaryPort": "web"}}, "access.primaryPort", "it has none"),
        (
            {"template": {"ports": [WEB, SSH]}, "access": {"primaryPort": "x"}},
            "access.primaryPort",
            "'x' is no port of the template; it has web, ssh",
        ),
        ({"access": {"public": True}}, "access.public", "has no ports"),
        ({"access": {"tenant": True}}, "access.tenant", "the template has no ports; add one that your other units can"),
        (
            {"template": {"ports": [WEB]}, "access": {"public": True, "scheme": "https"}},
            "access.public",
            "only plain HTTP can be public, and 'web' speaks https",
        ),
        (
            {"template": {"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]}, "access": {"public": True}},
            "access.public",
            "'dns' speaks UDP",
        ),
    ],
)
def test_what_the_schema_cannot_see_is_refused_by_field(fields: Json, field: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        normalise_request(request(**fields))
    assert caught.value.field == field
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ({}, {}, {}),
        ({}, {"image": "example/other"}, {"image": "example/other"}),
        ({"template": {"args": ["a"]}}, {"image": "new"}, {"image": "new", "template": {"args": ["a"]}}),
        ({"template": {"args": ["a"]}}, {"template": {"command": ["b"]}}, {"template": {"command": ["b"]}}),
        ({"template": {"args": ["a"]}}, {"template": {}}, {"template": {"args": ["a"]}}),
        (
            {"template": {"ports": [WEB]}, "access": {"primaryPort": "web", "scheme": "tcp"}},
            {"template": {"ports": [SSH]}},
            {"template": {"ports": [SSH]}, "access": {"primaryPort": "ssh", "scheme": "tcp"}},
        ),
        (
            {"template": {"ports": [WEB, SSH]}, "access": {"primaryPort": "ssh", "scheme": "tcp"}},
            {"template": {"ports": [WEB, SSH], "args": ["x"]}},
            {"template": {"ports": [WEB, SSH], "args": ["x"]}, "access": {"primaryPort": "ssh", "scheme": "tcp"}},
        ),
        (
            {"template": {"ports": [WEB, SSH]}, "access": {"primaryPort": "ssh", "scheme": "tcp"}},
            {"access": {"scheme": "https"}},
            {"template": {"ports": [WEB, SSH]}, "access": {"primaryPort": "web", "scheme": "https"}},
        ),
        # Nobody said that the port that is left may be public.
        (
            {"template": {"ports": [WEB, SSH]}, "access": {"primaryPort": "web", "public": True}},
            {"template": {"ports": [SSH]}},
            {"template": {"ports": [SSH]}, "access": {"primaryPort": "ssh", "scheme": "http"}},
        ),
        (
            {"template": {"ports": [WEB]}, "access": {"primaryPort": "web"}},
            {"template": {"args": ["no ports"]}},
            {"template": {"args": ["no ports"]}, "access": None},
        ),
        ({}, {"serverless": {"requestID": "words"}}, {"serverless": {"requestID": "words"}}),
        ({"serverless": {"requestID": "words"}}, {"image": "new"}, {"image": "new"}),
        (
            {"serverless": {"requestID": "words", "minAvailableCount": 2}},
            {"serverless": {"requestID": "other"}},
            {"serverless": {"requestID": "other"}},
        ),
    ],
    ids=[
        "nothing",
        "image",
        "image alone keeps the template",
        "template as a whole",
        "an empty template keeps it",
        "the port is gone: the first one, the same scheme",
        "the port is still there",
        "access is replaced",
        "the public port is gone: private",
        "without ports no access",
        "serverless",
        "image alone keeps what is serverless",
        "serverless as a whole",
    ],
)
def test_a_change_is_merged(before: Json, change: Json, after: Json) -> None:
    merged = merge_change(spec(**before), UnitChange.model_validate(change))
    assert merged == spec(**{**before, **after})
    assert (merged.spec_name, merged.memory, merged.gpu, merged.restarts) == ("g1.1", "16Gi", 1, 2)


@pytest.mark.parametrize(
    ("before", "change", "field"),
    [
        ({}, {"template": {"ports": [WEB, WEB]}}, "template.ports[1].name"),
        ({}, {"access": {"primaryPort": "web"}}, "access.primaryPort"),
        (
            {"template": {"ports": [WEB]}},
            {"template": {"ports": [SSH]}, "access": {"primaryPort": "web"}},
            "access.primaryPort",
        ),
        ({}, {"template": {"probes": {"startup": {"http": {"port": "web"}}}}}, "template.probes.startup.http.port"),
    ],
)
def test_a_change_is_checked_against_what_it_makes(before: Json, change: Json, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        merge_change(spec(**before), UnitChange.model_validate(change))
    assert caught.value.field == field


def test_a_unit_has_the_size_of_its_stock_and_says_where_it_comes_from() -> None:
    unit = build_unit(normalise_request(request()), "runtime-instance", stock(**{names.LABEL_POOL: "warm"}), "o", HASH)
    assert unit["metadata"]["name"] == "train"
    assert unit["metadata"]["namespace"] == "runtime-instance"
    assert unit["metadata"]["labels"][names.LABEL_POOL] == "warm"
    annotations = unit["metadata"]["annotations"]
    assert annotations[names.ANNOTATION_OPERATION_ID] == "o"
    assert annotations[names.ANNOTATION_REQUEST_HASH] == HASH
    assert annotations[names.ANNOTATION_SOURCE_STOCK_NAME] == "warm-3"
    assert annotations[names.ANNOTATION_SOURCE_STOCK_NAMESPACE] == "runtime-stock"
    assert annotations[names.ANNOTATION_SOURCE_STOCK_UID] == "uid-warm-3"
    assert (unit["spec"]["memory"], unit["spec"]["gpu"]) == ("16Gi", 1)
    assert unit["spec"]["image"] == "example/train"
    assert unit["spec"]["running"] is True
    assert json.loads(annotations[names.ANNOTATION_ACCEPTED_SPEC]) == unit["spec"]


def test_a_unit_that_takes_calls_says_so_and_it_is_accepted() -> None:
    wanted = normalise_request(request(serverless={"requestID": "words", "minAvailableCount": 2}))
    unit = build_unit(wanted, "runtime-instance", stock(), "o", HASH)
    assert unit["spec"]["serverless"]["requestID"] == "words"
    assert json.loads(unit["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC]) == unit["spec"]
    assert "serverless" not in build_unit(request(), "runtime-instance", stock(), "o", HASH)["spec"]


def test_a_request_without_a_serverless_block_has_the_hash_that_it_always_had() -> None:
    assert "serverless" not in normalise_request(request()).to_json()


def test_stock_without_a_pool_gives_a_unit_without_one() -> None:
    unit = build_unit(request(), "runtime-instance", stock(), "o", HASH)
    assert names.LABEL_POOL not in unit["metadata"]["labels"]


def test_a_started_unit_runs_in_the_place_of_its_new_stock() -> None:
    first = {**stock(**{names.LABEL_POOL: "old"}), "spec": {"memory": "16Gi", "gpu": 1}}
    unit = build_unit(request(), "runtime-instance", first, "o", HASH)
    unit["metadata"].update(uid="u", resourceVersion="7")
    unit["metadata"]["labels"]["mine"] = "kept"
    unit["metadata"]["annotations"]["mine"] = "kept"
    unit["spec"]["running"] = False
    second = {**stock(**{names.LABEL_POOL: "new"}), "metadata": stock(**{names.LABEL_POOL: "new"})["metadata"]}
    second["metadata"]["name"] = "new-1"
    started = build_started(unit, second)
    metadata = started["metadata"]
    assert started["spec"]["running"] is True
    assert (metadata["uid"], metadata["resourceVersion"]) == ("u", "7")
    assert (metadata["labels"]["mine"], metadata["annotations"]["mine"]) == ("kept", "kept")
    assert metadata["labels"][names.LABEL_POOL] == "new"
    assert metadata["annotations"][names.ANNOTATION_SOURCE_STOCK_NAME] == "new-1"
    assert metadata["annotations"][names.ANNOTATION_OPERATION_ID] == "o"
    assert json.loads(metadata["annotations"][names.ANNOTATION_ACCEPTED_SPEC]) == started["spec"]
    assert unit["spec"]["running"] is False


def test_a_started_unit_loses_the_label_of_a_pool_that_its_new_stock_does_not_have() -> None:
    unit = build_unit(request(), "runtime-instance", stock(**{names.LABEL_POOL: "old"}), "o", HASH)
    assert names.LABEL_POOL not in build_started(unit, stock())["metadata"]["labels"]


def test_one_spec_has_one_text() -> None:
    said = spec(template=Template().to_json(), access=Access(primary_port="web").to_json())
    same = GPUUnitSpec.model_validate(dict(reversed(list(said.to_json().items()))))
    assert accepted_text(said) == accepted_text(same)


@pytest.mark.parametrize(
    ("mounts", "field", "words"),
    [
        ([{"name": "Data", "mountPath": "/data"}], "storageMounts[0].name", "1 to 40 lower-case"),
        ([{"name": "data", "mountPath": "data"}], "storageMounts[0].mountPath", "absolute path"),
        ([{"name": "data", "mountPath": "/"}], "storageMounts[0].mountPath", "below `/`"),
        ([{"name": "data", "mountPath": "/a/.."}], "storageMounts[0].mountPath", "below `/`"),
        ([{"name": "data", "mountPath": "/a:b"}], "storageMounts[0].mountPath", "colons"),
        ([{"name": "data", "mountPath": "/dev//shm"}], "storageMounts[0].mountPath", "taken by the platform"),
        (
            [{"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/b"}],
            "storageMounts[1].name",
            "'data' is there twice",
        ),
        (
            [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/x/../a/"}],
            "storageMounts[1].mountPath",
            "'/a' is there twice",
        ),
    ],
)
def test_what_cannot_be_mounted_is_refused_by_field(mounts: list[Json], field: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        normalise_request(request(storageMounts=mounts))
    assert caught.value.field == field
    assert words in caught.value.message


def test_mounts_have_clean_paths_and_are_in_the_order_of_their_names() -> None:
    mounts = [{"name": "b", "mountPath": "//data/./b/", "readOnly": True}, {"name": "a", "mountPath": "/a"}]
    unit = build_unit(normalise_request(request(storageMounts=mounts)), "runtime-instance", stock(), "op-1", HASH)
    assert unit["spec"]["storageMounts"] == [
        {"name": "a", "mountPath": "/a", "readOnly": False},
        {"name": "b", "mountPath": "/data/b", "readOnly": True},
    ]


def test_mounts_stay_until_they_are_said_anew_and_an_empty_list_unmounts() -> None:
    mounted = spec(storageMounts=[{"name": "a", "mountPath": "/a"}])
    assert merge_change(mounted, UnitChange(image="new")).storage_mounts == mounted.storage_mounts
    assert merge_change(mounted, UnitChange(storage_mounts=())).storage_mounts == ()
