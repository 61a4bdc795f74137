"""What daemons say of themselves in Prometheus' format: a sign that a controller has had its chance."""

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.support.clusters import RunningCluster
from tests.support.daemons import Daemon


async def read_figure(address: str, name: str, **labels: str) -> float:
    """The sum over all samples of this name and these labels."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as response:
        families = list(text_string_to_metric_families(await response.text()))
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


async def count_passes(cluster: RunningCluster, controller: str) -> float:
    """Of the cluster's reconciler, since its process started."""
    return await read_figure(_reconciler(cluster), "gpu_platform_reconciler_passes_total", controller=controller)


async def count_queued(cluster: RunningCluster, controller: str) -> float:
    """What is due for this controller of the cluster's reconciler."""
    return await read_figure(_reconciler(cluster), "gpu_platform_reconciler_queue_length", controller=controller)


async def read_worker_figure(worker: Daemon, name: str, **labels: str) -> float:
    """Of a stack worker."""
    return await read_figure(
        (await worker.says("worker.started"))["metrics"], f"gpu_platform_stack_worker_{name}", **labels
    )


def _reconciler(cluster: RunningCluster) -> str:
    return f"127.0.0.1:{cluster.record.ports['reconciler-metrics']}"
