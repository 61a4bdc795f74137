"""Our kinds on the API server: the definitions applied, the samples loaded, a listing as kubectl sees it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import yaml

from gpu_platform.domain.crds import build_crds
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, NotFoundError, PatchType, ResourcePath
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_SPECS, GPU_STORAGES, GPU_UNITS, OPERATIONS, STOCK_POOLS
from tests.support.waiting import eventually

SAMPLES = Path(__file__).parents[2] / "examples" / "manifests"
DEFINITIONS = ResourcePath("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
PATHS = {
    "GPUSpec": GPU_SPECS,
    "StockPool": STOCK_POOLS,
    "GPUUnit": GPU_UNITS,
    "GPUStorage": GPU_STORAGES,
    "GPUFunction": GPU_FUNCTIONS,
    "Operation": OPERATIONS,
}

DRY_RUN = {"dryRun": "All"}
STRICT_DRY_RUN = {"dryRun": "All", "fieldValidation": "Strict"}


async def ensure_crds(kube: KubeClient) -> None:
    for crd in build_crds():
        name = crd["metadata"]["name"]
        manager = {"fieldManager": "integration-tests", "force": "true"}
        await kube.patch(DEFINITIONS.item(name), crd, PatchType.APPLY, manager)

    async def all_are_served() -> bool:
        try:
            return all([await kube.get(path.collection()) for path in PATHS.values()])
        except NotFoundError:
            return False

    await eventually(all_are_served)


def load_sample(kind: str, namespace: str = "default") -> Json:
    """The sample of this kind, in the namespace that the test may use."""
    sample: Json = yaml.safe_load((SAMPLES / f"{kind.lower()}.yaml").read_text())
    if PATHS[kind].namespaced:
        sample["metadata"]["namespace"] = namespace
    return sample


def collection_of(item: Json) -> str:
    return PATHS[item["kind"]].collection(item["metadata"].get("namespace"))


def path_of(item: Json, subresource: str | None = None) -> str:
    return PATHS[item["kind"]].item(item["metadata"]["name"], item["metadata"].get("namespace"), subresource)


@asynccontextmanager
async def stored_sample(kube: KubeClient, kind: str, namespace: str) -> AsyncIterator[Json]:
    """The sample as a real object, gone afterwards. One of the whole cluster gets a name of its own."""
    sample = load_sample(kind, namespace)
    if not PATHS[kind].namespaced:
        sample["metadata"]["name"] = namespace
    if kind == "Operation":
        # Of another namespace's objects the reconciler would refuse it at once.
        sample["spec"]["target"]["namespace"] = namespace
    stored = await kube.create(collection_of(sample), sample)
    try:
        yield stored
    finally:
        await kube.delete(path_of(stored))


def merge(target: Json, change: Json) -> Json:
    """A JSON merge patch: None removes, objects are merged, all else is replaced."""
    merged = dict(target)
    for name, value in change.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = merge(merged.get(name, {}), value)
        else:
            merged[name] = value
    return merged


async def patch_as_table(kube: KubeClient, path: str, change: Json) -> Json:
    """The row of `kubectl get` that the object would have after the change, by column."""
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io", "Content-Type": PatchType.MERGE}
    # Our client asks for JSON only; the listing for people is nobody's business but this test's.
    api = kube._api
    await api.update_params_for_auth(headers, [], ["BearerToken"], path, "PATCH", change)
    url = f"{kube.server}{path}?{urlencode(DRY_RUN)}"
    raw = await api.rest_client.request("PATCH", url, headers=headers, body=change)
    async with raw.response as response:
        table = await response.json()
    assert table["kind"] == "Table", table
    [row] = table["rows"]
    return {column["name"]: cell for column, cell in zip(table["columnDefinitions"], row["cells"], strict=True)}
