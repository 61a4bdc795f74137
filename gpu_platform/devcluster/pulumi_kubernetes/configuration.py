"""The provider's own inputs: which cluster, and a few of the official plugin's switches. The kubeconfig is found and
merged as kubectl does it; the version is that of the SDK that programs use."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from gpu_platform.devcluster.pulumi_kubernetes.inputs import DEFAULT_NAMESPACE
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import EMBEDDED_CLUSTER
from gpu_platform.domain.network import is_loopback
from gpu_platform.kube import NoConnectionError
from gpu_platform.process import write_atomically
from gpu_platform.pulumi_protocol.properties import Unknown

SDK = "pulumi-kubernetes"

OLDEST = "4.0.0"
"""Said where the SDK is not installed, for example by a program in another language."""


ENVIRONMENT = {
    "enableConfigMapMutable": "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE",
    "enablePatchForce": "PULUMI_K8S_ENABLE_PATCH_FORCE",
    "enableSecretMutable": "PULUMI_K8S_ENABLE_SECRET_MUTABLE",
    "upsertExistingObjects": "PULUMI_K8S_UPSERT_EXISTING_OBJECTS",
}

UNSUPPORTED = {
    "renderYamlToDirectory": "the stand-in plugin cannot render manifests; install the official plugin for that",
}

FILE_FIELDS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
SECTIONS = ("clusters", "users", "contexts")

ANY_CLUSTER = "GPU_PLATFORM_STAND_IN_ANY_CLUSTER"
"""An environment variable: `true` lets the stand-in change clusters that are not embedded ones."""


def read_version() -> str:
    try:
        return metadata.version(SDK)
    except metadata.PackageNotFoundError:
        return OLDEST


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


def is_content(said: str) -> bool:
    return "\n" in said or said.lstrip().startswith("{")


def load_kubeconfig(configuration: Configuration, environment: Mapping[str, str]) -> Json | None:
    """The kubeconfig with the chosen context as the current one; None means the pod's own account."""
    said = configuration.kubeconfig
    if is_content(said):
        return choose_context(parse_kubeconfig(said, "the input `kubeconfig`", Path.cwd()), configuration)
    source = said or environment.get("KUBECONFIG", "") or _home_kubeconfig()
    if not source:
        return None
    files = [Path(each).expanduser() for each in source.split(os.pathsep) if each]
    existing = [file for file in files if file.exists()]
    if not existing:
        raise NoConnectionError(f"the kubeconfig {source} does not exist")
    try:
        parsed = [parse_kubeconfig(file.read_text(), str(file), file.parent) for file in existing]
    except OSError as error:
        raise NoConnectionError(f"the kubeconfig {source} cannot be used: {error}") from error
    return choose_context(merge_kubeconfigs(parsed), configuration)


def parse_kubeconfig(text: str, source: str, directory: Path) -> Json:
    """The content, with file names that hold anywhere."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise NoConnectionError(f"{source} is neither a path nor a kubeconfig: {error}") from error
    if not isinstance(content, dict):
        raise NoConnectionError(f"{source} is neither a path nor a kubeconfig")
    for entry in [*(content.get("clusters") or []), *(content.get("users") or [])]:
        inner = entry.get("cluster") or entry.get("user") or {}
        for field in FILE_FIELDS:
            if field in inner:
                inner[field] = str(directory / inner[field])
    return content


def merge_kubeconfigs(parsed: list[Json]) -> Json:
    """As kubectl does it: the first file that names something wins."""
    merged: Json = {"apiVersion": "v1", "kind": "Config"}
    for section in SECTIONS:
        entries = [entry for content in reversed(parsed) for entry in reversed(content.get(section) or [])]
        merged[section] = list({entry["name"]: entry for entry in entries}.values())
    current = [content["current-context"] for content in parsed if content.get("current-context")]
    return {**merged, "current-context": current[0] if current else ""}


def choose_context(content: Json, configuration: Configuration) -> Json:
    contexts = {entry["name"]: entry["context"] for entry in content.get("contexts") or []}
    current = configuration.context or content.get("current-context") or ""
    if current not in contexts:
        raise NoConnectionError(
            f"the kubeconfig has no context {current!r}; it has: {', '.join(sorted(contexts)) or 'none'}"
        )
    chosen = {**contexts[current], **({"cluster": configuration.cluster} if configuration.cluster else {})}
    entries = [{"name": name, "context": chosen if name == current else each} for name, each in contexts.items()]
    return {**content, "contexts": entries, "current-context": current}


def check_is_embedded(kubeconfig: Json | None, environment: Mapping[str, str]) -> None:
    """Refuses any cluster but an embedded one: this plugin is a stand-in for a developer's machine and for tests."""
    if environment.get(ANY_CLUSTER, "").lower() == "true":
        return
    cluster = _find_cluster(kubeconfig) if kubeconfig else {}
    server = str(cluster.get("server", ""))
    marks = [entry.get("name") for entry in cluster.get("extensions") or []]
    if EMBEDDED_CLUSTER in marks and is_loopback(urlsplit(server).hostname or ""):
        return
    raise NoConnectionError(
        f"the stand-in kubernetes plugin works on embedded clusters only, and {server or 'this cluster'} is not one: "
        f"install the official plugin (pulumi plugin install resource kubernetes v{read_version()}), or set "
        f"{ANY_CLUSTER}=true. An embedded cluster that an earlier version started is marked by its next start "
        "(gpu-platform dev down, then dev up)"
    )


def write_kubeconfig(content: Json, workplace: Path) -> Path:
    """Readable by this user alone: it holds credentials."""
    path = workplace / "kubeconfig"
    write_atomically(path, yaml.safe_dump(content))
    return path


def _find_cluster(content: Json) -> Json:
    contexts = {entry["name"]: entry["context"] for entry in content.get("contexts") or []}
    wanted = contexts[content["current-context"]].get("cluster")
    found = [entry["cluster"] for entry in content.get("clusters") or [] if entry["name"] == wanted]
    return dict(found[0]) if found else {}


def _home_kubeconfig() -> str:
    path = Path.home() / ".kube" / "config"
    return str(path) if path.exists() else ""
