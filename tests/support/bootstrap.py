"""The bootstrap program as a person runs it: the real CLI, on a cluster that has nothing of the platform yet."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, ResourcePath
from gpu_platform.kube.paths import DEPLOYMENTS, NAMESPACES, NETWORK_POLICIES, SECRETS
from infra.program import PROJECT
from tests.architecture.repository import ROOT
from tests.support.clusters import RunningCluster

Outcome = subprocess.CompletedProcess[str]

SECONDS = 300
"""For one call of the CLI: it takes ten on idle cores."""

CRDS = ResourcePath("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
CLUSTER_ROLES = ResourcePath("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False)
PRIORITY_CLASSES = ResourcePath("scheduling.k8s.io/v1", "priorityclasses", namespaced=False)

ROLE_BINDINGS = ResourcePath("rbac.authorization.k8s.io/v1", "rolebindings")

PROVIDER = "pulumi:providers:kubernetes"
PLATFORM = (sys.executable, "-m", "gpu_platform.cli")


def read_config(name: str) -> Json:
    """The configuration of one of the repository's stacks, to be changed at will."""
    config: Json = yaml.safe_load((ROOT / f"Pulumi.{name}.yaml").read_text())["config"]
    return config


def read_production(*, gpu_operator: bool = False, service_monitors: bool = False) -> Json:
    """The configuration of the production example, for an embedded cluster."""
    config = {
        **read_config("prod"),
        "kubernetes:context": names.EMBEDDED_CONTEXT,
        # For the Secret of keys.
        "gpu-platform:administratorKeyFrom": "GPU_PLATFORM_KEY",
    }
    config["gpu-platform:gpuOperator"]["enabled"] = gpu_operator
    config["gpu-platform:workloads"]["serviceMonitors"]["enabled"] = service_monitors
    return config


def bootstrap(cluster: RunningCluster) -> None:
    """What `dev up` does to a cluster before it starts the platform's processes."""
    environment = {**os.environ, **cluster.environment(os.environ["PATH"])}
    outcome = _call([*PLATFORM, "bootstrap", "up"], environment)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


