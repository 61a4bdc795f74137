"""From what a program says about its cluster to a kubeconfig file."""

import os
import tempfile
from pathlib import Path
from typing import Any

import yaml

from gpu_platform.adapters.kube import NoConnectionError
from providers.kubernetes.configuration import Configuration

Json = dict[str, Any]

FILE_FIELDS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def is_content(said: str) -> bool:
    return "\n" in said or said.lstrip().startswith("{")


def find_kubeconfig(configuration: Configuration, workplace: Path) -> Path | None:
    """The file to use; None means the pod's own account. What has to be written goes into `workplace`."""
    said = configuration.kubeconfig
    if is_content(said):
        return _written(build_kubeconfig(said, configuration, Path.cwd()), workplace)
    source = said or os.environ.get("KUBECONFIG", "") or _home_kubeconfig()
    if not source:
        return None
    path = Path(source).expanduser()
    if os.pathsep not in source and not path.exists():
        raise NoConnectionError(f"the kubeconfig {source} does not exist")
    if not configuration.context and not configuration.cluster:
        return path
    try:
        return _written(build_kubeconfig(path.read_text(), configuration, path.parent), workplace)
    except OSError as error:
        raise NoConnectionError(f"the kubeconfig {source} cannot be used: {error}") from error


def build_kubeconfig(text: str, configuration: Configuration, directory: Path) -> str:
    """The same with the wanted context as the current one, and with file names that hold anywhere."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise NoConnectionError(f"the input `kubeconfig` is neither a path nor a kubeconfig: {error}") from error
    if not isinstance(content, dict):
        raise NoConnectionError("the input `kubeconfig` is neither a path nor a kubeconfig")
    if configuration.context:
        content["current-context"] = configuration.context
    for entry in content.get("contexts") or []:
        if configuration.cluster and entry.get("name") == content.get("current-context"):
            entry["context"]["cluster"] = configuration.cluster
    for entry in [*(content.get("clusters") or []), *(content.get("users") or [])]:
        inner = entry.get("cluster") or entry.get("user") or {}
        for field in FILE_FIELDS:
            if field in inner:
                inner[field] = str(directory / inner[field])
    return yaml.safe_dump(content)


def _written(text: str, workplace: Path) -> Path:
    # Credentials: for nobody else to read, which mkstemp sees to.
    descriptor, name = tempfile.mkstemp(dir=workplace, prefix="kubeconfig-")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return Path(name)


def _home_kubeconfig() -> str:
    path = Path.home() / ".kube" / "config"
    return str(path) if path.exists() else ""
