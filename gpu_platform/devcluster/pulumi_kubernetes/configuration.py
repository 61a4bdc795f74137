"""From what a program says about its cluster to a kubeconfig file, and whether that cluster is an embedded one."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from gpu_platform.domain.names import EMBEDDED_CLUSTER
from gpu_platform.kube import NoConnectionError
from providers.kubernetes.configuration import Configuration
from providers.kubernetes.plugin_version import read_version

Json = dict[str, Any]

FILE_FIELDS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
SECTIONS = ("clusters", "users", "contexts")
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")

ANY_CLUSTER = "GPU_PLATFORM_STAND_IN_ANY_CLUSTER"
"""An environment variable: `true` lets the stand-in change clusters that are not embedded ones."""


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
    if EMBEDDED_CLUSTER in marks and urlsplit(server).hostname in LOOPBACK_HOSTS:
        return
    raise NoConnectionError(
        f"the stand-in kubernetes plugin works on embedded clusters only, and {server or 'this cluster'} is not one: "
        f"install the official plugin (pulumi plugin install resource kubernetes v{read_version()}), or set "
        f"{ANY_CLUSTER}=true. An embedded cluster that an earlier version started is marked by its next start "
        "(gpu-platform dev down, then dev up)"
    )


def write_kubeconfig(content: Json, workplace: Path) -> Path:
    # Credentials: for nobody else to read, which mkstemp sees to.
    descriptor, name = tempfile.mkstemp(dir=workplace, prefix="kubeconfig-")
    with os.fdopen(descriptor, "w") as file:
        yaml.safe_dump(content, file)
    return Path(name)


def _find_cluster(content: Json) -> Json:
    contexts = {entry["name"]: entry["context"] for entry in content.get("contexts") or []}
    wanted = contexts[content["current-context"]].get("cluster")
    found = [entry["cluster"] for entry in content.get("clusters") or [] if entry["name"] == wanted]
    return dict(found[0]) if found else {}


def _home_kubeconfig() -> str:
    path = Path.home() / ".kube" / "config"
    return str(path) if path.exists() else ""
