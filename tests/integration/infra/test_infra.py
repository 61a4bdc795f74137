"""The bootstrap program on an empty cluster: made, changed, seen to drift, made use of, and taken away again.

The tests stand in the order in which a cluster lives: each finds what the one before it left.
"""

import json
import secrets
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu_platform.adapters.kube import KubeClient, ResourcePath, open_client
from gpu_platform.adapters.kube.paths import GPU_SPECS, NAMESPACES, PODS
from gpu_platform.domain import names
from gpu_platform.domain.api_keys import build_key, hash_secret
from infra.objects.namespaces import LIMITS, QUOTA
from infra.objects.workloads import API, RECONCILER, STACK_WORKER
from platform_api.rules import RULES as API_RULES
from reconciler.rules import CONTROLLER_RULES, rules_of
from stacks.worker.rules import RULES as STACK_WORKER_RULES
from tests.architecture.repository import ROOT
from tests.support.access_reviews import TENANT, is_declared, list_allowed, list_questions
from tests.support.audit_log import AuditLog
from tests.support.bootstrap import BootstrapStack, interrupt, name_of, read_config
from tests.support.cluster_addons import cluster_addons
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.operator_api import POOLS, STOCK_UNITS, seed_request, wait_job
from tests.support.service_accounts import (
    keep_stacks,
    rent_from_one_that_dies,
    running_platform,
    use_a_storage,
    use_a_unit,
)
from tests.support.units_and_stock import find, wait_pool_available
from tests.support.waiting import eventually

Json = dict[str, Any]

