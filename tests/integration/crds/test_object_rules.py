"""What the API server refuses, at once and in words, whoever asks: no other code of ours is involved."""

import re
from dataclasses import dataclass

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, KubeError
from tests.support.samples import (
    DRY_RUN,
    collection_of,
    ensure_crds,
    load_sample,
    merge,
    path_of,
    stored_sample,
)


@dataclass(frozen=True)
class Refusal:
    """A change to the sample of a kind, and the words with which it is refused."""

    kind: str
    change: Json
    words: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}"


@pytest.fixture(scope="module", autouse=True)
async def crds(kube: KubeClient) -> None:
    await ensure_crds(kube)


def in_spec(kind: str, words: str, /, **spec: object) -> Refusal:
    return Refusal(kind, {"spec": spec}, words)


def in_template(words: str, /, **template: object) -> Refusal:
    return in_spec("GPUUnit", words, template=template)


def named(kind: str, name: str, words: str) -> Refusal:
    return Refusal(kind, {"metadata": {"name": name}}, f"metadata.name: Invalid value: {words}")


WEB = {"name": "web", "port": 8888}
MOUNT = {"name": "data", "mountPath": "/data"}
NO_IMAGE = {"fromImage": None, "command": None}
BY_COMMAND, BY_HTTP, BY_TCP = {"command": ["true"]}, {"http": {"port": "web"}}, {"tcp": {"port": "web"}}

