"""SSH into units on the real parts: objects, status, rollout, removal, and where the token is and is not."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.ssh import hash_token
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import CONFIG_MAPS, DEPLOYMENTS, EVENTS, GPU_UNITS, OPERATIONS, SECRETS
from tests.support.api import UNITS, api_process, code_of, open_api, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.fault_report import FaultReport
from tests.support.ssh_blocks import make_key, ssh_block
from tests.support.units_and_stock import (
    INSTANCES,
    create_unit,
    delete_unit,
    ensure_spec,
    find,
    get_unit,
    ready_condition,
    stock_pool,
    unit_body,
    wait_unit_phase,
)
from tests.support.units_api import post_ready_unit, remove_unit, rest_unit, spec_body, wait_unit_view
from tests.support.waiting import eventually

SPEC = "ssh.1"
TOKEN, OTHER_TOKEN = "open-sesame-0815", "open-sesame-4711"
COMMAND = (
    "ssh -o ProxyCommand='nc -X connect -x frp.example.com:1337 %h %p' runtime@lab.runtime-instance.ssh.example.com"
)


@pytest.fixture(scope="module", autouse=True)
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC))
    async with stock_pool(kube, "ssh", 3, specName=SPEC):
        yield


@pytest.fixture(scope="module")
async def lab(api: httpx.AsyncClient, kube: KubeClient) -> AsyncIterator[Json]:
    """A Ready unit with SSH and a token. Who changes it asks for `own_lab`."""
    yield await post_ready_unit(api, "lab", specName=SPEC, ssh=ssh_block(token=TOKEN))
    await remove_unit(api, kube, "lab")


@pytest.fixture
async def own_lab(api: httpx.AsyncClient, lab: Json) -> AsyncIterator[Json]:
    """The same, for one test; it is as it was afterwards."""
    yield (await api.get(f"{UNITS}/{lab['name']}")).json()["data"]
    await put(api, **ssh_block(token=TOKEN))
    await wait_unit_view(api, "lab", "Ready")


def secret_of(unit: str, token: str) -> str:
    return SECRETS.item(names.ssh_token_secret(unit, hash_token(token, INSTANCES, unit)), INSTANCES)


async def put(api: httpx.AsyncClient, **block: Any) -> Json:
    answer = await api.put(f"{UNITS}/lab", json={"ssh": block})
    assert answer.status_code == 200, answer.text
    view: Json = answer.json()["data"]
    return view


async def template_of(kube: KubeClient, unit: str) -> Json:
    template: Json = (await kube.get(DEPLOYMENTS.item(f"unit-{unit}", INSTANCES)))["spec"]["template"]
    return template


async def is_gone(kube: KubeClient, path: str) -> None:
    async def gone() -> bool:
        return await find(kube, path) is None

    await eventually(gone)


async def test_parity_38_a_unit_with_ssh_says_how_to_come_in(kube: KubeClient, lab: Json) -> None:
    assert lab["sshStatus"] == {
        "phase": "Ready",
        "username": "runtime",
        "targetHost": "lab.runtime-instance.ssh.example.com",
        "connectHost": "frp.example.com",
        "connectPort": 1337,
        "accessCommand": COMMAND,
    }
    unit = await get_unit(kube, "lab")
    [condition] = [each for each in unit["status"]["conditions"] if each["type"] == "SSHReady"]
    assert (condition["status"], condition["reason"]) == ("True", "UnitSSHReady")
    config_map = await kube.get(CONFIG_MAPS.item("unit-lab", INSTANCES))
    assert config_map["data"]["authorized_keys"] == f"{make_key()}\n"
    pod = (await template_of(kube, "lab"))["spec"]
    assert [each["name"] for each in pod["initContainers"]] == ["ssh-server", "ssh-frpc"]
    [keys] = [volume for volume in pod["volumes"] if volume["name"] == "ssh-authorized-keys"]
    assert keys["configMap"]["defaultMode"] == 0o600


async def test_the_token_is_in_its_secret_and_nowhere_else(
    api: httpx.AsyncClient, kube: KubeClient, cluster: RunningCluster, lab: Json
) -> None:
    assert lab["ssh"]["hasToken"] is True
    assert {"token", "tokenHash"}.isdisjoint(lab["ssh"])
    secret = await kube.get(secret_of("lab", TOKEN))
    unit = await get_unit(kube, "lab")
    [owner] = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("GPUUnit", unit["metadata"]["uid"])
    said = [
        unit,
        await kube.get(OPERATIONS.collection(INSTANCES)),
        await kube.get(DEPLOYMENTS.item("unit-lab", INSTANCES)),
        await kube.get(CONFIG_MAPS.item("unit-lab", INSTANCES)),
        await kube.get(EVENTS.collection(INSTANCES)),
        (await api.get(f"{UNITS}/lab")).text,
    ]
    assert TOKEN not in str(said)
    # os.walk passes over directories that vanish meanwhile, as volumes of earlier tests do.
    files = [Path(place, name) for place, _, found in os.walk(cluster.directory.root) for name in found]
    logs = [path for path in files if path.suffix == ".log"]
    assert logs
    assert not [path for path in logs if TOKEN in path.read_text(errors="replace")]


async def test_a_replay_knows_the_token_by_its_digest(api: httpx.AsyncClient, lab: Json) -> None:
    assert lab
    again = rest_unit("lab", specName=SPEC, ssh=ssh_block(token=TOKEN))
    assert (await api.post(UNITS, json=again)).status_code == 200
    answer = await api.post(UNITS, json={**again, "ssh": ssh_block(token=OTHER_TOKEN)})
    assert (answer.status_code, code_of(answer)) == (409, "operation_conflict")


async def test_parity_38_other_keys_start_the_pod_anew_and_the_token_stays(
    api: httpx.AsyncClient, kube: KubeClient, own_lab: Json
) -> None:
    before = await template_of(kube, "lab")
    view = await put(api, **ssh_block(authorizedKeys=[make_key(9)]))
    assert view["ssh"]["hasToken"] is True
    await wait_unit_view(api, "lab", "Ready")
    after = await template_of(kube, "lab")
    label = names.LABEL_TEMPLATE
    assert before["metadata"]["labels"][label] != after["metadata"]["labels"][label]
    config_map = await kube.get(CONFIG_MAPS.item("unit-lab", INSTANCES))
    assert config_map["data"]["authorized_keys"] == f"{make_key(9)}\n"
    assert await find(kube, secret_of("lab", TOKEN)) is not None
    # Said as it is, nothing changes.
    assert (await put(api, **ssh_block(authorizedKeys=[make_key(9)], token=TOKEN)))["generation"] == view["generation"]
    assert own_lab["generation"] < view["generation"]


async def test_another_token_replaces_the_one_before(api: httpx.AsyncClient, kube: KubeClient, own_lab: Json) -> None:
    assert own_lab
    await put(api, **ssh_block(token=OTHER_TOKEN))
    await is_gone(kube, secret_of("lab", TOKEN))
    assert await find(kube, secret_of("lab", OTHER_TOKEN)) is not None
    assert (await put(api, **ssh_block(token="")))["ssh"]["hasToken"] is False
    await is_gone(kube, secret_of("lab", OTHER_TOKEN))


async def test_parity_38_disabled_ssh_leaves_nothing(api: httpx.AsyncClient, kube: KubeClient, own_lab: Json) -> None:
    assert own_lab
    view = await put(api, enabled=False)
    assert "ssh" not in view
    await is_gone(kube, CONFIG_MAPS.item("unit-lab", INSTANCES))
    await is_gone(kube, secret_of("lab", TOKEN))
    view = await wait_unit_view(api, "lab", "Ready")
    assert "sshStatus" not in view
    assert "initContainers" not in (await template_of(kube, "lab"))["spec"]
    conditions = (await get_unit(kube, "lab"))["status"]["conditions"]
    assert [each["type"] for each in conditions] == ["Ready"]


async def test_a_lost_token_is_said_and_can_be_sent_again(
    api: httpx.AsyncClient, kube: KubeClient, own_lab: Json
) -> None:
    """As after a restore: a stack knows the token's digest only."""
    assert own_lab
    await kube.delete(secret_of("lab", TOKEN))
    await kube.patch(GPU_UNITS.item("lab", INSTANCES), {"metadata": {"annotations": {"look": "again"}}})

    async def has_phase(phase: str) -> bool:
        view = (await api.get(f"{UNITS}/lab")).json()["data"]
        return bool(view["phase"] == "Ready" and view["sshStatus"]["phase"] == phase)

    await eventually(lambda: has_phase("Failed"))
    before = await template_of(kube, "lab")
    await put(api, **ssh_block(token=TOKEN))
    await eventually(lambda: has_phase("Ready"))

    async def is_started_anew() -> bool:
        """What runs has read that there is no token."""
        return await template_of(kube, "lab") != before

    await eventually(is_started_anew)


