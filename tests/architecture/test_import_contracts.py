"""The import contracts of `.importlinter` cover every package, allow what they should, and can fail."""

import configparser
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT

ALLOWED = {
    "gpu_platform/__init__.py": "",
    "gpu_platform/adapters/__init__.py": "",
    "gpu_platform/kube/__init__.py": "",
    "gpu_platform/kube/client.py": "import kubernetes.aio",
    "gpu_platform/clock.py": "import gpu_platform.domain.names",
    "gpu_platform/domain/__init__.py": "",
    "gpu_platform/domain/names.py": "import pydantic",
    "gpu_platform/settings.py": "import yaml",
    "gpu_platform/file_browser.py": "import http.server",
    "gpu_platform/devcluster/__init__.py": "",
    "gpu_platform/devcluster/nodes.py": "from gpu_platform.kube.client import kubernetes",
    "gpu_platform/cli/__init__.py": "",
    "gpu_platform/cli/dev.py": "import gpu_platform.devcluster.nodes",
    "infra/__init__.py": "",
    "infra/program.py": "import pulumi, pulumi_kubernetes, gpu_platform.domain.names, gpu_platform.settings, "
    "platform_api.rbac, platform_api.settings, reconciler.rbac, reconciler.settings",
    "platform_api/__init__.py": "",
    "platform_api/app.py": "import fastapi, gpu_platform.domain.names, gpu_platform.kube.client, gpu_platform.settings",
    "providers/__init__.py": "",
    "providers/plugin.py": "import pulumi, gpu_platform.domain.names, gpu_platform.kube.client",
    "platform_api/rbac.py": "import gpu_platform.domain.names",
    "platform_api/settings.py": "import gpu_platform.settings",
    "reconciler/__init__.py": "",
    "reconciler/rbac.py": "import gpu_platform.domain.names, reconciler.units.rules",
    "reconciler/settings.py": "import gpu_platform.settings",
    "reconciler/units/__init__.py": "",
    "reconciler/units/rules.py": "import gpu_platform.domain.names",
    "reconciler/loop.py": "import gpu_platform.domain.names, gpu_platform.kube.client, gpu_platform.settings",
    "gpu_platform/control/__init__.py": "",
    "gpu_platform/controller/loop.py": "import gpu_platform.kube.client, gpu_platform.settings",
    "providers/cluster/__init__.py": "",
    "providers/cluster/rbac.py": "import gpu_platform.domain.names",
    "gpu_platform/devcluster/pulumi_kubernetes/__init__.py": "",
    "providers/dynamic.py": "import pulumi, providers.rest.api, gpu_platform.domain.names",
    "providers/rest/__init__.py": "",
    "providers/rest/api.py": "import httpx",
    "gpu_platform/adapters/queue/__init__.py": "",
    "gpu_platform/nats/records.py": "import nats.js, gpu_platform.domain.names",
    "serverless/__init__.py": "import serverless.framework.functions",
    "serverless/framework/__init__.py": "",
    "serverless/framework/functions.py": "import http.server",
    "serverless/sidecar/__init__.py": "",
    "serverless/sidecar/worker.py": "import httpx, gpu_platform.nats.records, gpu_platform.settings, "
    "gpu_platform.domain.names, serverless.framework.functions",
    "stacks/__init__.py": "",
    "stacks/worker/__init__.py": "",
    "stacks/worker/rbac.py": "import gpu_platform.domain.names, providers.cluster.rbac",
    "stacks/worker/process.py": "import pulumi, gpu_platform.controller.loop, gpu_platform.settings, providers.plugin",
}