NEW_OBJECTS = [
    in_spec("GPUSpec", "spec.memory: Required value", memory=None),
    in_spec("GPUSpec", "memory must be a quantity of more than zero, such as 16Gi, 500m or 2", memory="lots"),
    in_spec("GPUSpec", "memory must be a quantity of more than zero", memory="0"),
    in_spec("GPUSpec", "memory must be a quantity of more than zero", memory="-16Gi"),
    in_spec("GPUSpec", "cpu must be a quantity of more than zero", cpu="four"),
    in_spec("GPUSpec", "spec.gpu in body should be greater than or equal to 0", gpu=-1),
    in_spec("GPUSpec", "spec.gpu in body should be less than or equal to 64", gpu=65),
    in_spec("GPUSpec", "spec.pricePerHour in body should match", pricePerHour="cheap"),
    in_spec("GPUSpec", 'Unsupported value: "Maybe"', tolerations=[{"operator": "Maybe"}]),
    in_spec("GPUSpec", 'Unsupported value: "Later"', tolerations=[{"effect": "Later"}]),
    in_spec("GPUSpec", "must be of type string", nodeSelector={"zone": 1}),
    named("GPUSpec", "g" * 64, "the name must have at most 63 characters"),
    in_spec("StockPool", "spec.specName: Required value", specName=None),
    in_spec("StockPool", "spec.specName in body should be at least 1 chars long", specName=""),
    in_spec("StockPool", "spec.replicas in body should be greater than or equal to 0", replicas=-1),
    in_spec("StockPool", "spec.replicas in body should be less than or equal to 10000", replicas=10_001),
    in_spec("StockPool", 'Unsupported value: "Sometimes": supported values: "Always", "Never"', replenish="Sometimes"),
    named("StockPool", "p" * 41, "the name must have at most 40 characters"),
    named("StockPool", "t4.1", "the name must have no dots"),
    in_spec("GPUUnit", "spec.specName: Required value", specName=None),
    in_spec("GPUUnit", "spec.specName: Too long: may not be more than 63", specName="g" * 64),
    in_spec("GPUUnit", "spec.gpu in body should be greater than or equal to 0", gpu=-1),
    in_spec("GPUUnit", "spec.gpu in body should be less than or equal to 64", gpu=65),
    in_spec("GPUUnit", "must be of type boolean", running="yes"),
    in_spec("GPUUnit", 'Unsupported value: "gopher"', access={"scheme": "gopher"}),
    in_template("spec.template.envs[0].name in body should match", envs=[{"name": "1ST"}]),
    in_template('spec.template.envs[1]: Duplicate value: {"name":"A"}', envs=[{"name": "A"}, {"name": "A"}]),
    in_template('Duplicate value: {"name":"web"}', ports=[WEB, {"name": "web", "port": 1}]),
    in_template("a port number may stand only once for each protocol", ports=[WEB, {**WEB, "name": "again"}]),
    in_template("spec.template.ports[0].port in body should be greater", ports=[{"name": "web", "port": 0}]),
    in_template("spec.template.ports[0].port in body should be less", ports=[{"name": "web", "port": 65_536}]),
    in_template("spec.template.ports[0].name in body should match", ports=[{"name": "Web", "port": 1}]),
    in_template("spec.template.ports[0].name in body should match", ports=[{"name": "80", "port": 80}]),
    in_template("spec.template.ports[0].name in body should match", ports=[{"name": "a--b", "port": 80}]),
    in_template('Unsupported value: "ICMP"', ports=[{**WEB, "protocol": "ICMP"}]),
    in_template("a probe has exactly one of http, tcp and command", probes={"liveness": {"periodSeconds": 1}}),
    in_template("a probe has exactly one of http, tcp and command", probes={"readiness": {**BY_COMMAND, **BY_HTTP}}),
    in_template("a probe has exactly one of http, tcp and command", probes={"startup": {**BY_TCP, **BY_HTTP}}),
    in_template("spec.template.probes.startup.tcp.port: Required value", probes={"startup": {"tcp": {}}}),
    in_template("should have at least 1 items", probes={"liveness": {"command": []}}),
    in_template("should be greater than or equal to 1", probes={"liveness": {**BY_HTTP, "periodSeconds": 0}}),
    named("GPUUnit", "u" * 51, "the name must have at most 50 characters"),
    named("GPUUnit", "my.unit", "the name must have no dots"),
    in_spec("GPUUnit", "spec.serverless.requestID in body should match", serverless={"requestID": "a.b"}),
    in_spec("GPUUnit", "must be an absolute path below /", storageMounts=[{"name": "a", "mountPath": "data"}]),
    in_spec("GPUUnit", "must be an absolute path below /", storageMounts=[{"name": "a", "mountPath": "/"}]),
    in_spec("GPUUnit", "a mountPath may stand only once", storageMounts=[MOUNT, {**MOUNT, "name": "again"}]),
    in_spec("GPUUnit", 'Duplicate value: {"name":"data"}', storageMounts=[MOUNT, {**MOUNT, "mountPath": "/b"}]),
    in_spec("GPUStorage", "spec.size: Required value", size=None),
    in_spec("GPUStorage", "size must be a quantity of more than zero", size="much"),
    in_spec("GPUStorage", "size must be a quantity of more than zero", size="0"),
    in_spec("GPUStorage", "spec.storageClassName in body should match", storageClassName="Fast Disk"),
    in_spec("GPUStorage", "prepare has either fromImage or fromStorageName", prepare={"fromStorageName": "base"}),
    in_spec("GPUStorage", "prepare has either fromImage or fromStorageName", prepare={"fromImage": None}),
    in_spec("GPUStorage", "command or args go with fromImage, and only with it", prepare={"command": None}),
    in_spec("GPUStorage", "a storage cannot be a copy of itself", prepare={**NO_IMAGE, "fromStorageName": "weights"}),
    named("GPUStorage", "s" * 41, "the name must have at most 40 characters"),
    named("GPUStorage", "my.data", "the name must have no dots"),
    in_spec("GPUFunction", "spec.image: Required value", image=None),
    in_spec("GPUFunction", "minWorkers must not be more than maxWorkers", minWorkers=4),
    in_spec("GPUFunction", "spec.maxWorkers in body should be greater than or equal to 1", maxWorkers=0, minWorkers=0),
    in_spec("GPUFunction", "spec.ackWaitSeconds in body should be greater than or equal to 3", ackWaitSeconds=1),
    in_spec("GPUFunction", "spec.framework.socketPath in body should match", framework={"socketPath": "/etc/passwd"}),
    named("GPUFunction", "f" * 31, "the name must have at most 30 characters"),
    named("GPUFunction", "my.words", "the name must have no dots"),
    in_spec("Operation", 'Unsupported value: "Dance"', kind="Dance"),
    in_spec("Operation", "spec.requestHash in body should match", requestHash="abc"),
    in_spec("Operation", "spec.operationID in body should be at least 1 chars long", operationID=""),
    in_spec("Operation", "spec.target.name: Required value", target={"name": None}),
]

