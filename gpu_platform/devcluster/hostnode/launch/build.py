"""One container's process, decided: argv, environment, working directory. Pure.

The worker of a pod calls it before each start; nothing is read or written here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_platform.devcluster.hostnode.launch.directory import PodDirectory
from gpu_platform.devcluster.hostnode.launch.environment import build_environment
from gpu_platform.devcluster.hostnode.launch.errors import CannotStartError
from gpu_platform.devcluster.hostnode.launch.expansion import expand
from gpu_platform.devcluster.hostnode.launch.fields import NodeFacts
from gpu_platform.devcluster.hostnode.launch.rewriting import PathRewriter
from gpu_platform.devcluster.hostnode.names import CONTAINER_MARK, POD_MARK
from gpu_platform.devcluster.hostnode.processes.child import Command
from gpu_platform.devcluster.hostnode.sources import Sources
from gpu_platform.kube.client import Json

DEFAULT_TERMINATION_PATH = "/dev/termination-log"


@dataclass(frozen=True)
class Launch:
    command: Command
    rewriter: PathRewriter
    subpaths: tuple[Path, ...]
    """Directories that mounts with a `subPath` expect; a file that is there already is left alone."""

    def exec_command(self, argv: list[str]) -> Command:
        """A probe or hook in the container's surroundings."""
        argv = [self.rewriter.rewrite(text) for text in argv]
        return Command(tuple(argv), self.command.environment, self.command.directory)


def check_support(pod: Json, container: Json) -> None:
    """Refuse what this node cannot run, before anything is read for it."""
    if not container.get("command"):
        raise CannotStartError(
            f"this node runs commands, not images: give container {container['name']!r} a command, or let pod "
            f"{pod['metadata']['name']!r} be scheduled on another node",
            reason="ImagePullBackOff",
        )
    if "postStart" in (container.get("lifecycle") or {}):
        raise CannotStartError("the host node does not run postStart hooks")


def build_launch(
    pod: Json,
    container: Json,
    *,
    sources: Sources,
    facts: NodeFacts,
    directory: PodDirectory,
    inherited: Mapping[str, str],
) -> Launch:
    variables = build_environment(pod, container, sources, facts)
    mounts = _plan_mounts(pod, container, directory, variables)
    termination_path = container.get("terminationMessagePath") or DEFAULT_TERMINATION_PATH
    rewriter = PathRewriter(
        {mount.path: str(mount.real) for mount in mounts}
        | {termination_path: str(directory.termination_message(container["name"]))}
    )
    argv = [expand(text, variables) for text in [*container["command"], *(container.get("args") or [])]]
    working_directory = container.get("workingDir")
    command = Command(
        argv=tuple(rewriter.rewrite(text) for text in argv),
        environment={
            **inherited,
            "HOME": str(directory.home),
            "TMPDIR": str(directory.scratch),
            "HOSTNAME": pod["metadata"]["name"],
            **{name: rewriter.rewrite(value) for name, value in variables.items()},
            POD_MARK: pod["metadata"]["uid"],
            CONTAINER_MARK: f"{pod['metadata']['uid']}/{container['name']}",
        },
        directory=rewriter.rewrite(working_directory) if working_directory else str(directory.home),
    )
    return Launch(command, rewriter, tuple(mount.real for mount in mounts if mount.has_subpath))


@dataclass(frozen=True)
class _Mount:
    path: str
    real: Path
    has_subpath: bool


def _plan_mounts(
    pod: Json, container: Json, directory: PodDirectory, variables: Mapping[str, str]
) -> tuple[_Mount, ...]:
    mounts = []
    for mount in container.get("volumeMounts") or []:
        path = "/" + str(mount["mountPath"]).strip("/")
        if path == "/":
            raise CannotStartError("the host node has no mount namespace: nothing can be mounted at /")
        subpath = mount.get("subPath") or expand(mount.get("subPathExpr") or "", variables)
        mounts.append(_Mount(path, directory.volume(pod, mount["name"]) / subpath, bool(subpath)))
    return tuple(mounts)
