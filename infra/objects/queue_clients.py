"""Our processes as clients of NATS: what their settings say about it, and which Secrets they need for that."""

from dataclasses import dataclass, field
from typing import Any

from infra.objects.metadata import Json, app_labels
from infra.objects.nats import NAME, nats_url
from infra.sections import Nats

CREDENTIALS_DIRECTORY = "/etc/gpu-platform-nats"
AUTHORITY_DIRECTORY = "/etc/gpu-platform-nats-ca"

ENOUGH_REPLICAS = 3
"""Of a stream. More servers share the streams, and do not each have them all."""


@dataclass(frozen=True)
class QueueClient:
    settings: dict[str, Any] = field(default_factory=dict)
    secret: str | None = None
    authority_secret: str | None = None

    def build_volumes(self) -> list[Json]:
        # Readable by the pod's own group: the process is not root. Optional: units and stock are served without NATS.
        volumes: list[Json] = []
        if self.secret:
            secret: Json = {"secretName": self.secret, "defaultMode": 0o440, "optional": True}
            volumes.append({"name": "nats", "secret": secret})
        if self.authority_secret:
            # Of our own servers, this Secret has their key too.
            items = [{"key": "ca.crt", "path": "ca.crt"}]
            secret = {"secretName": self.authority_secret, "items": items, "defaultMode": 0o440, "optional": True}
            volumes.append({"name": "nats-ca", "secret": secret})
        return volumes

    def build_mounts(self) -> list[Json]:
        # Whole directories, not single files of them: those would stay as they were when the Secret is renewed.
        directories = {"nats": CREDENTIALS_DIRECTORY, "nats-ca": AUTHORITY_DIRECTORY}
        return [
            {"name": volume["name"], "mountPath": directories[volume["name"]], "readOnly": True}
            for volume in self.build_volumes()
        ]


NO_CLIENT = QueueClient()


def build_api_client(nats: Nats) -> QueueClient:
    url = _url_of(nats)
    if url is None:
        return NO_CLIENT
    return QueueClient(_common(nats, url), nats.api_secret, _authority_of(nats))


def build_reconciler_client(nats: Nats, image: str | None) -> QueueClient:
    """It also makes the workers' pods: their sidecar is in the platform's own image."""
    url = _url_of(nats)
    if url is None:
        return NO_CLIENT
    settings = {
        **_common(nats, url),
        "natsSigningKey": f"{CREDENTIALS_DIRECTORY}/signing.key",
        "natsSystemCredentials": f"{CREDENTIALS_DIRECTORY}/system.creds",
        "natsReplicas": min(nats.replicas, ENOUGH_REPLICAS),
        **({"natsEgressLabels": [f"{key}={value}" for key, value in app_labels(NAME).items()]} if nats.enabled else {}),
        **({"sidecarImage": image} if image else {}),
    }
    return QueueClient(settings, nats.reconciler_secret, _authority_of(nats))


def _common(nats: Nats, url: str) -> dict[str, Any]:
    authority = {"natsCA": f"{AUTHORITY_DIRECTORY}/ca.crt"} if _authority_of(nats) else {}
    return {"natsURL": url, "natsCredentials": f"{CREDENTIALS_DIRECTORY}/nats.creds", **authority}


def _url_of(nats: Nats) -> str | None:
    return nats_url() if nats.enabled else nats.url


def _authority_of(nats: Nats) -> str | None:
    return nats.ca_secret or (nats.tls_secret if nats.enabled else None)
