"""Reads versions out of go.mod and requirements files, and out of what a program prints. Pure."""

import re

REQUIREMENT = re.compile(
    r"^\s*(?:require\s+)?(?P<module>[\w.~/-]+\.[\w.~/-]+)\s+(?P<version>v\d\S*)(?!.*=>)", re.MULTILINE
)
GO_DIRECTIVE = re.compile(r"^go\s+(?P<version>\d+\.\d+(?:\.\d+)?)\s*$", re.MULTILINE)
GO_RELEASE = re.compile(r"go(?P<version>\d+\.\d+(?:\.\d+)?)")
PRINTED_VERSION = re.compile(r"(?<![\w.])v?(?P<version>\d+\.\d+\.\d+[-+.\w]*)")


def parse_required_versions(go_mod: str) -> dict[str, str]:
    """Module path to version, of every `require` line; `replace` lines have an arrow and do not match."""
    return {found["module"]: found["version"] for found in REQUIREMENT.finditer(go_mod)}


def find_package_version(go_mod: str, package: str) -> str | None:
    """The version of the module that holds the package: the longest module path that leads to it."""
    versions = parse_required_versions(go_mod)
    holders = [module for module in versions if f"{package}/".startswith(f"{module}/")]
    return versions[max(holders, key=len)] if holders else None


def parse_go_directive(go_mod: str) -> tuple[int, ...]:
    """The lowest Go release that builds this module."""
    found = GO_DIRECTIVE.search(go_mod)
    return _numbers(found["version"]) if found else (0,)


def parse_go_release(printed: str) -> tuple[int, ...] | None:
    """`go1.26.8` to (1, 26, 8); None for release candidates and development builds."""
    found = GO_RELEASE.fullmatch(printed.strip())
    return _numbers(found["version"]) if found else None


def parse_printed_version(printed: str) -> str | None:
    """The first version a program prints, without the leading `v`; a suffix such as `+k3s1` belongs to it."""
    found = PRINTED_VERSION.search(printed)
    return found["version"] if found else None


def find_pinned_version(requirements: str, package: str) -> str | None:
    """The version that a requirements file pins with `==`."""
    found = re.search(rf"^{re.escape(package)}==(?P<version>[^\s;\\]+)", requirements, re.MULTILINE)
    return found["version"] if found else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))
