"""The stand-in `pulumi-resource-kubernetes` with what others have made, with what it cannot do, and killed."""

import asyncio
import signal
from pathlib import Path

import pytest

from gpu_platform.domain.names import EMBEDDED_CLUSTER, EMBEDDED_CONTEXT
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import CONFIG_MAPS, DEPLOYMENTS
from tests.support.clusters import RunningCluster
from tests.support.fault_report import FaultReport
from tests.support.pulumi_projects import PulumiProject
from tests.support.units_and_stock import find
from tests.support.waiting import eventually

IMPORTED = """
import os
import pulumi_kubernetes as kubernetes

where = {"namespace": os.environ["PLACE"], "name": "theirs"}
if os.environ.get("DECLARED"):
    kubernetes.core.v1.ConfigMap("theirs", metadata=where, data={"a": os.environ["DECLARED"]})
"""


async def test_an_object_that_exists_is_refused_then_imported_changed_and_destroyed(
    cluster: RunningCluster, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    theirs = CONFIG_MAPS.item("theirs", namespace)
    await kube.create(
        CONFIG_MAPS.collection(namespace),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"a": "1"}},
    )
    project = PulumiProject.create(
        tmp_path / "project",
        cluster,
        IMPORTED,
        PLACE=namespace,
        DECLARED="2",
        PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE="true",
        PULUMI_K8S_ENABLE_PATCH_FORCE="true",
    )
    refused = project.fail("up", "--yes", "--skip-preview")
    assert f"ConfigMap {namespace}/theirs exists already and is not this resource's" in refused
    assert (await kube.get(theirs))["data"] == {"a": "1"}

    kind = "kubernetes:core/v1:ConfigMap"
    project.succeed(
        "import",
        kind,
        "theirs",
        f"{namespace}/theirs",
        "--yes",
        "--skip-preview",
        "--protect=false",
        "--generate-code=false",
    )
    assert "~ 1 updated" in project.up()
    assert (await kube.get(theirs))["data"] == {"a": "2"}
    project.destroy()
    assert await find(kube, theirs) is None


RELEASE = """
import os
import pulumi_kubernetes as kubernetes

kubernetes.helm.v3.Release(
    "gpu-operator", chart="gpu-operator", version="v25.3.0", values={"driver": {"enabled": False}},
    repository_opts={"repo": "https://charts.example"},
)
kubernetes.yaml.ConfigFile("manifest", file="manifest.yaml")
"""


def test_a_helm_release_is_previewed_with_a_manifest_and_refused_by_up(
    cluster: RunningCluster, namespace: str, tmp_path: Path
) -> None:
    project = PulumiProject.create(tmp_path / "project", cluster, RELEASE)
    metadata = f"metadata: {{name: from-file, namespace: {namespace}}}"
    (project.directory / "manifest.yaml").write_text(f"apiVersion: v1\nkind: ConfigMap\n{metadata}\n")
    shown = project.succeed("preview", "--diff")
    assert "https://charts.example" in shown
    assert 'name     : "from-file"' in shown

    refused = project.fail("up", "--yes", "--skip-preview")
    assert "cannot install, change or remove the Helm release of gpu-operator v25.3.0" in refused
    assert "pulumi plugin install resource kubernetes v" in refused


BROKEN = """
import os
import pulumi_kubernetes as kubernetes

where = {"namespace": os.environ["PLACE"], "name": "web"}
template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web"}]}}
kubernetes.apps.v1.Deployment(
    "web", metadata=where, spec={"selector": {"matchLabels": {"app": "web"}}, "template": template}
)
"""