CRDS = ResourcePath("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
CLUSTER_ROLES = ResourcePath("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False)
PRIORITY_CLASSES = ResourcePath("scheduling.k8s.io/v1", "priorityclasses", namespaced=False)

SPECS = "gpu-platform:gpuSpecs"
DEV_STACK = (ROOT / "Pulumi.dev.yaml").read_text()
KEY_ID, KEY_SECRET = "bootkey1", secrets.token_urlsafe(32)


@pytest.fixture(scope="module")
def bare_cluster() -> Iterator[RunningCluster]:
    """Kubernetes and nothing else: not even the namespaces of the platform."""
    with running_cluster(platform=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
async def bare_kube(bare_cluster: RunningCluster) -> AsyncIterator[KubeClient]:
    async with await open_client(bare_cluster.kubeconfig) as client:
        yield client


@pytest.fixture(scope="module")
def stack(bare_cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> BootstrapStack:
    return BootstrapStack(bare_cluster, tmp_path_factory.mktemp("stack"))


def full_config() -> Json:
    """The embedded cluster's, with one of everything that it has none of."""
    key = {"sha256": hash_secret(KEY_SECRET), "tenant": "default", "roles": ["admin"]}
    return {
        **read_config("dev"),
        "gpu-platform:tenants": {"acme": {"profile": "restricted", "quota": {"pods": "50"}}},
        "gpu-platform:stockPools": {"small": {"specName": "g1.1", "replicas": 2}},
        "gpu-platform:apiKeys": {KEY_ID: key},
    }


async def remains(kube: KubeClient) -> list[str]:
    """What the cluster has of the platform."""
    found = []
    for path in (NAMESPACES, CRDS, CLUSTER_ROLES, PRIORITY_CLASSES):
        items = (await kube.get(path.collection()))["items"]
        found += [item["metadata"]["name"] for item in items]
    return [name for name in found if name.startswith(("runtime-", "gpu-")) or name.endswith(names.GROUP)]


async def test_an_interrupted_bootstrap_is_finished_by_the_next_one(
    stack: BootstrapStack, bare_kube: KubeClient
) -> None:
    """Also one that was killed, and so left Pulumi's lock on the stack."""
    stop = {signal.SIGINT: CRDS.item("operations.runtime.lokiwager.io"), signal.SIGKILL: GPU_SPECS.item("host.1")}
    for number, sign in stop.items():
        running = stack.begin_bootstrap()
        deadline = time.monotonic() + 120
        while await find(bare_kube, sign) is None and running.poll() is None:
            assert time.monotonic() < deadline
        assert interrupt(running, number) != 0

    outcome = stack.bootstrap("up")

    assert outcome.returncode == 0, outcome.stderr
    assert not stack.has_changes()


async def test_up_makes_everything_and_a_second_one_changes_nothing(
    stack: BootstrapStack, bare_kube: KubeClient
) -> None:
    stack.destroy()
    assert await remains(bare_kube) == []

    stack.up()

    assert {"runtime-system", "runtime-stock", "runtime-instance", "gpu-runtime-unit"} <= set(await remains(bare_kube))
    spec = await bare_kube.get(GPU_SPECS.item("host.1"))
    assert spec["metadata"]["annotations"][names.ANNOTATION_OWNER_STACK] == "gpu-platform/dev"
    assert spec["spec"]["cpu"] == "10m"
    assert "unchanged" in stack.up("--expect-no-changes").stdout
    outputs = stack.outputs()
    assert outputs["namespaces"] == {
        "system": "runtime-system",
        "stock": "runtime-stock",
        "instance": "runtime-instance",
    }
    assert outputs["gpuSpecs"] == ["g1.1", "host.1"]


def test_a_preview_after_an_edit_shows_exactly_that_edit(stack: BootstrapStack, tmp_path: Path) -> None:
    config = read_config("dev")
    config[SPECS]["g1.1"]["pricePerHour"] = "1.50"
    stack.configure(config)

    [step] = [step for step in stack.plan() if "infra" in step["urn"]]

    assert (step["op"], name_of(step)) == ("update", "GPUSpec g1.1")
    assert list(step["detailedDiff"]) == ["spec.pricePerHour"]
    table = stack.preview_command(tmp_path, "--json")
    assert table.returncode == 0, table.stderr
    [change] = json.loads(table.stdout)["changes"]
    assert (change["operation"], change["kind"], change["name"]) == ("update", "GPUSpec", "g1.1")
    price = {"path": "spec.pricePerHour", "old": "1.20", "new": "1.50", "replaces": False}
    assert change["properties"] == [price]


def test_a_preview_of_a_change_that_breaks_a_rule_fails_with_its_name(stack: BootstrapStack, tmp_path: Path) -> None:
    pool = {"specName": "g1.1", "replicas": 1, "image": "registry.example.com/placeholder:latest"}
    stack.configure({**read_config("dev"), "gpu-platform:stockPools": {"small": pool}})

    refused = stack.preview_command(tmp_path)

    assert refused.returncode == 1
    said = " ".join(refused.stdout.split())
    assert "latest-image StockPool runtime-stock/small, spec.image names no fixed version" in said


def test_a_new_tenant_is_a_namespace_with_bounds_and_rights(stack: BootstrapStack) -> None:
    stack.configure({**read_config("dev"), "gpu-platform:tenants": {"acme": {"quota": {"pods": "50"}}}})

    steps = [step for step in stack.plan() if "infra" in step["urn"]]

    assert {step["op"] for step in steps} == {"create"}
    assert sorted(map(name_of, steps)) == [
        f"LimitRange {TENANT}/{LIMITS}",
        f"Namespace {TENANT}",
        f"NetworkPolicy {TENANT}/platform-default-deny",
        f"ResourceQuota {TENANT}/{QUOTA}",
        f"RoleBinding {TENANT}/{API}",
        f"RoleBinding {TENANT}/{RECONCILER}",
        f"RoleBinding {TENANT}/{STACK_WORKER}",
    ]


async def test_an_object_edited_by_hand_shows_in_refresh_and_is_put_back(
    stack: BootstrapStack, bare_kube: KubeClient
) -> None:
    stack.configure(read_config("dev"))
    path = NAMESPACES.item(names.STOCK_NAMESPACE)
    label = "pod-security.kubernetes.io/enforce"
    await bare_kube.patch(path, {"metadata": {"labels": {label: "privileged"}}})

    drift = stack.run("refresh", "--preview-only", "--expect-no-changes", "--diff")

    assert drift.returncode != 0
    assert "privileged" in drift.stdout
    stack.up("--refresh")
    assert (await bare_kube.get(path))["metadata"]["labels"][label] == "restricted"
    assert not stack.has_changes()


def test_a_wrong_configuration_is_one_sentence_and_changes_nothing(stack: BootstrapStack) -> None:
    wrong: dict[str, Json] = {
        "gpu-platform:stockPool is no setting; did you mean stockPools?": {"gpu-platform:stockPool": {}},
        "gpu-platform:gpuSpecs.g1.1.memory: '16Gx' is not a quantity; write it like 16Gi, 500m or 2": {
            SPECS: {"g1.1": {"memory": "16Gx", "gpu": 1}}
        },
        "gpu-platform:stockPools.small.specName is 'g9', and gpuSpecs has g1.1, host.1": {
            "gpu-platform:stockPools": {"small": {"specName": "g9", "replicas": 1}}
        },
    }
    for sentence, change in wrong.items():
        stack.configure({**read_config("dev"), **change})

        refused = stack.run("up", "--yes", "--skip-preview")

        assert refused.returncode != 0
        said = [line.strip() for line in refused.stdout.splitlines() if line.strip().startswith("error:")]
        assert said[0] == f"error: {sentence}"
        assert "Traceback" not in refused.stdout + refused.stderr
    stack.configure(read_config("dev"))
    assert not stack.has_changes()


def test_a_pool_that_stands_there_twice_is_refused(stack: BootstrapStack) -> None:
    pools = "  gpu-platform:stockPools:\n" + 2 * "    small: {specName: g1.1, replicas: 1}\n"
    stack.configure_text(DEV_STACK.replace("encryptionsalt", f"{pools}encryptionsalt"))

    refused = stack.run("preview")

    stack.configure(read_config("dev"))
    assert refused.returncode != 0
    assert 'mapping key "small" already defined' in refused.stderr


async def test_an_account_may_do_exactly_what_its_process_declares(
    stack: BootstrapStack, bare_kube: KubeClient
) -> None:
    stack.configure(full_config())
    stack.up()
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
    stack.configure(full_config())
    stack.up()
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

    assert await remains(bare_kube) == []
    assert (ROOT / "Pulumi.dev.yaml").read_text() == DEV_STACK


async def test_the_production_example_previews_its_gpu_operator(
    bare_cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    example = BootstrapStack(bare_cluster, tmp_path_factory.mktemp("example"))
    example.configure(read_config("prod"))

    steps = {name_of(step): step for step in example.plan() if "infra" in step["urn"]}

    wanted = read_config("prod")["gpu-platform:gpuOperator"]
    release = steps["Release gpu-operator"]["newState"]["inputs"]
    assert (release["chart"], release["version"], release["values"]) == (
        wanted["chart"],
        wanted["version"],
        wanted["values"],
    )
    assert release["repositoryOpts"] == {"repo": wanted["repository"]}
    namespace = steps["Namespace gpu-operator"]["newState"]["inputs"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


async def test_the_production_example_runs_without_its_helm_part(
    bare_cluster: RunningCluster, bare_kube: KubeClient, tmp_path_factory: pytest.TempPathFactory
) -> None:
    example = BootstrapStack(bare_cluster, tmp_path_factory.mktemp("example"))
    config = read_config("prod")
    config["gpu-platform:gpuOperator"]["enabled"] = False
    example.configure(config)
    async with cluster_addons(bare_kube, volumes=config["gpu-platform:nats"]["replicas"]):
        example.up()

        async def all_run() -> bool:
            pods = (await bare_kube.get(PODS.collection(names.SYSTEM_NAMESPACE)))["items"]
            return len(pods) == 3 + 2 + 2 + 3 and {pod["status"].get("phase") for pod in pods} == {"Running"}

        await eventually(all_run, within=120)
        assert not example.has_changes()
        assert example.outputs()["apiURL"] == f"http://{API}.{names.SYSTEM_NAMESPACE}.svc.cluster.local:80"
        refused = example.run("destroy", "--yes", "--skip-preview")
        assert refused.returncode != 0
        assert "protected" in refused.stdout + refused.stderr
        assert TENANT in await remains(bare_kube)

        example.configure({**config, "gpu-platform:protect": False})
        example.up()
        example.destroy()
    assert await remains(bare_kube) == []