async def test_a_second_look_writes_nothing(kube: KubeClient, lab: Json) -> None:
    assert lab
    paths = [
        DEPLOYMENTS.item("unit-lab", INSTANCES),
        CONFIG_MAPS.item("unit-lab", INSTANCES),
        secret_of("lab", TOKEN),
    ]
    edited = {"data": {"authorized_keys": "nobody\n"}}
    before = [(await kube.get(path))["metadata"].get("generation") for path in paths]
    written = (await kube.get(paths[2]))["metadata"]["resourceVersion"]
    await kube.patch(paths[1], edited)

    async def is_put_right() -> bool:
        return bool((await kube.get(paths[1]))["data"]["authorized_keys"] == f"{make_key()}\n")

    await eventually(is_put_right)
    # That was a whole pass over the unit.
    assert [(await kube.get(path))["metadata"].get("generation") for path in paths] == before
    assert (await kube.get(paths[2]))["metadata"]["resourceVersion"] == written


async def test_a_unit_takes_its_token_with_it(api: httpx.AsyncClient, kube: KubeClient) -> None:
    await post_ready_unit(api, "short", specName=SPEC, ssh=ssh_block(token=TOKEN))
    await remove_unit(api, kube, "short")
    await is_gone(kube, secret_of("short", TOKEN))