def test_a_wrong_field_and_a_cluster_that_cannot_be_used_are_said_in_one_line(
    cluster: RunningCluster, namespace: str, tmp_path: Path
) -> None:
    project = PulumiProject.create(tmp_path / "project", cluster, BROKEN, PLACE=namespace)
    line = f"Deployment {namespace}/web: spec.template.spec.containers[0].image: Required value (Invalid)"
    assert line in project.fail("preview")

    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig.read_text().replace(cluster.record.api_server_url, "https://127.0.0.1:1"))
    project.settings["KUBECONFIG"] = str(kubeconfig)
    assert "the API server https://127.0.0.1:1 cannot be reached" in project.fail("preview")

    kubeconfig.write_text(kubeconfig.read_text().replace(EMBEDDED_CLUSTER, "minikube.sigs.k8s.io"))
    line = "the stand-in kubernetes plugin works on embedded clusters only, and https://127.0.0.1:1 is not one"
    assert line in project.fail("preview")
    project.succeed("config", "set", "kubernetes:context", "prod")
    line = f"the kubeconfig has no context 'prod'; it has: {EMBEDDED_CONTEXT}"
    assert line in project.fail("preview")


UNSCHEDULED_SECONDS = "20"
"""For the real scheduler to say that no node fits, also on a busy machine."""

SLOW = """
import os
import pulumi_kubernetes as kubernetes

inside = {"namespace": os.environ["PLACE"]}
kubernetes.core.v1.ConfigMap("settings", metadata={**inside, "name": "settings"})
limit = {"annotations": {"pulumi.com/timeoutSeconds": os.environ["SECONDS"]}} if "SECONDS" in os.environ else {}
pod = {"containers": [{"name": "web", "image": "example/web"}]}
if os.environ.get("NOWHERE"):
    pod["nodeSelector"] = {"no-node": "has-this"}
kubernetes.apps.v1.Deployment(
    "web",
    metadata={**inside, **limit, "name": "web"},
    spec={
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod},
    },
)
"""


def test_a_deployment_that_fits_on_no_node_is_told_why(cluster: RunningCluster, namespace: str, tmp_path: Path) -> None:
    project = PulumiProject.create(
        tmp_path / "project", cluster, SLOW, PLACE=namespace, NOWHERE="yes", SECONDS=UNSCHEDULED_SECONDS
    )

    said = project.fail("up", "--yes", "--skip-preview")

    reason = "1 pod cannot be scheduled: 0/"
    assert any("waiting: " in line and reason in line for line in said.splitlines())
    [error] = [line for line in said.splitlines() if "is not ready after" in line]
    assert reason in error
    assert "didn't match Pod's node affinity/selector" in error
    project.settings["SECONDS"] = "600"
    del project.settings["NOWHERE"]
    project.up()


@pytest.mark.faults
async def test_an_update_that_is_killed_is_completed_by_the_next_one(
    cluster: RunningCluster, kube: KubeClient, namespace: str, tmp_path: Path, faults: FaultReport
) -> None:
    project = PulumiProject.create(tmp_path / "project", cluster, SLOW, PLACE=namespace, NOWHERE="yes")
    web = DEPLOYMENTS.item("web", namespace)
    running = project.start("up", "--yes", "--skip-preview")
    before = await eventually(lambda: find(kube, web))
    plugins = list_plugins(running.pid)
    running.kill()
    await asyncio.to_thread(running.communicate)
    assert plugins
    assert running.returncode == -signal.SIGKILL
    faults.hit("pulumi up: SIGKILL")

    async def plugins_are_gone() -> bool:
        return not any(Path(f"/proc/{pid}").exists() for pid in plugins)

    await eventually(plugins_are_gone)
    del project.settings["NOWHERE"]
    project.succeed("cancel", "--yes")
    project.up()
    after = await kube.get(web)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["availableReplicas"] == 1
    faults.held("no plugin outlives its engine", "nothing is made twice")


def list_plugins(pulumi: int) -> list[int]:
    """The plugin's processes that this CLI has started."""
    children = Path(f"/proc/{pulumi}/task").glob("*/children")
    pids = [int(pid) for path in children for pid in path.read_text().split()]
    return [pid for pid in pids if b".pulumi_kubernetes" in Path(f"/proc/{pid}/cmdline").read_bytes()]
