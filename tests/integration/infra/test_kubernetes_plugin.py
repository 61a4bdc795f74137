"""The stand-in `pulumi-resource-kubernetes`, started by the real CLI for programs that use `pulumi-kubernetes`."""

import base64
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gpu_platform.kube import KubeClient, ResourcePath
from gpu_platform.kube.paths import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, SECRETS
from tests.support.clusters import RunningCluster
from tests.support.pulumi_projects import PulumiProject
from tests.support.units_and_stock import find

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
    project = PulumiProject.create(
        directory, cluster, PROGRAM, PLACE=place, PASSWORD=PASSWORD, PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE="true"
    )
    project.up()
    yield project
    project.destroy()
    assert await find(kube, NAMESPACES.item(place)) is None
    assert await find(kube, DEFINITIONS.item(f"widgets.{place}.example")) is None


@pytest.fixture
def place(project: PulumiProject) -> str:
    return project.settings["PLACE"]


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
    # It declares nothing but its name, and must be known as this program's all the same.
    nothing = await kube.get(CONFIG_MAPS.item("first", place))
    assert [each["operation"] for each in nothing["metadata"]["managedFields"]] == ["Apply"]


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


def test_changed_content_is_replaced_unless_the_provider_has_its_kind_as_mutable(project: PulumiProject) -> None:
    """As with the official plugin. A Secret with a name of its own is deleted before it is created again."""
    changed = {**project.settings, "PASSWORD": "another"}
    assert "+-1 to replace" in replace(project, settings=changed).succeed("preview", "--diff")
    mutable = {**changed, "PULUMI_K8S_ENABLE_SECRET_MUTABLE": "true"}
    shown = replace(project, settings=mutable).succeed("preview", "--diff")
    assert "~ 2 to update" in shown
    assert "to replace" not in shown


async def test_an_edit_by_hand_shows_and_is_put_back_where_that_is_forced(
    project: PulumiProject, kube: KubeClient, place: str
) -> None:
    path = DEPLOYMENTS.item("web", place)
    await kube.patch(path, {"spec": {"replicas": 3}, "metadata": {"labels": {"mine": "yes"}}})
    shown = project.succeed("refresh", "--preview-only", "--diff")
    assert "replicas: 2 => 3" in shown
    assert "~ 1 to update" in shown

    refused = project.fail("up", "--yes", "--skip-preview", "--refresh")
    assert f"Deployment {place}/web: another tool set fields that this program declares: Apply failed with 1" in refused
    assert ".spec.replicas" in refused
    assert "PULUMI_K8S_ENABLE_PATCH_FORCE=true" in refused
    assert (await kube.get(path))["spec"]["replicas"] == 3

    project.settings["PULUMI_K8S_ENABLE_PATCH_FORCE"] = "true"
    project.up("--refresh")
    del project.settings["PULUMI_K8S_ENABLE_PATCH_FORCE"]
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
