"""Which real parts there are and what each is built from: one table, no versions.

Versions live in `tools/*/go.mod` and `requirements/*.txt` only; `pins` reads them.
"""

from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
TOOLS = REPOSITORY / "tools"
GO_REQUIREMENTS = REPOSITORY / "requirements" / "go.txt"
RUNTIME_REQUIREMENTS = REPOSITORY / "requirements" / "runtime.txt"


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
