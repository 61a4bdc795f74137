"""What a pod's spec refers to: config maps, secrets, tokens, PVCs, and by the downward API the pod itself."""

import asyncio
import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Literal

from gpu_platform.devcluster.hostnode.node import HOST_ADDRESS
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.quantities import parse_quantity
from gpu_platform.kube import KubeClient, KubeError, NotFoundError
from gpu_platform.kube.paths import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, SECRETS, SERVICE_ACCOUNTS

DEFAULT_TOKEN_SECONDS = 3600
"""As Kubernetes defaults a projected token."""

TOKEN_RENEWAL_SHARE = 0.8
"""A token is renewed after this share of its life, as kubelet does."""

LAG_SECONDS = (0.05, 0.2)
"""Between attempts. A node may read for the pods that the API server knows to be there; what the watch told us a
moment ago may be news to the authorizer (403) and to the issuer of tokens (404)."""

Content = Mapping[str, bytes]
CLAIM_PATH = "path"
_MAP_ENTRY = re.compile(r"metadata\.(?P<map>labels|annotations)\['(?P<key>[^']+)'\]")


class CannotStartError(Exception):
    """The container waits with this reason and message, and is tried again later."""

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class Reference:
    kind: Literal["ConfigMap", "Secret", "Token", "Claim"]
    name: str
    """Of a token: its audience, empty for that of the API server."""
    seconds: int = 0


Sources = Mapping[Reference, Content | None]
"""`None` for an object that does not exist. A token is under the key `token`, a claim's directory under `path`."""


def config_map(name: str) -> Reference:
    return Reference("ConfigMap", name)


def secret(name: str) -> Reference:
    return Reference("Secret", name)


def claim(name: str) -> Reference:
    return Reference("Claim", name)


def token(projection: Json) -> Reference:
    seconds = int(projection.get("expirationSeconds") or DEFAULT_TOKEN_SECONDS)
    return Reference("Token", projection.get("audience") or "", seconds)


def content_of(reference: Reference, selector: Json, sources: Sources) -> Content:
    """Returns what an object holds; nothing for one that is optional and does not exist."""
    content = sources.get(reference)
    if content is None and not selector.get("optional"):
        raise CannotStartError(f'{reference.kind.lower()} "{reference.name}" not found')
    return content or {}


REFERENCES: Mapping[str, Callable[[Json], Reference]] = {
    "configMap": lambda selector: config_map(selector["name"]),
    "configMapKeyRef": lambda selector: config_map(selector["name"]),
    "configMapRef": lambda selector: config_map(selector["name"]),
    "persistentVolumeClaim": lambda selector: claim(selector["claimName"]),
    # A volume says `secretName`, everything else `name`.
    "secret": lambda selector: secret(selector.get("secretName") or selector["name"]),
    "secretKeyRef": lambda selector: secret(selector["name"]),
    "secretRef": lambda selector: secret(selector["name"]),
    "serviceAccountToken": token,
}


def find_reference(source: Json) -> tuple[Reference, Json] | None:
    """Returns what a volume, a part of a projected one, an `envFrom` or a `valueFrom` refers to, with its selector."""
    return next(((build(source[key]), source[key]) for key, build in REFERENCES.items() if key in source), None)


def find_env_references(container: Json) -> frozenset[Reference]:
    variables = [variable.get("valueFrom") or {} for variable in container.get("env") or []]
    return _collect([*(container.get("envFrom") or []), *variables])


def find_volume_references(pod: Json) -> frozenset[Reference]:
    volumes = pod["spec"].get("volumes") or []
    parts = [part for volume in volumes for part in (volume.get("projected") or {}).get("sources") or []]
    return _collect([*volumes, *parts])


def _collect(sources: Iterable[Json]) -> frozenset[Reference]:
    return frozenset(found[0] for source in sources if (found := find_reference(source)))