# What to add to one of the modules above, and the contract that it breaks.
VIOLATIONS = {
    "layers": ("gpu_platform/devcluster/nodes.py", "import gpu_platform.cli.dev"),
    "domain": ("gpu_platform/domain/names.py", "import gpu_platform.settings"),
    "adapters": ("gpu_platform/clock.py", "import gpu_platform.devcluster"),
    "devcluster": ("gpu_platform/devcluster/nodes.py", "import gpu_platform.clock"),
    "cli": ("gpu_platform/cli/dev.py", "import gpu_platform.kube.client"),
    "reconciler": ("reconciler/loop.py", "import gpu_platform.devcluster.nodes"),
    "not-reconciler": ("gpu_platform/cli/dev.py", "import reconciler.loop"),
    "platform-api": ("platform_api/app.py", "import gpu_platform.devcluster.nodes"),
    "not-platform-api": ("reconciler/loop.py", "import platform_api.app"),
    "providers": ("providers/plugin.py", "import gpu_platform.devcluster.nodes"),
    "dynamic": ("providers/rest/api.py", "import gpu_platform.clock"),
    "not-providers": ("infra/program.py", "import providers.plugin"),
    "stacks": ("stacks/worker/process.py", "import gpu_platform.devcluster.nodes"),
    "not-stacks": ("platform_api/app.py", "import stacks.worker.process"),
    "serverless": ("serverless/sidecar/worker.py", "import gpu_platform.kube.client"),
    "framework": ("serverless/framework/functions.py", "import gpu_platform.domain.names"),
    "not-serverless": ("platform_api/app.py", "import serverless.framework.functions"),
    "nats": ("serverless/sidecar/worker.py", "import nats.errors"),
    "rules": ("reconciler/units/rules.py", "import reconciler.settings"),
    "infra": ("infra/program.py", "import gpu_platform.devcluster.nodes"),
    "not-infra": ("gpu_platform/cli/dev.py", "import infra.program"),
    "kubernetes": ("gpu_platform/devcluster/nodes.py", "from kubernetes.aio import client"),
    "pulumi": ("gpu_platform/devcluster/nodes.py", "import pulumi.automation"),
    "tests": ("gpu_platform/cli/dev.py", "import tests.conftest"),
}


def read_contracts() -> configparser.ConfigParser:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    return contracts


def lint(directory: Path, modules: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """Runs our contracts on made-up packages."""
    for name, source in modules.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(source + "\n")
    program = str(Path(sys.executable).with_name("lint-imports"))
    command = [program, "--no-cache", "--no-logo", "--config", str(ROOT / ".importlinter"), *options]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_the_contracts_cover_every_package_that_we_ship() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert sorted(read_contracts()["importlinter"]["root_packages"].split()) == sorted(shipped)


def test_the_intended_imports_are_allowed(tmp_path: Path) -> None:
    verdict = lint(tmp_path, ALLOWED)

    assert verdict.returncode == 0, verdict.stdout


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_a_violation_breaks(contract: str, tmp_path: Path) -> None:
    module, statement = VIOLATIONS[contract]
    verdict = lint(tmp_path, ALLOWED | {module: f"{ALLOWED[module]}\n{statement}"}, "--contract", contract)

    assert verdict.returncode == 1
    assert "0 kept, 1 broken" in verdict.stdout


@pytest.mark.parametrize(
    ("contract", "statement"),
    [
        ("not-reconciler", "import reconciler.loop"),
        ("not-reconciler", "import reconciler.units.rules"),
        ("not-platform-api", "import platform_api.app"),
    ],
)
def test_the_bootstrap_program_sees_no_more_of_a_process_than_it_declares(
    contract: str, statement: str, tmp_path: Path
) -> None:
    program = f"{ALLOWED['infra/program.py']}\n{statement}"
    verdict = lint(tmp_path, ALLOWED | {"infra/program.py": program}, "--contract", contract)

    assert verdict.returncode == 1
    assert "0 kept, 1 broken" in verdict.stdout


def test_every_contract_is_shown_to_fail() -> None:
    sections = (section.partition("importlinter:contract:")[2] for section in read_contracts().sections())

    assert {section for section in sections if section} == set(VIOLATIONS)


def test_a_package_without_a_place_in_the_layers_is_refused(tmp_path: Path) -> None:
    verdict = lint(tmp_path, ALLOWED | {"gpu_platform/billing/__init__.py": ""}, "--contract", "layers")

    assert verdict.returncode == 1
    assert "gpu_platform.billing" in verdict.stdout