CHANGES = [
    in_spec("GPUSpec", "spec.cpu: Invalid value: cpu cannot be changed: units were built from it", cpu="8"),
    in_spec("GPUSpec", "memory cannot be changed", memory="32Gi"),
    in_spec("GPUSpec", "gpu cannot be changed", gpu=2),
    in_spec("GPUSpec", "gpuProduct cannot be changed", gpuProduct="NVIDIA-L40S"),
    in_spec("GPUSpec", "gpuProduct cannot be changed", gpuProduct=None),
    in_spec("GPUSpec", "nodeSelector cannot be changed", nodeSelector={"zone": "b"}),
    in_spec("GPUSpec", "tolerations cannot be changed", tolerations=None),
    in_spec("GPUSpec", "runtimeClassName cannot be changed", runtimeClassName="nvidia"),
    in_spec("GPUSpec", "userNamespaces cannot be changed", userNamespaces=True),
    in_spec("StockPool", "specName cannot be changed: its stock was built from it", specName="l40s.1"),
    in_spec("GPUUnit", "specName cannot be changed: the unit holds GPUs of that spec", specName="l40s.1"),
    in_spec("GPUStorage", "a storage cannot shrink: size must be no less than it was", size="99Gi"),
    in_spec("GPUStorage", "storageClassName cannot be changed: the claim was made from it", storageClassName="fast"),
    in_spec("GPUStorage", "prepare cannot be changed: the storage was filled by it", prepare={"args": ["a"]}),
    in_spec("GPUStorage", "prepare cannot be changed: the storage was filled by it", prepare=None),
    in_spec("GPUFunction", "specName cannot be changed: its workers hold GPUs of that spec", specName="l40s.1"),
    in_spec("Operation", "an operation's spec cannot be changed", operationID="another"),
    in_spec("Operation", "an operation's spec cannot be changed", request={"image": "another"}),
    in_spec("Operation", "an operation's spec cannot be changed", request={"extra": {"deep": [1]}}),
    in_spec("Operation", "an operation's spec cannot be changed", target={"uid": "another"}),
]

READY = {"type": "Ready", "status": "True", "reason": "Fine", "lastTransitionTime": "2030-01-01T00:00:00Z"}

STATUSES = [
    Refusal("GPUUnit", {"status": {"phase": "Dreaming"}}, 'Unsupported value: "Dreaming"'),
    Refusal("GPUUnit", {"status": {"conditions": [READY, READY]}}, 'Duplicate value: {"type":"Ready"}'),
    Refusal("GPUUnit", {"status": {"conditions": [{**READY, "status": "Perhaps"}]}}, 'Unsupported value: "Perhaps"'),
    Refusal("GPUUnit", {"status": {"conditions": [{"type": "Ready"}]}}, "lastTransitionTime: Required value"),
    Refusal("GPUUnit", {"status": {"lastSyncTime": "yesterday"}}, "must be of type date-time"),
    Refusal("StockPool", {"status": {"phase": "Empty"}}, 'Unsupported value: "Empty"'),
    Refusal("Operation", {"status": {"phase": "Paused"}}, 'Unsupported value: "Paused"'),
]


@pytest.mark.parametrize("case", NEW_OBJECTS, ids=str)
async def test_a_wrong_object_is_refused(kube: KubeClient, case: Refusal) -> None:
    item = merge(load_sample(case.kind), case.change)

    with pytest.raises(KubeError, match=re.escape(case.words)) as refusal:
        await kube.create(collection_of(item), item, DRY_RUN)
    assert refusal.value.status == 422


