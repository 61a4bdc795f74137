"""FRP tokens: those that an earlier version recorded, and what a flood of them costs other tenants."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.ssh import MOST_SPARE, hash_token
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import DEPLOYMENTS, GPU_SPECS, GPU_UNITS, OPERATIONS, SECRETS
from tests.support.api import UNITS, api_process, code_of, open_api, wait_ready
from tests.support.cluster_processes import frozen, pid_of
from tests.support.clusters import RunningCluster
from tests.support.earlier_version import EARLIER_TOKEN_UNIT
from tests.support.ssh_blocks import ssh_block
from tests.support.tenants import tenant
from tests.support.units_and_stock import INSTANCES, ensure_spec, find, get_unit, stock_pool
from tests.support.units_api import post_ready_unit, remove_unit, rest_unit, spec_body, wait_unit_view
from tests.support.waiting import NotYet, eventually

SPEC = "ssh.1"
TOKEN: str = EARLIER_TOKEN_UNIT["body"]["ssh"]["token"]
NAME: str = EARLIER_TOKEN_UNIT["body"]["name"]

FLOOD = 200
"""Requests with a token, of one tenant."""

AT_ONCE = 32
REFUSED = 200
TOKENS = 20
FLEETING = "fleeting.1"


@pytest.fixture(scope="module", autouse=True)
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC))
    async with stock_pool(kube, "ssh", 3, specName=SPEC):
        yield


@pytest.fixture
async def earlier(api: httpx.AsyncClient, kube: KubeClient) -> AsyncIterator[Json]:
    """A Ready unit, its Operation and its Secret, as version 0.1.0 wrote them."""
    unit = await kube.create(GPU_UNITS.collection(INSTANCES), EARLIER_TOKEN_UNIT["unit"])
    owner = names.owner_reference("GPUUnit", NAME, unit["metadata"]["uid"])
    secret = EARLIER_TOKEN_UNIT["secret"]
    await kube.create(
        SECRETS.collection(INSTANCES), {**secret, "metadata": {**secret["metadata"], "ownerReferences": [owner]}}
    )
    operation = await kube.create(OPERATIONS.collection(INSTANCES), EARLIER_TOKEN_UNIT["operation"])
    status = {"phase": "Succeeded", "targetUid": unit["metadata"]["uid"]}
    await kube.patch(OPERATIONS.item(operation["metadata"]["name"], INSTANCES, "status"), {"status": status})
    yield await wait_unit_view(api, NAME, "Ready")
    await remove_unit(api, kube, NAME)


async def test_a_unit_of_an_earlier_version_keeps_its_token(
    api: httpx.AsyncClient, kube: KubeClient, earlier: Json
) -> None:
    assert (earlier["ssh"]["hasToken"], earlier["sshStatus"]["phase"]) == (True, "Ready")
    deployment = await kube.get(DEPLOYMENTS.item(names.child_name(NAME), INSTANCES))
    body = EARLIER_TOKEN_UNIT["body"]
    # The request is repeated: it is the same one.
    replay = await api.post(UNITS, json=body)
    assert (replay.status_code, replay.json()["data"]["generation"]) == (200, earlier["generation"]), replay.text
    other = await api.post(UNITS, json={**body, "ssh": {**body["ssh"], "token": "another"}})
    assert (other.status_code, code_of(other)) == (409, "operation_conflict")
    # The token is sent again: nothing changes.
    update = await api.put(f"{UNITS}/{NAME}", json={"ssh": body["ssh"]})
    assert update.json()["data"]["generation"] == earlier["generation"], update.text
    assert await find(kube, SECRETS.item(EARLIER_TOKEN_UNIT["secret"]["metadata"]["name"], INSTANCES)) is not None
    assert await find(kube, secret_path(TOKEN)) is None
    # Another image: the token stays, under its digest.
    await api.put(f"{UNITS}/{NAME}", json={"image": "example/later"})
    await wait_unit_view(api, NAME, "Ready")
    unit = await kube.get(GPU_UNITS.item(NAME, INSTANCES))
    assert unit["spec"]["ssh"] == EARLIER_TOKEN_UNIT["unit"]["spec"]["ssh"]
    # Another token: its digest has the unit's own salt.
    await api.put(f"{UNITS}/{NAME}", json={"ssh": {**body["ssh"], "token": "another"}})
    assert await find(kube, secret_path("another")) is not None
    later = await kube.get(DEPLOYMENTS.item(names.child_name(NAME), INSTANCES))
    assert later["metadata"]["uid"] == deployment["metadata"]["uid"]


def secret_path(token: str) -> str:
    return SECRETS.item(names.ssh_token_secret(NAME, hash_token(token, INSTANCES, NAME)), INSTANCES)


async def test_a_flood_of_tokens_does_not_hold_up_another_tenant(api: httpx.AsyncClient, kube: KubeClient) -> None:
    """One tenant sends tokens as fast as it can; meanwhile another one asks, one request after the other. Where digests
    were computed on the event loop, each of its requests waited for those of all requests under way: it got less than
    one answer for sixteen of the flood."""
    url = str(api.base_url)
    async with (
        tenant(kube, url, Role.EDITOR) as greedy,
        tenant(kube, url, Role.VIEWER) as modest,
    ):
        body = {"ssh": ssh_block(token=TOKEN)}
        left = iter(range(FLOOD))
        answered = {"greedy": 0, "modest": 0}

        async def flood() -> None:
            for _ in left:
                answer = await greedy.api.put(f"{UNITS}/lab", json=body)
                assert answer.status_code == 200, answer.text
                answered["greedy"] += 1

        async def ask() -> None:
            while True:
                assert (await modest.api.get(f"{UNITS}/none")).status_code == 404
                answered["modest"] += 1

        await post_ready_unit(greedy.api, "lab", specName=SPEC, ssh=ssh_block(token=TOKEN))
        asking = asyncio.create_task(ask())
        async with asyncio.TaskGroup() as attack:
            for _ in range(AT_ONCE):
                attack.create_task(flood())
        asking.cancel()
        assert answered["modest"] * 8 > answered["greedy"], answered
        await remove_unit(greedy.api, kube, "lab")


async def test_a_refused_request_costs_no_digest(api: httpx.AsyncClient, cluster: RunningCluster) -> None:
    """What is wrong with the rest of a request is found before the token is looked at."""

    async def spend(**block: Any) -> int:
        """Returns the time that the API computes for refusing this block again and again, in clock ticks."""
        body = rest_unit("wrong", specName=SPEC, ssh=ssh_block(authorizedKeys=[], **block))
        before = cpu_ticks(pid_of(cluster, "api"))
        for _ in range(REFUSED):
            answer = await api.post(UNITS, json=body)
            assert [each["field"] for each in answer.json()["error"]["details"]] == ["ssh.authorizedKeys"]
        return cpu_ticks(pid_of(cluster, "api")) - before

    await spend()
    with_token, without = await spend(token=TOKEN), await spend()
    assert with_token < 3 * without


async def test_a_request_beyond_a_limit_or_without_a_spec_costs_no_digest_and_replays_are_answered(
    cluster: RunningCluster, kube: KubeClient, tmp_path: Path
) -> None:
    await ensure_spec(kube, spec_body(FLEETING))
    settings = {"GPU_PLATFORM_API_TENANT_LIMITS": '{"units": 1}'}
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log", settings) as (daemon, url),
        open_api(url, cluster.record.api_key) as probe,
    ):
        await wait_ready(probe)
        async with (
            stock_pool(kube, "fleeting", 1, specName=FLEETING),
            tenant(kube, url, Role.EDITOR) as small,
        ):

            async def spend(code: str, *, has_token: bool, **fields: Any) -> int:
                """Returns the time that the API computes for refusing a request again and again, in clock ticks."""
                before = cpu_ticks(daemon.pid)
                for number in range(REFUSED):
                    block = ssh_block(**({"token": f"{TOKEN}-{number}"} if has_token else {}))
                    answer = await small.api.post(UNITS, json=rest_unit(f"other-{number}", ssh=block, **fields))
                    assert code_of(answer) == code, answer.text
                return cpu_ticks(daemon.pid) - before

            async def spend_on_tokens(code: str, **fields: Any) -> int:
                without = await spend(code, has_token=False, **fields)
                return await spend(code, has_token=True, **fields) - without

            digests = digest_ticks(REFUSED)
            assert await spend_on_tokens("invalid_request", specName="no-such-spec") < digests / 2
            body = rest_unit("lab", specName=FLEETING, ssh=ssh_block(token=TOKEN))
            assert (await small.api.post(UNITS, json=body)).status_code == 201
            await wait_limited(small.api)
            assert await spend_on_tokens("quota_exceeded", specName=FLEETING) < digests / 2

            await kube.delete(GPU_SPECS.item(FLEETING))
            await wait_spec_gone(probe)
            replay = await small.api.post(UNITS, json=body)
            assert (replay.status_code, replay.json()["data"]["name"]) == (200, "lab"), replay.text
            other = await small.api.post(UNITS, json={**body, "ssh": ssh_block(token=f"{TOKEN}-other")})
            assert (other.status_code, code_of(other)) == (409, "operation_conflict")


@pytest.fixture
async def lab(api: httpx.AsyncClient, kube: KubeClient) -> AsyncIterator[str]:
    """The name of a Ready unit with a token."""
    await post_ready_unit(api, "lab", specName=SPEC, ssh=ssh_block(token=TOKEN))
    yield "lab"
    await remove_unit(api, kube, "lab")


async def test_changes_with_new_tokens_leave_no_secrets_behind(
    api: httpx.AsyncClient, cluster: RunningCluster, kube: KubeClient, lab: str
) -> None:
    for number in range(TOKENS):
        change = {"ssh": ssh_block(token=f"refused-{number}"), "storageMounts": [{"name": "none", "mountPath": "/x"}]}
        refused = await api.put(f"{UNITS}/{lab}", json=change)
        assert (refused.status_code, code_of(refused)) == (404, "gpustorage_not_found")
    assert len(await token_secrets(kube, lab)) == 1

    async with open_api(str(api.base_url), cluster.record.api_key, patience=0) as hasty:
        # The reconciler is held up: none is deleted.
        with frozen(cluster, "reconciler"):
            for number in range(TOKENS):
                answer = await hasty.put(f"{UNITS}/{lab}", json={"ssh": ssh_block(token=f"rotated-{number}")})
                assert answer.status_code == 200 or code_of(answer) == "operation_in_progress", answer.text
                assert len(await token_secrets(kube, lab)) <= 1 + MOST_SPARE
    for number in range(TOKENS):
        await rotate(api, lab, f"rotated-{number}")
        assert len(await token_secrets(kube, lab)) <= 1 + MOST_SPARE
    await wait_token_secrets(kube, lab, {f"rotated-{TOKENS - 1}"})
    assert (await wait_unit_view(api, lab, "Ready"))["sshStatus"]["phase"] == "Ready"
    # An earlier token is a new one again.
    await rotate(api, lab, "rotated-0")
    await wait_token_secrets(kube, lab, {"rotated-0"})


async def test_the_secret_of_a_change_that_died_is_deleted(
    api: httpx.AsyncClient, cluster: RunningCluster, kube: KubeClient, lab: str, tmp_path: Path
) -> None:
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log", fault="api.token-kept") as (_, url),
        open_api(url, cluster.record.api_key) as dying,
    ):
        await wait_ready(dying)
        with pytest.raises(httpx.HTTPError):
            await dying.put(f"{UNITS}/{lab}", json={"ssh": ssh_block(token="died")})  # noqa: S106
    assert await token_secrets(kube, lab) == {secret_name(lab, TOKEN), secret_name(lab, "died")}
    await wait_token_secrets(kube, lab, {TOKEN})
    assert (await wait_unit_view(api, lab, "Ready"))["sshStatus"]["phase"] == "Ready"


async def rotate(api: httpx.AsyncClient, unit: str, token: str) -> None:
    """Changes the token, once there is room for another one."""

    async def is_accepted() -> bool | NotYet:
        answer = await api.put(f"{UNITS}/{unit}", json={"ssh": ssh_block(token=token)})
        assert answer.status_code == 200 or code_of(answer) == "operation_in_progress", answer.text
        return answer.status_code == 200 or NotYet(answer.text)

    await eventually(is_accepted, every=0.2)


def secret_name(unit: str, token: str) -> str:
    return names.ssh_token_secret(unit, hash_token(token, INSTANCES, unit))


async def token_secrets(kube: KubeClient, unit: str) -> set[str]:
    secrets = (await kube.get(SECRETS.collection(INSTANCES)))["items"]
    return {each["metadata"]["name"] for each in secrets if each["metadata"]["name"].startswith(f"ssh-token-{unit}-")}


async def wait_token_secrets(kube: KubeClient, unit: str, tokens: set[str]) -> None:
    """Once these are all, and none is listed as spare."""

    async def are_those() -> bool | NotYet:
        found = await token_secrets(kube, unit)
        listed = (await get_unit(kube, unit))["metadata"]["annotations"].get(names.ANNOTATION_SPARE_TOKENS)
        is_settled = found == {secret_name(unit, token) for token in tokens} and listed is None
        return is_settled or NotYet((found, listed))

    await eventually(are_those)


def digest_ticks(count: int) -> float:
    """Returns the time that so many digests take on this machine, in clock ticks."""
    before = time.process_time()
    for number in range(count):
        hash_token(f"{TOKEN}-{number}", INSTANCES, NAME)
    return (time.process_time() - before) * os.sysconf("SC_CLK_TCK")


async def wait_limited(api: httpx.AsyncClient) -> None:
    """Once the API's cache shows the unit."""

    async def is_limited() -> bool | NotYet:
        answer = await api.post(UNITS, json=rest_unit("other", specName="no-such-spec"))
        return code_of(answer) == "quota_exceeded" or NotYet(answer.text)

    await eventually(is_limited)


async def wait_spec_gone(api: httpx.AsyncClient) -> None:
    async def is_gone() -> bool:
        return FLEETING not in (await api.get("/api/v1/operator/specs")).text

    await eventually(is_gone)


def cpu_ticks(pid: int) -> int:
    """Returns the time that all threads of the process have computed."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