async def test_a_refused_request_leaves_no_token(api: httpx.AsyncClient, kube: KubeClient) -> None:
    body = rest_unit("refused", specName=SPEC, ssh=ssh_block(token=TOKEN), stockName="no-such-stock")
    assert (await api.post(UNITS, json=body)).status_code == 409
    await is_gone(kube, secret_of("refused", TOKEN))


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("api.token-kept", marks=pytest.mark.faults),
        pytest.param("api.stock-claimed", marks=pytest.mark.faults),
        "api.unit-created",
    ],
)
async def test_a_token_outlives_the_process_that_was_told_it(
    api: httpx.AsyncClient,
    cluster: RunningCluster,
    kube: KubeClient,
    tmp_path: Path,
    fault: str,
    faults: FaultReport,
) -> None:
    name = f"dying-{fault.rpartition('-')[2]}"
    body = rest_unit(name, specName=SPEC, ssh=ssh_block(token=TOKEN))
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "api.log", fault=fault) as (daemon, url),
        open_api(url, cluster.record.api_key) as dying,
    ):
        await wait_ready(dying)
        with pytest.raises(httpx.TransportError):
            await dying.post(UNITS, json=body)
        assert await daemon.ends() == -9
    faults.hit(fault)

    async def is_answered() -> bool:
        return (await api.post(UNITS, json=body)).status_code in (200, 201)

    await eventually(is_answered, every=0.2)
    view = await wait_unit_view(api, name, "Ready")
    assert view["sshStatus"]["phase"] == "Ready"

    async def is_adopted() -> bool:
        owners = (await kube.get(secret_of(name, TOKEN)))["metadata"]["ownerReferences"]
        return [owner["kind"] for owner in owners] == ["GPUUnit"]

    await eventually(is_adopted)
    faults.held("the token is its unit's")
    await remove_unit(api, kube, name)


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"authorizedKeys": []}, "ssh.authorizedKeys"),
        ({"authorizedKeys": [make_key(), "ssh-rsa AAAA"]}, "ssh.authorizedKeys[1]"),
        ({"serverAddr": ""}, "ssh.serverAddr"),
        ({"domainSuffix": ""}, "ssh.domainSuffix"),
        ({"port": 70_000}, "ssh.port"),
        ({"port": 22}, "ssh.port"),
        ({"token": "two words"}, "ssh.token"),
        ({"image": "example/backdoor"}, "ssh.image"),
        ({"tokenHash": "a" * 32}, "ssh.tokenHash"),
    ],
)
async def test_parity_37_an_incomplete_block_is_refused_by_its_field(
    api: httpx.AsyncClient, block: Json, field: str
) -> None:
    answer = await api.post(UNITS, json=rest_unit("wrong", specName=SPEC, ssh=ssh_block(**block)))
    assert answer.status_code == 400
    assert [each["field"] for each in answer.json()["error"]["details"]] == [field]


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"enabled": True}, "spec.ssh.authorizedKeys"),
        (ssh_block(serverAddr="169.254.169.254"), "spec.ssh.serverAddr"),
    ],
)
async def test_parity_32_incomplete_ssh_of_a_hand_made_unit_is_said(kube: KubeClient, block: Json, words: str) -> None:
    await create_unit(kube, unit_body("by-hand", specName=SPEC, ssh=block))
    unit = await wait_unit_phase(kube, "by-hand", "Failed")
    assert ready_condition(unit)["reason"] == "SSHConfigInvalid"
    assert words in ready_condition(unit)["message"]
    await delete_unit(kube, "by-hand")


async def test_a_token_in_a_hand_made_unit_is_not_kept(kube: KubeClient) -> None:
    body = unit_body("careless", specName=SPEC, ssh=ssh_block(token=TOKEN))
    stored = await kube.create(GPU_UNITS.collection(INSTANCES), body, {"dryRun": "All"})
    assert "token" not in stored["spec"]["ssh"]
