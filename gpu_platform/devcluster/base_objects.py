"""What the platform's processes need before they start: custom resources, namespaces, priorities, GPU specs, a key."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gpu_platform.adapters.kube import KubeClient, PatchType, ResourcePath, open_client
from gpu_platform.adapters.kube.paths import GPU_SPECS, NAMESPACES, SECRETS
from gpu_platform.devcluster.errors import DevClusterError
from gpu_platform.domain.api_keys import KEYS_SECRET, KeyRecord, hash_secret, split_key
from gpu_platform.domain.conditions import is_true
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.tenants import DEFAULT_TENANT, Role

REPOSITORY = Path(__file__).resolve().parents[2]
CRD_FILES = REPOSITORY / "infra" / "crds"
BASE_FILE = REPOSITORY / "config" / "dev" / "base.yaml"

CRDS = ResourcePath("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
PRIORITY_CLASSES = ResourcePath("scheduling.k8s.io/v1", "priorityclasses", namespaced=False)
KINDS = {
    "CustomResourceDefinition": CRDS,
    "GPUSpec": GPU_SPECS,
    "Namespace": NAMESPACES,
    "PriorityClass": PRIORITY_CLASSES,
    "Secret": SECRETS,
}
MANAGER = {"fieldManager": "gpu-platform-dev", "force": "true"}
ESTABLISHED_SECONDS = 30.0
POLL_SECONDS = 0.05


async def apply_base_objects(kubeconfig: Path, api_key: str) -> None:
    """Idempotent; returns when the API server serves the custom resources."""
    crds = [yaml.safe_load(path.read_text()) for path in sorted(CRD_FILES.glob("*.yaml"))]
    async with await open_client(kubeconfig) as kube:
        for crd in crds:
            await _apply(kube, crd)
        for crd in crds:
            await _wait_established(kube, crd["metadata"]["name"])
        for item in _documents(BASE_FILE):
            await _apply(kube, item)
        await _apply(kube, _keys(api_key))


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(path.read_text())


def _keys(api_key: str) -> dict[str, Any]:
    key_id, secret = split_key(api_key) or ("", "")
    record = KeyRecord(sha256=hash_secret(secret), tenant=DEFAULT_TENANT, roles=(Role.ADMIN,))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": KEYS_SECRET, "namespace": SYSTEM_NAMESPACE},
        "stringData": {key_id: json.dumps(record.to_json())},
    }


async def _apply(kube: KubeClient, item: dict[str, Any]) -> None:
    path = KINDS[item["kind"]].item(item["metadata"]["name"], item["metadata"].get("namespace"))
    await kube.patch(path, item, PatchType.APPLY, MANAGER)


async def _wait_established(kube: KubeClient, name: str) -> None:
    deadline = time.monotonic() + ESTABLISHED_SECONDS
    while True:
        crd = await kube.get(CRDS.item(name))
        if is_true(crd, "Established"):
            return
        if time.monotonic() > deadline:
            raise DevClusterError(f"the API server does not establish {name}: {crd.get('status')}")
        await asyncio.sleep(POLL_SECONDS)