@pytest.mark.parametrize("case", CHANGES, ids=str)
async def test_a_change_of_what_is_fixed_is_refused(kube: KubeClient, namespace: str, case: Refusal) -> None:
    async with stored_sample(kube, case.kind, namespace) as item:
        with pytest.raises(KubeError, match=re.escape(case.words)):
            await kube.patch(path_of(item), case.change, params=DRY_RUN)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("GPUSpec", {"pricePerHour": "0.40"}),
        ("GPUSpec", {"pricePerHour": None}),
        ("StockPool", {"replicas": 0, "replenish": "Never", "image": "example/placeholder"}),
        ("GPUUnit", {"image": "example/other", "running": False, "template": None, "access": None}),
        ("GPUStorage", {"size": "102400Mi", "accessor": {"enabled": False}, "retain": True}),
        ("GPUFunction", {"image": "example/other", "minWorkers": 3, "template": None, "timeoutSeconds": None}),
        ("Operation", {}),
    ],
)
async def test_everything_else_can_be_changed(kube: KubeClient, namespace: str, kind: str, change: Json) -> None:
    async with stored_sample(kube, kind, namespace) as item:
        assert await kube.patch(path_of(item), {"spec": change}, params=DRY_RUN)


@pytest.mark.parametrize(("field", "first", "second"), [("memory", "16Gi", "32Gi"), ("gpu", 1, 2)])
async def test_the_size_of_a_unit_can_be_set_once(
    kube: KubeClient, namespace: str, field: str, first: object, second: object
) -> None:
    async with stored_sample(kube, "GPUUnit", namespace) as unit:
        await kube.patch(path_of(unit), {"spec": {field: first}})

        for change in (second, None):
            with pytest.raises(KubeError, match=f"{field} cannot be changed: the unit keeps its size"):
                await kube.patch(path_of(unit), {"spec": {field: change}}, params=DRY_RUN)


@pytest.mark.parametrize("case", STATUSES, ids=str)
async def test_a_wrong_status_is_refused(kube: KubeClient, namespace: str, case: Refusal) -> None:
    async with stored_sample(kube, case.kind, namespace) as item:
        with pytest.raises(KubeError, match=re.escape(case.words)):
            await kube.patch(path_of(item, "status"), case.change, params=DRY_RUN)


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
async def test_an_operation_that_has_ended_stays_ended(kube: KubeClient, namespace: str, end: str) -> None:
    async with stored_sample(kube, "Operation", namespace) as operation:
        path = path_of(operation, "status")
        for phase in ("Pending", "Running", end):
            await kube.patch(path, {"status": {"phase": phase}})

        other = {"Succeeded": "Failed", "Failed": "Succeeded"}[end]
        for status in ({"phase": "Running"}, {"phase": other}, {"phase": None}, None):
            with pytest.raises(KubeError, match="an operation that has succeeded or failed stays so"):
                await kube.patch(path, {"status": status}, params=DRY_RUN)
        assert await kube.patch(path, {"status": {"phase": end, "message": "in 40 ms"}}, params=DRY_RUN)


async def test_the_request_of_an_operation_can_be_emptied_after_its_end_and_nothing_else(
    kube: KubeClient, namespace: str
) -> None:
    async with stored_sample(kube, "Operation", namespace) as operation:
        path = path_of(operation)
        assert operation["spec"]["request"]
        with pytest.raises(KubeError, match="an operation's spec cannot be changed"):
            await kube.patch(path, {"spec": {"request": None}}, params=DRY_RUN)
        await kube.patch(path_of(operation, "status"), {"status": {"phase": "Succeeded"}})

        others: list[Json] = [{"kind": "DeleteUnit"}, {"operationID": "another"}, {"target": {"uid": "b"}}]
        for change in ({"request": {"image": "another"}}, *({"request": None, **other} for other in others)):
            with pytest.raises(KubeError, match="an operation's spec cannot be changed"):
                await kube.patch(path, {"spec": change}, params=DRY_RUN)
        emptied = await kube.patch(path, {"spec": {"request": None}})
        assert emptied["spec"] == {**operation["spec"], "request": {}}
        with pytest.raises(KubeError, match="an operation's spec cannot be changed"):
            await kube.patch(path, {"spec": {"request": {"image": "another"}}}, params=DRY_RUN)
