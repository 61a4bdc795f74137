"""Which real parts there are, how each is built, and under which name it is cached. Runs nothing.

The table has no versions: those are in `tools/*/go.mod` and `requirements/*.txt` only.
"""

import hashlib
import json
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu_platform.devcluster import DevClusterError

REPOSITORY = Path(__file__).resolve().parents[3]
TOOLS = REPOSITORY / "tools"
GO_REQUIREMENTS = REPOSITORY / "requirements" / "go.txt"
PYTHON_REQUIREMENTS = REPOSITORY / "requirements" / "dev.txt"


@dataclass(frozen=True)
class Binary:
    """An executable, the Go package it is, and how it tells its version."""

    name: str
    package: str
    version_arguments: tuple[str, ...] | None = ("--version",)
    """None: it cannot tell; it fits when it lies beside a sibling of the same part that can."""


@dataclass(frozen=True)
class Script:
    """A plain file of a Go module that must lie beside the binaries."""

    module: str
    path: str

    @property
    def name(self) -> str:
        return Path(self.path).name


@dataclass(frozen=True)
class GoModule:
    """A folder with go.mod and go.sum, built by one `go build`."""

    folder: Path
    binaries: tuple[Binary, ...]
    stamps: tuple[tuple[str, str], ...] = ()
    """Go string variables set by the linker; the values may name {version}, {major} and {minor}."""
    scripts: tuple[Script, ...] = ()


@dataclass(frozen=True)
class Part:
    """Files that are built, cached and taken from PATH together, in one directory."""

    name: str
    modules: tuple[GoModule, ...]

    @property
    def binaries(self) -> tuple[Binary, ...]:
        return tuple(binary for module in self.modules for binary in module.binaries)

    @property
    def file_names(self) -> tuple[str, ...]:
        scripts = (script.name for module in self.modules for script in module.scripts)
        return (*(binary.name for binary in self.binaries), *scripts)


PULUMI_SDK = "github.com/pulumi/pulumi/sdk/v3"
PULUMI_STAMPS = ((f"{PULUMI_SDK}/go/common/version.Version", "{version}"),)
KUBERNETES_STAMPS = (
    ("k8s.io/component-base/version.gitVersion", "{version}"),
    ("k8s.io/component-base/version.gitMajor", "{major}"),
    ("k8s.io/component-base/version.gitMinor", "{minor}"),
)

# Longest build first: with two at once, the short ones fill the gap at the end.
PARTS = (
    Part(
        "kubernetes",
        (
            GoModule(
                TOOLS / "kubernetes",
                tuple(
                    Binary(name, f"k8s.io/kubernetes/cmd/{name}")
                    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
                ),
                stamps=KUBERNETES_STAMPS,
            ),
        ),
    ),
    Part(
        "pulumi",
        (
            GoModule(
                TOOLS / "pulumi",
                (Binary("pulumi", "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi", ("version",)),),
                stamps=PULUMI_STAMPS,
                scripts=(
                    Script(PULUMI_SDK, "python/cmd/pulumi-language-python-exec"),
                    Script(PULUMI_SDK, "python/dist/pulumi-resource-pulumi-python"),
                ),
            ),
            GoModule(
                TOOLS / "pulumi-language-python",
                (
                    Binary(
                        "pulumi-language-python",
                        f"{PULUMI_SDK}/python/cmd/pulumi-language-python",
                        version_arguments=None,
                    ),
                ),
                stamps=PULUMI_STAMPS,
            ),
        ),
    ),
    Part(
        "kubectl",
        (
            GoModule(
                TOOLS / "kubectl",
                (Binary("kubectl", "k8s.io/kubernetes/cmd/kubectl", ("version", "--client")),),
                stamps=KUBERNETES_STAMPS,
            ),
        ),
    ),
    Part(
        "kwok",
        (
            GoModule(
                TOOLS / "kwok",
                (Binary("kwok", "sigs.k8s.io/kwok/cmd/kwok"),),
                stamps=(("sigs.k8s.io/kwok/pkg/consts.Version", "{version}"),),
            ),
        ),
    ),
    Part("etcd", (GoModule(TOOLS / "etcd", (Binary("etcd", "go.etcd.io/etcd/server/v3"),)),)),
)

REQUIREMENT = re.compile(
    r"^\s*(?:require\s+)?(?P<module>[\w.~/-]+\.[\w.~/-]+)\s+(?P<version>v\d\S*)(?!.*=>)", re.MULTILINE
)

