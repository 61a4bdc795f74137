"""Our custom resource definitions, created before kube-controller-manager starts.

Its quota controller and its garbage collector learn of kinds when they start, and then every 30 s; the quota controller
counts objects of a kind that it learned of later only with its next full pass. Where `dev up` bootstraps the platform,
the definitions are there before: tenants' objects are counted from the start. The bootstrap takes them over.
"""

import asyncio
import hashlib
import logging
import time

import aiohttp

from gpu_platform.devcluster.credentials import admin_tls
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.record import ClusterRecord
from gpu_platform.domain.crds import build_crds
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import GROUP
from gpu_platform.kube import KubeClient, KubeError, NotFoundError, PatchType, ResourcePath, open_client

log = logging.getLogger(__name__)

DEFINITIONS = ResourcePath("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)

URN = (
    "urn:pulumi:dev::gpu-platform::gpu-platform:infra:CustomResourceDefinitions"
    "$kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition::"
)
"""Of a definition in the stack `dev`, before its name."""

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""What kube-controller-manager asks for."""

SECONDS = 30.0
"""For all of it, which takes about one; chosen by feel. After that the cluster starts without."""

POLL_SECONDS = 0.05


async def ensure_definitions(directory: ClusterDirectory, record: ClusterRecord) -> None:
    """Creates the definitions that are missing, and waits until their kinds are discovered."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            async with await open_client(directory.kubeconfig) as kube:
                await asyncio.gather(*(ensure_definition(kube, definition) for definition in build_crds()))
            if await _are_discovered(directory, record):
                return
        except (KubeError, aiohttp.ClientError, TimeoutError) as error:
            log.debug("definitions: %s", error)
        await asyncio.sleep(POLL_SECONDS)
    log.warning("the custom resource definitions are not served after %.0f s; the bootstrap creates them", SECONDS)


def field_manager(name: str) -> str:
    """Returns the field manager of the bootstrap's own resource, so that the bootstrap owns all fields alone."""
    return f"pulumi-kubernetes-{hashlib.sha256(f'{URN}{name}'.encode()).hexdigest()[:10]}"


async def ensure_definition(kube: KubeClient, definition: Json) -> None:
    """Creates a definition that is missing; leaves one that exists as it is: to change it is up to the bootstrap.

    With the official plugin the bootstrap has another field manager. Ours ends then, because a field of two managers
    outlives its removal by one of them, and each refuses the other's changes.
    """
    name = definition["metadata"]["name"]
    manager = field_manager(name)
    try:
        live = await kube.get(DEFINITIONS.item(name))
    except NotFoundError:
        applied = definition
    else:
        if not is_taken_over(live, manager):
            return
        applied = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": {"name": name}}
    await kube.patch(DEFINITIONS.item(name), applied, PatchType.APPLY, {"fieldManager": manager})


def is_taken_over(live: Json, manager: str) -> bool:
    """Whether another field manager has applied the whole definition besides this one."""
    managers = {
        entry["manager"]
        for entry in live["metadata"].get("managedFields") or []
        if entry["operation"] == "Apply" and "f:versions" in entry["fieldsV1"].get("f:spec", {})
    }
    return manager in managers and len(managers) > 1


async def _are_discovered(directory: ClusterDirectory, record: ClusterRecord) -> bool:
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout, headers={"Accept": AGGREGATED}) as session,
        session.get(f"{record.api_server_url}/apis", ssl=admin_tls(directory)) as response,
    ):
        groups = (await response.json(content_type=None)).get("items", [])
    wanted = {definition["spec"]["names"]["plural"] for definition in build_crds()}
    return wanted <= {
        resource["resource"]
        for group in groups
        if group["metadata"]["name"] == GROUP
        for version in group["versions"]
        for resource in version.get("resources", [])
    }
