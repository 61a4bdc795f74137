"""The definitions that a cluster starts with, and whose fields they are once a bootstrap has taken them over."""

import secrets
from collections.abc import AsyncIterator

import pytest

from gpu_platform.devcluster.definitions import DEFINITIONS, ensure_definition, field_manager
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, PatchType

KIND = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
OFFICIAL = "pulumi-kubernetes-official"


@pytest.fixture
async def definition(kube: KubeClient) -> AsyncIterator[Json]:
    group = f"g{secrets.token_hex(4)}.example.com"
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    built: Json = {
        **KIND,
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wdg"]},
            "versions": [version],
        },
    }
    await ensure_definition(kube, built)
    yield built
    await kube.delete(DEFINITIONS.item(built["metadata"]["name"]))


async def apply(kube: KubeClient, body: Json, manager: str) -> Json:
    return await kube.patch(
        DEFINITIONS.item(body["metadata"]["name"]), body, PatchType.APPLY, {"fieldManager": manager}
    )


async def list_managers(kube: KubeClient, definition: Json) -> set[str]:
    live = await kube.get(DEFINITIONS.item(definition["metadata"]["name"]))
    return {entry["manager"] for entry in live["metadata"]["managedFields"] if entry["operation"] == "Apply"}


async def test_a_bootstrap_with_a_field_manager_of_its_own_owns_the_definition_alone(
    kube: KubeClient, definition: Json
) -> None:
    await apply(kube, definition, OFFICIAL)
    await ensure_definition(kube, definition)

    assert await list_managers(kube, definition) == {OFFICIAL}
    names = {key: value for key, value in definition["spec"]["names"].items() if key != "shortNames"}
    live = await apply(kube, {**definition, "spec": {**definition["spec"], "names": names}}, OFFICIAL)
    assert "shortNames" not in live["spec"]["names"]


async def test_another_tool_that_applies_a_label_takes_nothing_over(kube: KubeClient, definition: Json) -> None:
    name = definition["metadata"]["name"]
    await apply(kube, {**KIND, "metadata": {"name": name, "labels": {"team": "a"}}}, "kubectl")
    await ensure_definition(kube, definition)

    assert await list_managers(kube, definition) == {field_manager(name), "kubectl"}
