"""The bootstrap program on an empty cluster: made, changed, and seen to drift.

The tests stand in the order in which a cluster lives: each finds what the one before it left.
"""

import json
import signal
from pathlib import Path

import pytest

from gpu_platform.domain import names
from gpu_platform.domain import tenant_limits as object_counts
from gpu_platform.domain.tenants import KEYS_SECRET
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_SPECS, NAMESPACES, SECRETS
from infra.components.namespaces import LIMITS, QUOTA
from infra.components.processes import API, RECONCILER, STACK_WORKER
from tests.architecture.repository import ROOT
from tests.support.access_reviews import TENANT
from tests.support.bootstrap import CRDS, BootstrapStack, interrupt, list_remains, name_of, read_config
from tests.support.fault_report import FaultReport
from tests.support.units_and_stock import find
from tests.support.waiting import NotYet, eventually

SPECS = "gpu-platform:gpuSpecs"
DEV_STACK = (ROOT / "Pulumi.dev.yaml").read_text()
SIGN = CRDS.item("operations.runtime.lokiwager.io")
"""Made in the middle of a bootstrap: there is much to do after it."""


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGINT, id="interrupted", marks=pytest.mark.faults),
    ],
)
async def test_an_unfinished_bootstrap_is_finished_by_the_next_one(
    stack: BootstrapStack, bare_kube: KubeClient, faults: FaultReport, number: signal.Signals
) -> None:
    """Also one that was killed, and so left Pulumi's lock on the stack, and with it one that was never finished."""
    if await list_remains(bare_kube):
        stack.destroy()
    running = stack.begin_bootstrap()

    async def is_under_way() -> bool | NotYet:
        assert running.poll() is None
        return await find(bare_kube, SIGN) is not None or NotYet(await list_remains(bare_kube))

    await eventually(is_under_way)
    assert interrupt(running, number) != 0
    faults.hit(f"bootstrap: {number.name}")
    assert stack.has_lock() is (number == signal.SIGKILL)
    stack.leave_unfinished_lock()

    outcome = stack.bootstrap("up")

    assert outcome.returncode == 0, outcome.stderr
    assert "0123.json.18a0.tmp" in outcome.stdout
    assert not stack.has_changes()
    faults.held("the next bootstrap leaves nothing to do")


async def test_everything_is_there_and_another_update_changes_nothing(
    stack: BootstrapStack, bare_kube: KubeClient
) -> None:
    assert "unchanged" in stack.up("--expect-no-changes").stdout
    made = set(await list_remains(bare_kube))
    assert {"runtime-system", "runtime-stock", "runtime-instance", "gpu-runtime-unit"} <= made
    spec = await bare_kube.get(GPU_SPECS.item("host.1"))
    assert spec["metadata"]["annotations"][names.ANNOTATION_OWNER_STACK] == "gpu-platform/dev"
    assert spec["spec"]["cpu"] == "10m"
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


async def test_a_new_key_updates_the_secret_and_keeps_the_entries_of_others(
    stack: BootstrapStack, bare_kube: KubeClient
) -> None:
    """In place: a Secret that is deleted and created again leaves the API without keys meanwhile."""
    path = SECRETS.item(KEYS_SECRET, names.SYSTEM_NAMESPACE)
    before = await bare_kube.patch(path, {"data": {"byhand01": "e30="}})
    key = {"sha256": "0" * 64, "tenant": "default", "roles": ["viewer"]}
    stack.configure({**read_config("dev"), "gpu-platform:apiKeys": {"abcdefgh": key}})

    shown = stack.up().stdout

    assert "~ 1 updated" in shown
    assert "replaced" not in shown
    after = await bare_kube.get(path)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert set(after["data"]) == {*before["data"], "abcdefgh"}
    stack.configure(read_config("dev"))
    stack.up()
    assert (await bare_kube.get(path))["data"] == before["data"]


def test_a_new_tenant_is_a_namespace_with_bounds_and_rights(stack: BootstrapStack) -> None:
    stack.configure({**read_config("dev"), "gpu-platform:tenants": {"acme": {"quota": {"pods": "50"}}}})

    steps = [step for step in stack.plan() if "infra" in step["urn"]]

    assert {step["op"] for step in steps} == {"create"}
    assert sorted(map(name_of, steps)) == [
        f"LimitRange {TENANT}/{LIMITS}",
        f"Namespace {TENANT}",
        f"NetworkPolicy {TENANT}/platform-default-deny",
        f"ResourceQuota {TENANT}/{object_counts.QUOTA}",
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
    """One for all: the sentences themselves are unit tests of the settings."""
    stack.configure({**read_config("dev"), "gpu-platform:stockPools": {"small": {"specName": "g9", "replicas": 1}}})

    refused = stack.run("up", "--yes", "--skip-preview")

    assert refused.returncode != 0
    said = [line.strip() for line in refused.stdout.splitlines() if line.strip().startswith("error:")]
    assert said[0] == "error: gpu-platform:stockPools.small.specName is 'g9', and gpuSpecs has g1.1, host.1"
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
    assert (ROOT / "Pulumi.dev.yaml").read_text() == DEV_STACK