class BootstrapStack:
    """The stack `dev` in a state of its own. Its configuration is a file beside that, so that none of the repository's
    is ever written."""

    def __init__(self, cluster: RunningCluster, directory: Path) -> None:
        self._file = directory / "stack.yaml"
        self._state = directory / "state"
        self._state.mkdir(parents=True)
        self._environment = {
            **os.environ,
            **cluster.environment(os.environ["PATH"]),
            "PULUMI_BACKEND_URL": f"file://{self._state}?metadata=skip",
            "PULUMI_HOME": str(directory / "home"),
        }
        self.configure(read_config("dev"))
        assert self._run("stack", "init", "dev").returncode == 0

    def configure(self, config: Mapping[str, Any]) -> None:
        salt = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["encryptionsalt"]
        self._file.write_text(yaml.safe_dump({"config": dict(config), "encryptionsalt": salt}))

    def configure_text(self, text: str) -> None:
        """As it stands, also what no YAML library would write."""
        self._file.write_text(text)

    def run(self, command: str, *options: str) -> Outcome:
        return self._run(command, "--config-file", str(self._file), *options)

    def up(self, *options: str) -> Outcome:
        outcome = self.run("up", "--yes", "--skip-preview", *options)
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
        return outcome

    def destroy(self) -> None:
        outcome = self.run("destroy", "--yes", "--skip-preview")
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr

    def plan(self) -> list[Json]:
        """What a preview would change, step by step."""
        preview = self.run("preview", "--json")
        assert preview.returncode == 0, preview.stdout + preview.stderr
        return [step for step in json.loads(preview.stdout)["steps"] if step["op"] != "same"]

    def has_changes(self) -> bool:
        preview = self.run("preview", "--expect-no-changes")
        assert ("error: " in preview.stdout + preview.stderr) is (preview.returncode != 0)
        return preview.returncode != 0

    def has_lock(self) -> bool:
        """A process works on the stack, or died while it did."""
        return any(self._state.glob(".pulumi/locks/**/*.json"))

    def leave_unfinished_lock(self) -> None:
        """As a process does that is killed before it has written its lock."""
        directory = self._state / ".pulumi" / "locks" / "organization" / PROJECT / "dev"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "0123.json.18a0.tmp").touch()

    def export(self) -> Json:
        """The state, without the time at which it was written."""
        return {key: value for key, value in self._export()["deployment"].items() if key != "manifest"}

    def outputs(self) -> Json:
        shown: Json = json.loads(self._run("stack", "output", "--json").stdout)
        return shown

    def forget_provider(self) -> None:
        """Rewrites the state as of an earlier program: it declares no provider, and so gets Pulumi's default one, and
        its components depend on nothing, only their objects do."""
        exported = self._export()
        resources = exported["deployment"]["resources"]
        [provider] = [each for each in resources if each["type"] == PROVIDER]
        declared = provider["urn"]
        version = provider["inputs"]["version"]
        default = f"{declared.removesuffix('cluster')}default_{version.replace('.', '_')}"
        kept = ("__internal", "clusterIdentifier", "version")
        for part in ("inputs", "outputs"):
            provider[part] = {key: value for key, value in provider[part].items() if key in kept}
        provider["urn"] = default
        for each in resources:
            if "provider" in each:
                each["provider"] = each["provider"].replace(declared, default)
            if not each["custom"] and "parent" in each:
                each["outputs"] = {}
                each["dependencies"] = []
        file = self._state / "import.json"
        file.write_text(json.dumps(exported))
        assert self._run("stack", "import", "--file", str(file)).returncode == 0

    def _export(self) -> Json:
        exported: Json = json.loads(self._run("stack", "export").stdout)
        return exported

    def begin_bootstrap(self) -> subprocess.Popen[bytes]:
        """In a group of its own, as a terminal gives to a command."""
        return subprocess.Popen(
            [*PLATFORM, "bootstrap", "up"],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def bootstrap(self, action: str, *options: str) -> Outcome:
        """With the settings of the repository's own stack."""
        return _call([*PLATFORM, "bootstrap", action, *options], self._environment)

    def preview_command(self, directory: Path, *options: str) -> Outcome:
        """`gpu-platform preview` in a checkout whose settings are those that were configured."""
        for name in ("Pulumi.yaml", "infra", ".venv"):
            (directory / name).symlink_to(ROOT / name)
        (directory / "Pulumi.dev.yaml").symlink_to(self._file)
        return _call([*PLATFORM, "preview", "--stack", "dev", *options], self._environment, directory)

    def _run(self, *arguments: str) -> Outcome:
        return _call(["pulumi", "--non-interactive", *arguments], self._environment)


def _call(command: Sequence[str], environment: Mapping[str, str], directory: Path = ROOT) -> Outcome:
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def interrupt(running: subprocess.Popen[bytes], number: signal.Signals) -> int:
    """As a terminal does it, to the whole group."""
    os.killpg(running.pid, number)
    return running.wait(SECONDS)


def name_of(step: Json) -> str:
    """`Namespace runtime-stock`: kind and name behind a step's URN."""
    kind, name = step["urn"].split("$")[-1].split("::", 1)
    return f"{kind.rpartition(':')[2]} {name}"


async def list_remains(kube: KubeClient) -> list[str]:
    """What the cluster has of the platform."""
    found = []
    for path in (NAMESPACES, CRDS, CLUSTER_ROLES, PRIORITY_CLASSES):
        items = (await kube.get(path.collection()))["items"]
        found += [item["metadata"]["name"] for item in items]
    return [name for name in found if name.startswith(("runtime-", "gpu-")) or name.endswith(names.GROUP)]


async def list_uids(kube: KubeClient) -> dict[str, str]:
    """What the cluster has of the kinds that the program declares most of, by uid."""
    kinds = (NAMESPACES, CRDS, CLUSTER_ROLES, PRIORITY_CLASSES, ROLE_BINDINGS, DEPLOYMENTS, NETWORK_POLICIES, SECRETS)
    return {
        item["metadata"]["uid"]: f"{path.plural} {item['metadata']['name']}"
        for path in kinds
        for item in (await kube.get(path.collection()))["items"]
    }
