"""A cluster with rules of its own, which our checks cannot know."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, KubeError, ResourcePath
from gpu_platform.kube.paths import GPU_UNITS, INGRESSES
from tests.support.units_and_stock import INSTANCES
from tests.support.waiting import eventually

API_VERSION = "admissionregistration.k8s.io/v1"
POLICIES = ResourcePath(API_VERSION, "validatingadmissionpolicies", namespaced=False)
BINDINGS = ResourcePath(API_VERSION, "validatingadmissionpolicybindings", namespaced=False)
WORDS = "not here"
"""In every refusal."""


@asynccontextmanager
async def refused_image(kube: KubeClient, spec: str, image: str) -> AsyncIterator[None]:
    """While it lasts, an admission policy of the cluster refuses units with this image."""
    unit = {
        "apiVersion": names.API_VERSION,
        "kind": "GPUUnit",
        "metadata": {"name": "probe", "namespace": INSTANCES},
        "spec": {"specName": spec, "image": image},
    }
    async with _refused(kube, GPU_UNITS, f"object.spec.image != '{image}'", unit):
        yield


@asynccontextmanager
async def refused_ingresses(kube: KubeClient) -> AsyncIterator[None]:
    """The same for every Ingress, as while the webhook of an ingress controller is away."""
    ingress = {
        "apiVersion": INGRESSES.api_version,
        "kind": "Ingress",
        "metadata": {"name": "probe", "namespace": INSTANCES},
        "spec": {"defaultBackend": {"service": {"name": "probe", "port": {"number": 80}}}},
    }
    async with _refused(kube, INGRESSES, "false", ingress):
        yield


@asynccontextmanager
async def _refused(kube: KubeClient, path: ResourcePath, expression: str, probe: Json) -> AsyncIterator[None]:
    name = f"refused-{path.plural}"
    group, _, _ = path.api_version.partition("/")
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [path.plural]}
    policy = {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": f"that may not be, {WORDS}"}],
        },
    }
    binding = {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }

    async def is_active() -> bool:
        """The API server takes a moment to follow its own policies."""
        try:
            await kube.create(path.collection(INSTANCES), probe, {"dryRun": "All"})
        except KubeError as error:
            return WORDS in str(error)
        await asyncio.sleep(0.1)
        return False

    await kube.create(POLICIES.collection(), policy)
    await kube.create(BINDINGS.collection(), binding)
    try:
        await eventually(is_active)
        yield
    finally:
        await kube.delete(BINDINGS.item(name))
        await kube.delete(POLICIES.item(name))
