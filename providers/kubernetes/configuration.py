"""The provider's own inputs: which cluster, and a few of the official plugin's switches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_platform.pulumi_protocol.properties import Unknown
from providers.kubernetes.object_names import DEFAULT_NAMESPACE

Json = dict[str, Any]

ENVIRONMENT = {
    "enableConfigMapMutable": "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE",
    "enablePatchForce": "PULUMI_K8S_ENABLE_PATCH_FORCE",
    "enableSecretMutable": "PULUMI_K8S_ENABLE_SECRET_MUTABLE",
    "upsertExistingObjects": "PULUMI_K8S_UPSERT_EXISTING_OBJECTS",
}
UNSUPPORTED = {
    "renderYamlToDirectory": "the stand-in plugin cannot render manifests; install the official plugin for that",
}


@dataclass(frozen=True)
class Configuration:
    kubeconfig: str = ""
    """A path, or the content itself; empty means KUBECONFIG, else ~/.kube/config, else the pod's own account."""

    context: str = ""
    cluster: str = ""
    namespace: str = DEFAULT_NAMESPACE
    enable_config_map_mutable: bool = False
    enable_patch_force: bool = False
    enable_secret_mutable: bool = False
    upsert_existing_objects: bool = False

    @property
    def mutable_kinds(self) -> frozenset[str]:
        """The kinds whose content is updated in place. As with the official plugin, a Secret or ConfigMap with changed
        content is replaced unless the provider says otherwise."""
        switches = {"ConfigMap": self.enable_config_map_mutable, "Secret": self.enable_secret_mutable}
        return frozenset(kind for kind, is_on in switches.items() if is_on)


def read_configuration(inputs: Json, environment: Mapping[str, str]) -> Configuration | None:
    """None while a part that decides about the cluster is not known yet."""
    if any(isinstance(inputs.get(name), Unknown) for name in ("kubeconfig", "context", "cluster")):
        return None
    namespace = inputs.get("namespace")
    return Configuration(
        kubeconfig=str(inputs.get("kubeconfig") or ""),
        context=str(inputs.get("context") or ""),
        cluster=str(inputs.get("cluster") or ""),
        namespace=namespace if isinstance(namespace, str) and namespace else DEFAULT_NAMESPACE,
        enable_config_map_mutable=_is_on("enableConfigMapMutable", inputs, environment),
        enable_patch_force=_is_on("enablePatchForce", inputs, environment),
        enable_secret_mutable=_is_on("enableSecretMutable", inputs, environment),
        upsert_existing_objects=_is_on("upsertExistingObjects", inputs, environment),
    )


def _is_on(name: str, inputs: Json, environment: Mapping[str, str]) -> bool:
    # Stack configuration arrives as text, an explicit provider's arguments as what they are.
    said = inputs.get(name, environment.get(ENVIRONMENT[name], ""))
    return str(said).lower() in ("true", "1")
