"""The stand-in `pulumi-resource-kubernetes`, started by the real CLI for programs that use `pulumi-kubernetes`."""

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gpu_platform.adapters.kube import KubeClient, NotFoundError, ResourcePath
from gpu_platform.adapters.kube.paths import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, SECRETS
from tests.support.clusters import RunningCluster
from tests.support.pulumi_projects import PulumiProject
from tests.support.waiting import eventually

Json = dict[str, Any]

PASSWORD = "correct-horse-battery-staple"  # noqa: S105
DEFINITIONS = ResourcePath("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)

PROGRAM = """
import os
import pulumi
import pulumi_kubernetes as kubernetes

place = os.environ["PLACE"]
namespace = kubernetes.core.v1.Namespace("namespace", metadata={"name": place})
inside = {"namespace": namespace.metadata["name"]}
settings = kubernetes.core.v1.ConfigMap("settings", metadata=inside, data={"level": os.environ.get("LEVEL", "1")})
kubernetes.core.v1.ConfigMap("renamed", metadata={**inside, "name": os.environ.get("NAME", "first")})
kubernetes.core.v1.Secret(
    "secret", metadata={**inside, "name": "secret"}, string_data={"password": os.environ["PASSWORD"]}
)
definition = kubernetes.apiextensions.v1.CustomResourceDefinition(
    "definition",
    metadata={"name": f"widgets.{place}.example"},
    spec={
        "group": f"{place}.example",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
        "versions": [{
            "name": "v1", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            }},
        }],
    },
)
kubernetes.apiextensions.CustomResource(
    "widget", api_version=f"{place}.example/v1", kind="Widget", metadata={**inside, "name": "widget"}, spec={"size": 3},
    opts=pulumi.ResourceOptions(depends_on=[definition]),
)
kubernetes.apps.v1.Deployment(
    "web",
    metadata={**inside, "name": "web"},
    spec={
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{
                "name": "web", "image": "example/web", "resources": {"requests": {"cpu": "1000m"}},
                "env": [{"name": "KEY", "value": pulumi.Output.secret(os.environ["PASSWORD"])}],
            }]},
        },
    },
)
service = kubernetes.core.v1.Service("service", metadata=inside, spec={"ports": [{"port": 80}]})
pulumi.export("settings", settings.metadata["name"])
pulumi.export("address", service.spec["cluster_ip"])
"""


@pytest.fixture(scope="module")
async def project(
    cluster: RunningCluster, kube: KubeClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[PulumiProject]:
    """The program above, up. At the end it is destroyed, and nothing of it may be left."""
    place = f"plugin-{secrets.token_hex(4)}"
    directory = tmp_path_factory.mktemp("plugin") / "project"
    project = PulumiProject.create(directory, cluster, PROGRAM, PLACE=place, PASSWORD=PASSWORD)
    project.up()
    yield project
    project.destroy()
    assert await find(kube, NAMESPACES.item(place)) is None
    assert await find(kube, DEFINITIONS.item(f"widgets.{place}.example")) is None


@pytest.fixture
def place(project: PulumiProject) -> str:
    return project.settings["PLACE"]


async def find(kube: KubeClient, path: str) -> Json | None:
    try:
        return await kube.get(path)
    except NotFoundError:
        return None


async def read_versions(kube: KubeClient, place: str) -> dict[str, str]:
    """Of everything that the program declares; a write of any kind would show."""
    widgets = ResourcePath(f"{place}.example/v1", "widgets")
    lists = [await kube.get(path.collection(place)) for path in (CONFIG_MAPS, SECRETS, widgets)]
    deployment = await kube.get(DEPLOYMENTS.item("web", place))
    versions = {
        f"{each['kind']} {item['metadata']['name']}": item["metadata"]["resourceVersion"]
        for each in lists
        for item in each["items"]
    }
    # Its controller writes the status whenever it likes.
    return {**versions, "deployment": str(deployment["metadata"]["generation"])}


async def test_up_creates_everything_in_the_right_order(project: PulumiProject, kube: KubeClient, place: str) -> None:
    widgets = ResourcePath(f"{place}.example/v1", "widgets")
    widget = await kube.get(widgets.item("widget", place))
    secret = await kube.get(SECRETS.item("secret", place))
    web = await kube.get(DEPLOYMENTS.item("web", place))

    assert widget["spec"] == {"size": 3}
    assert base64.b64decode(secret["data"]["password"]).decode() == PASSWORD
    assert web["status"]["availableReplicas"] == 2
    settings = project.succeed("stack", "output", "settings").strip()
    assert settings.startswith("settings-")
    assert (await kube.get(CONFIG_MAPS.item(settings, place)))["data"] == {"level": "1"}


def test_a_second_run_changes_nothing(project: PulumiProject) -> None:
    project.succeed("preview", "--expect-no-changes")
    project.succeed("refresh", "--preview-only", "--expect-no-changes")


def test_a_secret_is_never_in_clear_in_the_state(project: PulumiProject) -> None:
    state = project.state_file.read_text()

    assert "ciphertext" in state
    assert PASSWORD not in state
    assert base64.b64encode(PASSWORD.encode()).decode() not in state


async def test_a_preview_shows_exactly_the_edit_and_writes_nothing(
    project: PulumiProject, kube: KubeClient, place: str
) -> None:
    before = await read_versions(kube, place)
    project.settings["LEVEL"] = "2"
    shown = project.succeed("preview", "--diff")
    del project.settings["LEVEL"]

    assert 'level: "1" => "2"' in shown
    assert "~ 1 to update" in shown
    assert shown.count("=>") == 1
    assert await read_versions(kube, place) == before


async def test_an_edit_by_hand_shows_and_is_put_back(project: PulumiProject, kube: KubeClient, place: str) -> None:
    path = DEPLOYMENTS.item("web", place)
    await kube.patch(path, {"spec": {"replicas": 3}, "metadata": {"labels": {"mine": "yes"}}})
    shown = project.succeed("refresh", "--preview-only", "--diff")
    assert "replicas: 2 => 3" in shown
    assert "~ 1 to update" in shown

    project.up("--refresh")
    web = await kube.get(path)
    assert web["spec"]["replicas"] == 2
    assert web["metadata"]["labels"] == {"mine": "yes"}
    assert PASSWORD not in project.state_file.read_text()


async def test_another_name_is_another_object(project: PulumiProject, kube: KubeClient, place: str) -> None:
    project.settings["NAME"] = "second"
    shown = project.up()

    assert "1 replaced" in shown
    assert await find(kube, CONFIG_MAPS.item("second", place)) is not None
    assert await find(kube, CONFIG_MAPS.item("first", place)) is None


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
    project = PulumiProject.create(tmp_path / "project", cluster, IMPORTED, PLACE=namespace, DECLARED="2")
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


def test_a_wrong_field_and_a_cluster_out_of_reach_are_said_in_one_line(
    cluster: RunningCluster, namespace: str, tmp_path: Path
) -> None:
    project = PulumiProject.create(tmp_path / "project", cluster, BROKEN, PLACE=namespace)
    line = f"Deployment {namespace}/web: spec.template.spec.containers[0].image: Required value (Invalid)"
    assert line in project.fail("preview")

    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig.read_text().replace(cluster.record.api_server_url, "https://127.0.0.1:1"))
    project.settings["KUBECONFIG"] = str(kubeconfig)
    assert "the API server https://127.0.0.1:1 cannot be reached" in project.fail("preview")


SLOW = """
import os
import pulumi_kubernetes as kubernetes

inside = {"namespace": os.environ["PLACE"]}
kubernetes.core.v1.ConfigMap("settings", metadata={**inside, "name": "settings"})
pod = {"containers": [{"name": "web", "image": "example/web"}]}
if os.environ.get("NOWHERE"):
    pod["nodeSelector"] = {"no-node": "has-this"}
kubernetes.apps.v1.Deployment(
    "web",
    metadata={**inside, "name": "web"},
    spec={
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod},
    },
)
"""


async def test_an_update_that_is_killed_is_completed_by_the_next_one(
    cluster: RunningCluster, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    project = PulumiProject.create(tmp_path / "project", cluster, SLOW, PLACE=namespace, NOWHERE="yes")
    web = DEPLOYMENTS.item("web", namespace)
    running = project.start("up", "--yes", "--skip-preview")
    before = await eventually(lambda: find(kube, web), within=180)
    settings = await eventually(lambda: find(kube, CONFIG_MAPS.item("settings", namespace)))
    # It declares nothing but its name, and must be known as this program's all the same.
    assert [each["operation"] for each in settings["metadata"]["managedFields"]] == ["Apply"]
    plugins = list_plugins(running.pid)
    running.kill()
    await asyncio.to_thread(running.communicate)
    assert plugins

    async def plugins_are_gone() -> bool:
        return not any(Path(f"/proc/{pid}").exists() for pid in plugins)

    await eventually(plugins_are_gone)
    del project.settings["NOWHERE"]
    project.succeed("cancel", "--yes")
    project.up()
    after = await kube.get(web)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["availableReplicas"] == 1


def list_plugins(pulumi: int) -> list[int]:
    """The plugin's processes that this CLI has started."""
    children = Path(f"/proc/{pulumi}/task").glob("*/children")
    pids = [int(pid) for path in children for pid in path.read_text().split()]
    return [pid for pid in pids if b"providers.kubernetes" in Path(f"/proc/{pid}/cmdline").read_bytes()]
