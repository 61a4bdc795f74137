"""The real API server takes our definitions and our samples, fills in what is left out, and lists them well."""

from typing import Any

import pytest

from gpu_platform.domain.crds import KINDS
from gpu_platform.domain.functions import GPUFunctionSpec
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import API_VERSION
from gpu_platform.domain.operations import OperationSpec
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stock import StockPoolSpec
from gpu_platform.domain.storages import GPUStorageSpec
from gpu_platform.domain.units import GPUUnitSpec
from gpu_platform.domain.value import Value
from gpu_platform.kube import KubeClient, KubeError
from tests.support.samples import (
    DEFINITIONS,
    DRY_RUN,
    STRICT_DRY_RUN,
    collection_of,
    ensure_crds,
    load_sample,
    merge,
    patch_as_table,
    path_of,
    stored_sample,
)

SPEC_MODELS: dict[str, type[Value]] = {
    "GPUSpec": GPUSpecSpec,
    "StockPool": StockPoolSpec,
    "GPUUnit": GPUUnitSpec,
    "GPUStorage": GPUStorageSpec,
    "GPUFunction": GPUFunctionSpec,
    "Operation": OperationSpec,
}

every_kind = pytest.mark.parametrize("kind", SPEC_MODELS)


@pytest.fixture(scope="module", autouse=True)
async def crds(kube: KubeClient) -> None:
    await ensure_crds(kube)


def make_object(kind: str, spec: Json) -> Json:
    return load_sample(kind) | {"spec": spec}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_the_definition_is_established_and_structural(kube: KubeClient, kind: Any) -> None:
    crd = await kube.get(DEFINITIONS.item(f"{kind.name.lower()}s.runtime.lokiwager.io"))

    conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in conditions


async def test_kinds_have_short_names_and_status_subresources(kube: KubeClient) -> None:
    resources = (await kube.get(f"/apis/{API_VERSION}"))["resources"]

    assert {resource["name"]: resource.get("shortNames") for resource in resources} == {
        "gpuspecs": ["gspec"],
        "stockpools": ["spool"],
        "stockpools/status": None,
        "gpuunits": ["gunit"],
        "gpuunits/status": None,
        "gpustorages": ["gstore"],
        "gpustorages/status": None,
        "gpufunctions": ["gfn"],
        "gpufunctions/status": None,
        "operations": ["gop"],
        "operations/status": None,
    }


@every_kind
async def test_the_sample_is_accepted(kube: KubeClient, kind: str) -> None:
    sample = load_sample(kind)

    assert await kube.create(collection_of(sample), sample, STRICT_DRY_RUN)


@pytest.mark.parametrize(
    ("kind", "given", "stored"),
    [
        (
            "GPUSpec",
            {"memory": "16Gi", "gpu": 0},
            {
                "cpu": "1",
                "memory": "16Gi",
                "gpu": 0,
                "nodeSelector": {},
                "tolerations": [],
                "userNamespaces": False,
            },
        ),
        (
            "StockPool",
            {"specName": "t4.1", "replicas": 0},
            {"specName": "t4.1", "replicas": 0, "replenish": "Always"},
        ),
        (
            "GPUStorage",
            {"size": "1Gi", "prepare": {"fromStorageName": "base"}},
            {
                "size": "1Gi",
                "prepare": {"fromStorageName": "base", "command": [], "args": []},
                "accessor": {"enabled": False},
                "retain": False,
            },
        ),
        (
            "GPUUnit",
            {"specName": "t4.1"},
            {
                "specName": "t4.1",
                "running": True,
                "restarts": 0,
                "storageMounts": [],
                "template": {"command": [], "args": [], "envs": [], "ports": []},
            },
        ),
        (
            "GPUUnit",
            {"specName": "t4.1", "access": {}, "template": {"ports": [{"name": "web", "port": 80}]}},
            {
                "specName": "t4.1",
                "running": True,
                "restarts": 0,
                "storageMounts": [],
                "access": {"scheme": "http"},
                "template": {
                    "command": [],
                    "args": [],
                    "envs": [],
                    "ports": [{"name": "web", "port": 80, "protocol": "TCP"}],
                },
            },
        ),
        (
            "GPUUnit",
            {
                "specName": "t4.1",
                "template": {"envs": [{"name": "A"}], "probes": {"liveness": {"command": ["true"]}}},
            },
            {
                "specName": "t4.1",
                "running": True,
                "restarts": 0,
                "storageMounts": [],
                "template": {
                    "command": [],
                    "args": [],
                    "envs": [{"name": "A", "value": ""}],
                    "ports": [],
                    "probes": {
                        "liveness": {
                            "command": ["true"],
                            "initialDelaySeconds": 0,
                            "periodSeconds": 10,
                            "timeoutSeconds": 1,
                            "failureThreshold": 3,
                        }
                    },
                },
            },
        ),
    ],
)
async def test_the_api_server_fills_in_what_is_left_out(kube: KubeClient, kind: str, given: Json, stored: Json) -> None:
    item = make_object(kind, given)

    assert (await kube.create(collection_of(item), item, STRICT_DRY_RUN))["spec"] == stored


