"""Which version of the official plugin we stand in for: the one that the installed SDK asks for."""

from importlib import metadata

SDK = "pulumi-kubernetes"
OLDEST = "4.0.0"
"""Said where the SDK is not installed, for example by a program in another language."""


def read_version() -> str:
    try:
        return metadata.version(SDK)
    except metadata.PackageNotFoundError:
        return OLDEST