GO_DIRECTIVE = re.compile(r"^go\s+(?P<version>\d+\.\d+(?:\.\d+)?)\s*$", re.MULTILINE)
GO_RELEASE = re.compile(r"go(?P<version>\d+\.\d+(?:\.\d+)?)")
PRINTED_VERSION = re.compile(r"(?<![\w.])v?(?P<version>\d+\.\d+\.\d+[-+.\w]*)")
GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

# Where modules come from and where Go keeps them is the user's choice; everything else is ours.
USER_GO_VARIABLES = frozenset(
    {
        "GOAUTH",
        "GOCACHE",
        "GOENV",
        "GOINSECURE",
        "GOMODCACHE",
        "GONOPROXY",
        "GONOSUMDB",
        "GOPATH",
        "GOPRIVATE",
        "GOPROXY",
        "GOSUMDB",
        "GOVCS",
    }
)


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


@dataclass(frozen=True)
class GoBuild:
    """One `go build`, apart from where its output goes."""

    folder: Path
    arguments: tuple[str, ...]
    packages: tuple[str, ...]
    output_name: str | None
    """None: several binaries, which Go names after their packages."""
    scripts: tuple[Script, ...]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the bytes of a built part."""

    part: Part
    versions: Mapping[str, str]
    """By binary, without the leading `v`."""
    environment: Mapping[str, str]
    builds: tuple[GoBuild, ...]
    minimum_go: tuple[int, ...]
    digests: tuple[str, ...]
    """Of the go.mod and go.sum of each module."""

    @property
    def version(self) -> str:
        return self.versions[self.part.binaries[0].name]

    def entry_name(self, go_version: str) -> str:
        """The same name means the same bytes: pins, flags, platform and Go release are all in it."""
        ingredients = {
            "go": go_version,
            "environment": dict(self.environment),
            "builds": [asdict(build) | {"folder": build.folder.name} for build in self.builds],
            "digests": self.digests,
        }
        key = hashlib.sha256(json.dumps(ingredients, sort_keys=True).encode()).hexdigest()
        return f"{self.part.name}-{self.version}-{key[:16]}"


def read_recipe(part: Part) -> Recipe:
    try:
        return _read_recipe(part)
    except FileNotFoundError as error:
        raise DevClusterError(
            f"{error.filename} is missing: the parts are built from a checkout of the repository, into which the "
            "package is installed with pip install --editable."
        ) from error


def _read_recipe(part: Part) -> Recipe:
    go_mods = {module.folder: (module.folder / "go.mod").read_text() for module in part.modules}
    versions = {
        binary.name: _package_version(module, go_mods[module.folder], binary.package)
        for module in part.modules
        for binary in module.binaries
    }
    return Recipe(
        part=part,
        versions={name: version.removeprefix("v") for name, version in versions.items()},
        environment=build_environment(sys.platform, platform.machine()),
        builds=tuple(plan_build(module, versions[module.binaries[0].name]) for module in part.modules),
        minimum_go=max(parse_go_directive(go_mod) for go_mod in go_mods.values()),
        digests=tuple(_digest(module.folder / name) for module in part.modules for name in ("go.mod", "go.sum")),
    )


def plan_build(module: GoModule, version: str) -> GoBuild:
    major, minor, *_ = version.removeprefix("v").split(".")
    stamps = [
        f"-X {variable}={value.format(version=version, major=major, minor=minor)}" for variable, value in module.stamps
    ]
    return GoBuild(
        folder=module.folder,
        arguments=("-v", "-trimpath", "-buildvcs=false", f"-ldflags={' '.join(['-s', '-w', *stamps])}"),
        packages=tuple(binary.package for binary in module.binaries),
        output_name=module.binaries[0].name if len(module.binaries) == 1 else None,
        scripts=module.scripts,
    )


def build_environment(system: str, machine: str) -> dict[str, str]:
    """The Go variables that we fix, so that neither shell nor `go env -w` changes what is built."""
    return {
        "CGO_ENABLED": "0",
        "GOARCH": GO_ARCHITECTURES.get(machine, machine),
        "GOFLAGS": "-mod=readonly",
        "GOOS": system,
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def clean_environment(inherited: Mapping[str, str], fixed: Mapping[str, str]) -> dict[str, str]:
    """The inherited environment without the Go variables that could change the build, plus the fixed ones."""
    kept = {
        name: value
        for name, value in inherited.items()
        if name in USER_GO_VARIABLES or not name.startswith(("GO", "CGO_"))
    }
    return kept | dict(fixed)


def _package_version(module: GoModule, go_mod: str, package: str) -> str:
    version = find_package_version(go_mod, package)
    if version is None:
        raise DevClusterError(f"{module.folder / 'go.mod'} requires no module that holds {package}: restore the file.")
    return version


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
