"""Stack workers as processes of their own on the session's cluster, and what they leave in Pulumi's backend."""

import gzip
import json
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.stacks import LABEL_KIND, StackAddress, StackKind, StackRecord
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import LEASES
from gpu_platform.kube.requests import find
from gpu_platform.store.stack_leases import find_record
from tests.support.api import UNITS
from tests.support.clusters import RunningCluster
from tests.support.daemons import Daemon, running_daemon
from tests.support.units_api import delete_operations
from tests.support.waiting import PATIENCE_SECONDS, NotYet, eventually

PASSPHRASE = "a passphrase for tests"  # noqa: S105 - of stacks that end with the test


@dataclass(frozen=True)
class StackPlace:
    """Where the workers of one test keep their stacks."""

    root: Path

    @property
    def backend(self) -> Path:
        return self.root / "backend"

    @property
    def url(self) -> str:
        return f"file://{self.backend}"

    def files_of(self, address: StackAddress) -> list[str]:
        """Whatever is left of a stack on disk: state, history, backups, locks, settings, work directory."""
        named = [path for path in self.root.rglob(f"*{address.stack}*") if "logs" not in path.parts]
        return sorted(str(path.relative_to(self.root)) for path in named)

    def locks(self) -> list[Path]:
        """Every file that Pulumi reads as a lock."""
        return [path for path in self.backend.rglob("locks/**/*") if path.is_file()]

    def keep_only(self, addresses: Iterable[StackAddress]) -> None:
        """Without the states of all other stacks: what another test has left in the cluster is recorded here, too."""
        kept = {address.stack for address in addresses}
        for file in self.backend.glob("*/.pulumi/stacks/*/*"):
            if file.name.partition(".json")[0] not in kept:
                file.unlink()

    def inputs_of(self, address: StackAddress) -> Json:
        """What the stack says of its one resource."""
        [file] = self.backend.glob(f"*/.pulumi/stacks/{address.project}/{address.stack}.json.gz")
        state = json.loads(gzip.decompress(file.read_bytes()))
        resources = state["checkpoint"]["latest"]["resources"]
        [found] = [each for each in resources if each["type"].startswith("gpuplatform:")]
        return dict(found["inputs"])


@asynccontextmanager
async def stack_worker(
    cluster: RunningCluster,
    place: StackPlace,
    *,
    name: str = "worker",
    settings: Mapping[str, str] | None = None,
    fault: str | None = None,
) -> AsyncIterator[Daemon]:
    """It need not be ready. Several may work in one place, each with its own state directory."""
    prefix = "GPU_PLATFORM_STACK_WORKER_"
    place.backend.mkdir(parents=True, exist_ok=True)
    environment = {
        "PATH": cluster.environment(os.environ["PATH"])["PATH"],
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        f"{prefix}STATE_DIRECTORY": str(place.root / name),
        f"{prefix}BACKEND_URL": place.url,
        f"{prefix}KUBECONFIG": str(cluster.stack_worker_kubeconfig),
        f"{prefix}METRICS_ADDRESS": "127.0.0.1:0",
        f"{prefix}PROBE_ADDRESS": "127.0.0.1:0",
        f"{prefix}LEASE_SECONDS": "6",
        **{f"{prefix}{key}": value for key, value in (settings or {}).items()},
        **({"GPU_PLATFORM_FAULT": fault} if fault else {}),
    }
    async with running_daemon("stacks.worker", place.root / f"{name}.log", environment) as daemon:
        yield daemon


@asynccontextmanager
async def cleared_worker(
    cluster: RunningCluster, kube: KubeClient, place: StackPlace, **settings: str
) -> AsyncIterator[Daemon]:
    """A stack worker that finds no stacks, and leaves none."""
    await clear_index(kube)
    async with stack_worker(cluster, place, settings=settings) as daemon:
        yield daemon
    await clear_index(kube)


async def read_metrics(worker: Daemon) -> dict[str, float]:
    """What a worker counts, by name with labels."""
    address = (await worker.says("worker.started"))["metrics"]
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://{address}/metrics")).text
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name.removeprefix("gpu_platform_stack_worker_"): float(value) for name, _, value in lines}


async def wait_idle(worker: Daemon) -> None:
    """It has looked at every stack again, and found nothing to do."""

    async def is_idle() -> bool | NotYet:
        metrics = await read_metrics(worker)
        left = metrics["due_stacks"] + metrics['queue_length{controller="stacks"}']
        return not left or NotYet(left)

    await eventually(is_idle, every=0.2)


def accepted_spec_of(item: Json) -> str:
    return str(item["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC])


async def delete_units(api: httpx.AsyncClient, kube: KubeClient, *units: str) -> None:
    """Delete the units and wait for the end of their stacks; then their records may go, for the next test."""
    for name in units:
        assert (await api.delete(f"{UNITS}/{name}")).status_code == 204
    for name in units:
        await expect_stack_deleted(kube, unit_stack(name))
        await delete_operations(kube, name)


def unit_stack(name: str, tenant: str = "default") -> StackAddress:
    return StackAddress(StackKind.GPU_UNIT, tenant, name)


def storage_stack(name: str, tenant: str = "default") -> StackAddress:
    return StackAddress(StackKind.GPU_STORAGE, tenant, name)


def function_stack(name: str, tenant: str = "default") -> StackAddress:
    return StackAddress(StackKind.GPU_FUNCTION, tenant, name)


def pool_stack(name: str) -> StackAddress:
    return StackAddress(StackKind.STOCK_POOL, "stock", name)


async def post_recorded(api: httpx.AsyncClient, path: str, request: Json) -> Json:
    """What the API makes of a new thing, once its stack is recorded. It gives up after half a minute: then again."""
    first = await api.post(path, json=request, params={"wait": "recorded"})
    assert first.status_code == 201, first.text

    async def is_recorded() -> Json | NotYet:
        again = await api.post(path, json=request, params={"wait": "recorded"})
        assert again.status_code == 200, again.text
        view: Json = again.json()["data"]
        return view if view["stackRecorded"] else NotYet(view)

    view: Json = first.json()["data"]
    return view if view["stackRecorded"] else await eventually(is_recorded)


async def wait_recorded(
    kube: KubeClient, address: StackAddress, accepted_spec: str, within: float = PATIENCE_SECONDS
) -> StackRecord:
    """The index entry of the stack, once this spec is recorded."""

    async def is_recorded() -> StackRecord | NotYet:
        record = await find_record(kube, address)
        if record and record.recorded and record.recorded.accepted_spec == accepted_spec:
            return record
        return NotYet(record)

    return await eventually(is_recorded, within=within, every=0.1)


async def expect_stack_deleted(kube: KubeClient, address: StackAddress, within: float = PATIENCE_SECONDS) -> None:
    async def is_gone() -> bool:
        return await find(kube, LEASES, address.lease, SYSTEM_NAMESPACE) is None

    await eventually(is_gone, within=within, every=0.1)


async def clear_index(kube: KubeClient) -> None:
    """What the workers of other tests left: their backends are gone."""
    for lease in (await kube.get(LEASES.collection(SYSTEM_NAMESPACE), {"labelSelector": LABEL_KIND}))["items"]:
        await kube.delete(LEASES.item(lease["metadata"]["name"], SYSTEM_NAMESPACE))


def running_pulumi(stack: str) -> list[int]:
    """The CLI processes that work on this stack now."""
    return [pid for pid, arguments in _processes() if "pulumi" in Path(arguments[0]).name and stack in arguments]


def _processes() -> Iterable[tuple[int, list[str]]]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if arguments and arguments[0]:
            yield int(process.name), arguments