@every_kind
async def test_the_api_server_fills_in_exactly_what_the_model_fills_in(kube: KubeClient, kind: str) -> None:
    sample = load_sample(kind)

    stored = (await kube.create(collection_of(sample), sample, DRY_RUN))["spec"]

    assert SPEC_MODELS[kind].model_validate(sample["spec"]).to_json() == stored


@pytest.mark.parametrize(
    "change",
    [
        {"memory": "not-a-quantity"},
        {"memory": ""},
        {"memory": "-16Gi"},
        {"gpu": 0},
        {"access": {"primaryPort": "no-such-port"}},
        {"access": {"primaryPort": "web"}, "template": {"ports": []}},
        {"image": None, "template": None},
        {"specName": "no-such-spec"},
        {"running": False},
    ],
    ids=str,
)
async def test_a_unit_that_the_reconciler_must_judge_is_accepted(kube: KubeClient, change: Json) -> None:
    unit = merge(load_sample("GPUUnit"), {"spec": change})

    assert await kube.create(collection_of(unit), unit, DRY_RUN)


@every_kind
async def test_an_unknown_field_is_refused_where_it_is_asked_for_and_else_dropped(kube: KubeClient, kind: str) -> None:
    item = merge(load_sample(kind), {"spec": {"colour": "red"}})

    with pytest.raises(KubeError, match=r'unknown field "spec\.colour"'):
        await kube.create(collection_of(item), item, STRICT_DRY_RUN)
    assert "colour" not in (await kube.create(collection_of(item), item, DRY_RUN))["spec"]


STATUS_FIELDS: dict[str, Json] = {
    "StockPool": {"lent": ["made-up"]},
    "GPUUnit": {"nodeName": "made-up"},
    "GPUStorage": {"claimName": "made-up"},
    "GPUFunction": {"workers": 77},
    "Operation": {"message": "made-up"},
}


@pytest.mark.parametrize(("kind", "status"), STATUS_FIELDS.items())
async def test_a_status_is_written_only_through_its_subresource(
    kube: KubeClient, namespace: str, kind: str, status: Json
) -> None:
    async with stored_sample(kube, kind, namespace) as item:
        beside = await kube.patch(path_of(item), {"status": status}, params=DRY_RUN)
        through = await kube.patch(path_of(item, "status"), {"status": status}, params=DRY_RUN)

    [(field, value)] = status.items()
    assert beside.get("status", {}).get(field) != value
    assert through["status"][field] == value


async def test_a_spec_cannot_be_written_through_the_status(kube: KubeClient, namespace: str) -> None:
    async with stored_sample(kube, "GPUUnit", namespace) as unit:
        answer = await kube.patch(path_of(unit, "status"), {"spec": {"running": False}}, params=DRY_RUN)

    assert answer["spec"]["running"] is True


async def test_a_gpu_spec_has_no_status(kube: KubeClient) -> None:
    spec = load_sample("GPUSpec") | {"status": {}}

    with pytest.raises(KubeError, match='unknown field "status"'):
        await kube.create(collection_of(spec), spec, STRICT_DRY_RUN)


READY = {
    "type": "Ready",
    "status": "False",
    "reason": "Unschedulable",
    "lastTransitionTime": "2030-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    ("kind", "status", "row"),
    [
        (
            "StockPool",
            {"available": 2, "phase": "Progressing"},
            {"Spec": "t4.1", "Desired": 3, "Available": 2, "Phase": "Progressing"},
        ),
        (
            "GPUUnit",
            {
                "phase": "Progressing",
                "nodeName": "sim-t4-0",
                "accessURL": "http://somewhere",
                "conditions": [READY],
            },
            {
                "Spec": "t4.1",
                "Phase": "Progressing",
                "Access": "http://somewhere",
                "Node": "sim-t4-0",
                "GPU": None,
                "Image": "quay.io/jupyter/pytorch-notebook:cuda12-latest",
                "Reason": "Unschedulable",
            },
        ),
        ("Operation", {"phase": "Running"}, {"Kind": "CreateUnit", "Target": "notebook", "Phase": "Running"}),
    ],
)
async def test_a_listing_shows_what_an_operator_wants_to_know(
    kube: KubeClient, namespace: str, kind: str, status: Json, row: Json
) -> None:
    async with stored_sample(kube, kind, namespace) as item:
        cells = await patch_as_table(kube, path_of(item, "status"), {"status": status})

    assert cells.pop("Name") == item["metadata"]["name"]
    assert cells.pop("Age")
    assert cells == row
