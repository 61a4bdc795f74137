"""Which Pulumi plugins a shell gets: our own, and for Kubernetes the official one where it is installed, else our
stand-in."""

import os
from collections.abc import Iterable
from pathlib import Path

import gpu_platform

NAME = "pulumi-resource-kubernetes"
INSTALLED = "resource-kubernetes-v*"

PROVIDERS = Path(gpu_platform.__file__).resolve().parents[1] / "providers"
STAND_IN = PROVIDERS / "kubernetes" / "bin"
"""The directory of the stand-in. It is a program to start, not a package to import."""

OWN_PLUGIN = PROVIDERS / "cluster" / "bin"
"""The directory of `pulumi-resource-gpuplatform`, for stacks of units that somebody works on by hand."""


def has_official_plugin(path_entries: Iterable[str], pulumi_home: Path) -> bool:
    """Whether the CLI would find one. It must: what is on PATH wins over what `pulumi plugin install` put away."""
    on_path = any(os.access(Path(entry) / NAME, os.X_OK) for entry in path_entries)
    return on_path or any((each / NAME).exists() for each in (pulumi_home / "plugins").glob(INSTALLED))
