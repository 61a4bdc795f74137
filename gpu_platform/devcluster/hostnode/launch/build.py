"""One container's process, decided: argv, environment, working directory. Pure.

The worker of a pod calls it before each start; nothing is read or written here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_platform.adapters.kube.client import Json
from gpu_platform.devcluster.hostnode.launch.directory import PodDirectory
from gpu_platform.devcluster.hostnode.launch.environment import build_environment
from gpu_platform.devcluster.hostnode.launch.errors import CannotStartError
from gpu_platform.devcluster.hostnode.launch.expansion import expand
from gpu_platform.devcluster.hostnode.launch.fields import NodeFacts
from gpu_platform.devcluster.hostnode.launch.rewriting import PathRewriter
from gpu_platform.devcluster.hostnode.launch.sources import Sources
from gpu_platform.devcluster.hostnode.names import CONTAINER_VARIABLE, POD_VARIABLE
from gpu_platform.devcluster.hostnode.processes.child import Command

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


def build_launch(
    pod: Json,
    container: Json,
    *,
    sources: Sources,
    facts: NodeFacts,
    directory: PodDirectory,
    inherited: Mapping[str, str],
) -> Launch:
    _check_support(pod, container)
    variables = build_environment(pod, container, sources, facts)
    mounts = _plan_mounts(pod, container, directory, variables)
    termination_path = container.get("terminationMessagePath") or DEFAULT_TERMINATION_PATH
    rewriter = PathRewriter(
        {path: str(real) for path, real in mounts.items()}
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
            POD_VARIABLE: pod["metadata"]["uid"],
            CONTAINER_VARIABLE: container["name"],
        },
        directory=rewriter.rewrite(working_directory) if working_directory else str(directory.home),
    )
    subpaths = (real for path, real in mounts.items() if _has_subpath(container, path))
    return Launch(command, rewriter, tuple(subpaths))


def _check_support(pod: Json, container: Json) -> None:
    if not container.get("command"):
        raise CannotStartError(
            f"this node runs commands, not images: give container {container['name']!r} a command, or let pod "
            f"{pod['metadata']['name']!r} be scheduled on another node",
            reason="ImagePullBackOff",
        )
    if "postStart" in (container.get("lifecycle") or {}):
        raise CannotStartError("the host node does not run postStart hooks")


def _plan_mounts(
    pod: Json, container: Json, directory: PodDirectory, variables: Mapping[str, str]
) -> dict[str, Path]:
    mounts = {}
    for mount in container.get("volumeMounts") or []:
        path = _mount_path(mount)
        if path == "/":
            raise CannotStartError("the host node has no mount namespace: nothing can be mounted at /")
        subpath = mount.get("subPath") or expand(mount.get("subPathExpr") or "", variables)
        mounts[path] = directory.volume(pod, mount["name"]) / subpath
    return mounts


def _has_subpath(container: Json, path: str) -> bool:
    return any(
        _mount_path(mount) == path and (mount.get("subPath") or mount.get("subPathExpr"))
        for mount in container["volumeMounts"]
    )


def _mount_path(mount: Json) -> str:
    return "/" + str(mount["mountPath"]).strip("/")
