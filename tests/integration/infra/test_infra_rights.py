"""The platform's processes on a bootstrapped cluster, each with the rights of its own account and no others.

The tests stand in the order in which a cluster lives: each finds what the one before it left.
"""

import secrets
from pathlib import Path

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import build_key, hash_secret
from gpu_platform.kube import KubeClient
from infra.components.processes import API, RECONCILER, STACK_WORKER
from platform_api.rbac import RULES as API_RULES
from reconciler.rbac import CONTROLLER_RULES, rules_of
from stacks.worker.rbac import RULES as STACK_WORKER_RULES
from tests.support.access_reviews import is_declared, list_allowed, list_questions
from tests.support.audit_log import AuditLog
from tests.support.bootstrap import BootstrapStack, list_remains, read_config
from tests.support.clusters import RunningCluster
from tests.support.namespaces import wait_counted
from tests.support.operator_api import POOLS, STOCK_UNITS, seed_request, wait_job
from tests.support.service_accounts import (
    keep_stacks,
    rent_from_one_that_dies,
    running_platform,
    use_a_storage,
    use_a_unit,
)
from tests.support.units_and_stock import wait_pool_available

KEY_ID, KEY_SECRET = "bootkey1", secrets.token_urlsafe(32)


def full_config() -> Json:
    """The embedded cluster's, with one of everything that it has none of."""
    key = {"sha256": hash_secret(KEY_SECRET), "tenant": "default", "roles": ["admin"], "platform": True}
    return {
        **read_config("dev"),
        "gpu-platform:tenants": {"acme": {"profile": "restricted", "quota": {"pods": "50"}}},
        "gpu-platform:stockPools": {"small": {"specName": "g1.1", "replicas": 2}},
        "gpu-platform:apiKeys": {KEY_ID: key},
    }


@pytest.fixture(scope="module", autouse=True)
def full_stack(stack: BootstrapStack) -> None:
    stack.configure(full_config())
    stack.up()


async def test_an_account_may_do_exactly_what_its_process_declares(bare_kube: KubeClient) -> None:
    declared = {API: API_RULES, RECONCILER: rules_of(CONTROLLER_RULES), STACK_WORKER: STACK_WORKER_RULES}
    for account, rules in declared.items():
        questions = set(list_questions(rules))

        allowed = await list_allowed(bare_kube, account, questions)

        assert sorted(allowed) == sorted(question for question in questions if is_declared(question, rules))
        assert not any(question.resource == "secrets" and question.verb == "list" for question in allowed)


async def test_the_processes_do_all_their_work_with_these_rights(
    stack: BootstrapStack, bare_cluster: RunningCluster, bare_kube: KubeClient, tmp_path: Path
) -> None:
    """A pool of the stack fills and shrinks, is not to be changed by others, and units come out of it."""
    await wait_counted(bare_kube)
    audit = AuditLog.from_here(bare_cluster.directory.audit_log)

    key = build_key(KEY_ID, KEY_SECRET)

    async with running_platform(bare_cluster, bare_kube, tmp_path, key) as api:
        await wait_pool_available(bare_kube, "small", 2)
        change = await api.put(f"{POOLS}/small", json={"replicas": 5})
        assert (change.status_code, change.json()["error"]["code"]) == (409, "operation_conflict")
        assert "gpu-platform/dev" in change.text
        assert (await api.delete(f"{POOLS}/small")).status_code == 409

        await use_a_unit(api, bare_kube)
        await use_a_storage(api, bare_kube)
        await keep_stacks(api, bare_kube)
        await rent_from_one_that_dies(bare_cluster, bare_kube, tmp_path, key, "left")
        job = seed_request("boot-job", specName="tiny.1", memory="1Gi", gpu=1)
        assert (await api.post(STOCK_UNITS, json=job)).status_code in (201, 202)
        assert (await wait_job(api, "boot-job"))["status"] == "succeeded"

        config = full_config()
        config["gpu-platform:stockPools"]["small"]["replicas"] = 1
        stack.configure(config)
        stack.up()
        await wait_pool_available(bare_kube, "small", 1)

    refused = [
        (event["user"]["username"], event["verb"], event["requestURI"])
        for agent in (API, RECONCILER, STACK_WORKER)
        for event in audit.writes(agent)
        if event["responseStatus"].get("code") == 403
    ]
    assert refused == []
    logs = "".join((tmp_path / name).read_text() for name in ("api.log", "reconciler.log", "worker.log"))
    assert "forbidden" not in logs.lower()


async def test_destroy_leaves_nothing(stack: BootstrapStack, bare_kube: KubeClient) -> None:
    stack.destroy()

    assert await list_remains(bare_kube) == []


async def test_a_key_of_an_earlier_release_with_a_platform_role_is_previewed_with_a_warning_that_names_it(
    stack: BootstrapStack,
) -> None:
    config = full_config()
    del config["gpu-platform:apiKeys"][KEY_ID]["platform"]
    stack.configure(config)
    try:
        outcome = stack.run("preview", "--diff")
    finally:
        stack.configure(full_config())
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    shown = outcome.stdout + outcome.stderr
    assert f"apiKeys: {KEY_ID} have the roles operator or admin" in shown
    assert "write platform: true" in shown