class SourceReader:
    """Reads for one pod, and keeps its tokens until they are due for renewal."""

    def __init__(self, client: KubeClient, pod: Json) -> None:
        self._client = client
        self._metadata = pod["metadata"]
        self._service_account = pod["spec"].get("serviceAccountName") or "default"
        self._tokens: dict[Reference, tuple[Content, datetime]] = {}

    async def read(self, references: Iterable[Reference], now: datetime) -> Sources:
        wanted = tuple(references)
        try:
            contents = await asyncio.gather(*(self._read(reference, now) for reference in wanted))
        except KubeError as error:
            raise CannotStartError(f"the API server does not give what the pod refers to: {error}") from error
        return dict(zip(wanted, contents, strict=True))

    async def _read(self, reference: Reference, now: datetime) -> Content | None:
        for pause in LAG_SECONDS:
            try:
                return await self._ask(reference, now)
            except KubeError as error:
                if not _may_be_lag(reference, error):
                    raise
            await asyncio.sleep(pause)
        return await self._ask(reference, now)

    async def _ask(self, reference: Reference, now: datetime) -> Content | None:
        namespace = self._metadata["namespace"]
        try:
            match reference.kind:
                case "Token":
                    return await self._token(reference, now)
                case "ConfigMap":
                    path = CONFIG_MAPS.item(reference.name, namespace)
                    return _config_map_content(await self._client.get(path))
                case "Secret":
                    path = SECRETS.item(reference.name, namespace)
                    return _decode((await self._client.get(path)).get("data"))
                case "Claim":
                    return await self._claim(reference.name)
        except NotFoundError:
            if reference.kind == "Token":
                raise
            return None

    async def _claim(self, name: str) -> Content:
        found = await self._client.get(PERSISTENT_VOLUME_CLAIMS.item(name, self._metadata["namespace"]))
        if (found.get("status") or {}).get("phase") != "Bound":
            raise CannotStartError(f"claim {name!r} is not bound to a volume yet")
        volume = await self._client.get(PERSISTENT_VOLUMES.item(found["spec"]["volumeName"]))
        if "hostPath" not in volume["spec"]:
            raise CannotStartError(f"claim {name!r} has a volume that is no directory of this machine")
        return {CLAIM_PATH: os.fsencode(volume["spec"]["hostPath"]["path"])}

    async def _token(self, reference: Reference, now: datetime) -> Content:
        known = self._tokens.get(reference)
        if known and now < known[1]:
            return known[0]
        namespace, name, uid = (self._metadata[key] for key in ("namespace", "name", "uid"))
        answer = await self._client.create(
            SERVICE_ACCOUNTS.item(self._service_account, namespace, "token"),
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {
                    "audiences": [reference.name] if reference.name else None,
                    "expirationSeconds": reference.seconds,
                    "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid},
                },
            },
        )
        content = {"token": answer["status"]["token"].encode()}
        renewal = timedelta(seconds=answer["spec"]["expirationSeconds"] * TOKEN_RENEWAL_SHARE)
        self._tokens[reference] = (content, now + renewal)
        return content


def _may_be_lag(reference: Reference, error: KubeError) -> bool:
    return error.status == 403 or (error.status == 404 and reference.kind == "Token")


def _config_map_content(found: Json) -> Content:
    texts = {key: value.encode() for key, value in (found.get("data") or {}).items()}
    return texts | _decode(found.get("binaryData"))


def _decode(data: Mapping[str, str] | None) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (data or {}).items()}


def count_in(quantity: str, divisor: str) -> int:
    """How often the divisor fits, rounded up; a divisor of 0 means 1."""
    unit = parse_quantity(divisor) or Decimal(1)
    return int((parse_quantity(quantity) / unit).to_integral_value(ROUND_CEILING))


@dataclass(frozen=True)
class NodeFacts:
    """What a pod learns from its node rather than from its own object."""

    address: str
    """The pod's real address: the one that its processes can bind."""
    allocatable: Mapping[str, str]
    """The limits of a container that names none."""


def read_field(pod: Json, field_path: str, facts: NodeFacts) -> str:
    metadata, spec = pod["metadata"], pod["spec"]
    if entry := _MAP_ENTRY.fullmatch(field_path):
        return str((metadata.get(entry["map"]) or {}).get(entry["key"], ""))
    match field_path:
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(metadata[field_path.removeprefix("metadata.")])
        case "metadata.labels" | "metadata.annotations":
            return _format_map(metadata.get(field_path.removeprefix("metadata.")) or {})
        case "spec.nodeName":
            return str(spec["nodeName"])
        case "spec.serviceAccountName":
            return str(spec.get("serviceAccountName", "default"))
        case "status.podIP" | "status.podIPs":
            return facts.address
        case "status.hostIP" | "status.hostIPs":
            return HOST_ADDRESS
    raise CannotStartError(f"the host node does not know the field {field_path!r}")


def read_resource(pod: Json, container: Json, reference: Json, facts: NodeFacts) -> str:
    """A `resourceFieldRef`; in a volume it names its container, in a variable it means the variable's own."""
    name = reference.get("containerName") or container.get("name")
    spec = pod["spec"]
    owner = next((c for c in [*spec["containers"], *spec.get("initContainers", [])] if c["name"] == name), container)
    section, _, resource = str(reference["resource"]).partition(".")
    amounts = (owner.get("resources") or {}).get(section) or {}
    fallback = facts.allocatable.get(resource, "0") if section == "limits" else "0"
    return str(count_in(str(amounts.get(resource, fallback)), str(reference.get("divisor") or "1")))


def _format_map(entries: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(entries.items()))
