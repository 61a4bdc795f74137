"""From a pod's spec to the commands of its containers: environment, arguments and paths as the container would see
them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from gpu_platform.devcluster.hostnode.processes import CONTAINER_MARK, POD_MARK, Command
from gpu_platform.devcluster.hostnode.sources import (
    CannotStartError,
    NodeFacts,
    Reference,
    Sources,
    content_of,
    find_reference,
    read_field,
    read_resource,
)
from gpu_platform.devcluster.hostnode.volumes import PodDirectory
from gpu_platform.domain.json_text import Json

_REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^)]*)\))")
_PART_OF_A_LONGER_PATH_BEFORE = r"[\w.\-~/})\]*?\\]"
_PART_OF_A_LONGER_NAME_AFTER = r"[\w.\-~+@*?\[{$%]"
DEFAULT_TERMINATION_PATH = "/dev/termination-log"


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value and `$$` by `$`; a name that is not known stays as it is written."""

    def value_of(match: re.Match[str]) -> str:
        name = match["name"]
        return "$" if name is None else variables.get(name, match[0])

    return _REFERENCE.sub(value_of, text)


@dataclass(frozen=True)
class PathRewriter:
    directories: Mapping[str, str] = field(default_factory=dict)
    """From mount path to real path, both without a slash at the end."""

    def rewrite(self, text: str) -> str:
        """Rewrite once: real paths are never looked at again, also if a mount covers them."""
        if not self.directories:
            return text
        return self._pattern.sub(lambda match: self.directories[match[0]], text)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.directories, key=len, reverse=True)
        paths = "|".join(re.escape(path) for path in longest_first)
        return re.compile(
            rf"(?:(?<!{_PART_OF_A_LONGER_PATH_BEFORE})|(?<=://))(?:{paths})(?!{_PART_OF_A_LONGER_NAME_AFTER})"
        )


def build_environment(pod: Json, container: Json, sources: Sources, facts: NodeFacts) -> dict[str, str]:
    """`envFrom` first, then `env` in order; a later variable wins and may refer to the earlier ones."""
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        variables |= _bulk_variables(source, sources)
    for variable in container.get("env") or []:
        if "valueFrom" not in variable:
            variables[variable["name"]] = expand(variable.get("value") or "", variables)
        elif (value := _value_from(variable["valueFrom"], pod, container, sources, facts)) is not None:
            variables[variable["name"]] = value
    return variables


def _bulk_variables(source: Json, sources: Sources) -> Mapping[str, str]:
    prefix = source.get("prefix") or ""
    found = find_reference(source)
    if found is None:
        raise CannotStartError("an envFrom entry names neither a configMapRef nor a secretRef")
    # A key with "=" cannot be a variable's name; kubelet leaves such keys out as well.
    return {f"{prefix}{key}": _text(value) for key, value in content_of(*found, sources).items() if "=" not in key}


def _value_from(origin: Json, pod: Json, container: Json, sources: Sources, facts: NodeFacts) -> str | None:
    if reference := origin.get("fieldRef"):
        return read_field(pod, reference["fieldPath"], facts)
    if reference := origin.get("resourceFieldRef"):
        return read_resource(pod, container, reference, facts)
    if found := find_reference(origin):
        return _key_value(*found, sources)
    raise CannotStartError(f"the host node does not know the variable source {', '.join(origin)}")


def _key_value(reference: Reference, selector: Json, sources: Sources) -> str | None:
    content = content_of(reference, selector, sources)
    if selector["key"] in content:
        return _text(content[selector["key"]])
    if selector.get("optional"):
        return None
    raise CannotStartError(f"couldn't find key {selector['key']} in {reference.kind} {reference.name}")


def _text(value: bytes) -> str:
    return value.decode(errors="surrogateescape")


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
