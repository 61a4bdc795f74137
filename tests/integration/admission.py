"""A cluster with rules of its own, which our checks cannot know."""

import asyncio

from gpu_platform.adapters.kube import KubeClient
from gpu_platform.adapters.kube.paths import GPU_UNITS
from gpu_platform.domain import names
from tests.integration.platform import INSTANCES
from tests.waiting import eventually


class refused_image:  # noqa: N801 - reads as a phrase
    """While it lasts, an admission policy of the cluster refuses units with this image."""

    def __init__(self, kube: KubeClient, spec: str, image: str) -> None:
        self._kube = kube
        self._spec = spec
        self._image = image
        self._policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        self._bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"

    async def __aenter__(self) -> None:
        api_version = "admissionregistration.k8s.io/v1"
        rule = {
            "apiGroups": [names.GROUP],
            "apiVersions": ["*"],
            "operations": ["CREATE"],
            "resources": ["gpuunits"],
        }
        policy = {
            "apiVersion": api_version,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "refused-image"},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [
                    {
                        "expression": f"object.spec.image != '{self._image}'",
                        "message": "that image may not run, not here",
                    }
                ],
            },
        }
        binding = {
            "apiVersion": api_version,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "refused-image"},
            "spec": {"policyName": "refused-image", "validationActions": ["Deny"]},
        }
        await self._kube.create(self._policies, policy)
        await self._kube.create(self._bindings, binding)
        await eventually(self._is_active)

    async def __aexit__(self, *_: object) -> None:
        await self._kube.delete(f"{self._bindings}/refused-image")
        await self._kube.delete(f"{self._policies}/refused-image")

    async def _is_active(self) -> bool:
        """The API server takes a moment to follow its own policies."""
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "GPUUnit",
            "metadata": {"name": "probe", "namespace": INSTANCES},
            "spec": {"specName": self._spec, "image": self._image},
        }
        try:
            await self._kube.create(GPU_UNITS.collection(INSTANCES), body, {"dryRun": "All"})
        except Exception as error:  # noqa: BLE001 - whatever it says, it must be the policy's words
            return "not here" in str(error)
        await asyncio.sleep(0.1)
        return False
