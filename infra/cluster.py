"""The one cluster that the program changes: the one that the stack's settings name, never the current context."""

import asyncio
import inspect
import json
import os
import re
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi.runtime import config as runtime_config

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeError, NoConnectionError, NotFoundError, open_client
from infra.components.workloads import SERVICE_MONITOR
from infra.settings import SettingsError, list_values

SECTION = "kubernetes"
"""Pulumi's own namespace for the settings of this provider. One that a program declares does not read it by itself."""

CHECK_SECONDS = 30.0
HOME_KUBECONFIG = Path("~/.kube/config")


def read_cluster() -> Json:
    """The arguments of the provider, as the stack's settings have them. Raises SettingsError."""
    return parse_cluster(list_values(SECTION))


def parse_cluster(values: Mapping[str, str]) -> Json:
    """From the settings `kubernetes:…` to the provider's arguments.

    | setting | becomes |
    |---|---|
    | `context` | required |
    | `enableSecretMutable` | true unless set: a changed API key updates the Secret instead of replacing it |
    | `cluster` | refused: the context names the cluster |
    | any other argument of the provider | as it is |
    """
    known = _list_arguments()
    for key in values:
        if key == "cluster" or key not in known:
            there = ", ".join(sorted(set(known) - {"cluster"}))
            raise SettingsError(f"{SECTION}:{key} is not a setting here; there are: {there}")
    if not values.get("context"):
        raise SettingsError(
            f"{SECTION}:context is missing; name the context of this stack's cluster in your kubeconfig "
            f"(kubectl config get-contexts): pulumi config set {SECTION}:context NAME"
        )
    arguments = {known[key].name: _parse_value(known[key], key, text) for key, text in values.items()}
    return {"enable_secret_mutable": True, **arguments}


def declare_cluster(arguments: Mapping[str, Any]) -> kubernetes.Provider:
    """The provider of every object. Going from the default provider to this one replaces nothing: Pulumi asks the
    plugin whether the settings of both mean the same cluster, and only another `clusterIdentifier` or the content of
    another kubeconfig would say no."""
    marked: Any = {
        name: pulumi.Output.secret(value) if runtime_config.is_config_secret(f"{SECTION}:{_camel(name)}") else value
        for name, value in arguments.items()
    }

    def leave_environment_out(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult:
        """The SDK takes KUBECONFIG and every PULUMI_K8S_… into the provider's arguments, and so into the state: a path
        that holds on one machine, or a switch that was meant for one run. The plugin reads them by itself."""
        kept = {name: value if name in arguments else None for name, value in args.props.items()}
        return pulumi.ResourceTransformationResult(kept, args.opts)

    options = pulumi.ResourceOptions(transformations=[leave_environment_out])
    return kubernetes.Provider("cluster", options, **marked)


def check_service_monitors(arguments: Mapping[str, Any], setting: str) -> None:
    """Raises SettingsError, before anything is declared, if the cluster lacks the kind that `setting` wants."""
    api_version, kind = SERVICE_MONITOR
    # Pulumi's own event loop runs the program.
    with ThreadPoolExecutor(1) as elsewhere:
        is_served = elsewhere.submit(lambda: asyncio.run(_serves(arguments, api_version, kind))).result()
    if not is_served:
        raise SettingsError(
            f"{setting} is true, and the cluster of the context {arguments['context']!r} has no kind {kind} "
            f"({api_version}): install the Prometheus Operator, which defines it, or set it to false"
        )


async def _serves(arguments: Mapping[str, Any], api_version: str, kind: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="gpu-platform-") as directory:
        file = _find_kubeconfig(arguments.get("kubeconfig", ""), Path(directory))
        try:
            async with await open_client(file, context=arguments["context"]) as client:
                answer = await client.get(f"/apis/{api_version}", timeout=CHECK_SECONDS)
        except NotFoundError:
            return False
        except (NoConnectionError, KubeError) as error:
            raise SettingsError(f"{SECTION}:context is {arguments['context']!r}, and its cluster: {error}") from error
    return any(each["kind"] == kind for each in answer["resources"])


def _find_kubeconfig(said: str, directory: Path) -> Path | None:
    """The file to read; None means the one of KUBECONFIG. The setting may be a path or the content itself."""
    if "\n" in said or said.lstrip().startswith("{"):
        file = directory / "kubeconfig"
        file.touch(mode=0o600)
        file.write_text(said)
        return file
    if said:
        return Path(said).expanduser()
    home = HOME_KUBECONFIG.expanduser()
    return home if home.exists() and "KUBECONFIG" not in os.environ else None


def _list_arguments() -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(kubernetes.ProviderArgs.__init__).parameters
    return {_camel(name): each for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY}


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def _parse_value(parameter: inspect.Parameter, key: str, text: str) -> Any:
    """Pulumi hands every value over as text; the type of the SDK's own argument says what it is."""
    wanted = get_args(parameter.annotation)[0]
    if wanted is str:
        return text
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, bool if wanted is bool else dict):
        form = "true or false" if wanted is bool else "a section with keys of its own"
        raise SettingsError(f"{SECTION}:{key} is {text!r}, and should be {form}")
    return value
