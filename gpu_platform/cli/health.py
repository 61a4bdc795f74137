"""`gpu-platform health`: how the platform is."""

import typer
from rich.text import Text

from gpu_platform.cli.connection import connect
from gpu_platform.cli.options import AsJson, Url
from gpu_platform.cli.tables import build_details, build_duration, print_json, print_table
from gpu_platform.cli.views import HealthView


def health(as_json: AsJson = False, url: Url = None) -> None:
    """Show how the platform is; this needs no key. Exits with 1 when it does not reach Kubernetes."""
    with connect(url, needs_key=False) as client:
        current = client.get_health()
    if as_json:
        print_json(current)
    else:
        print_table(build_details(build_fields(current)))
    if not current["kubernetesConnected"]:
        raise typer.Exit(1)


def build_fields(current: HealthView) -> dict[str, object]:
    kubernetes = (
        Text("connected", style="green")
        if current["kubernetesConnected"]
        else Text(f"not reached: {current.get('kubeError') or 'no reason is known'}", style="red")
    )
    products = [
        f"{product['product']}: {product['allocatable']} of {product['capacity']} on {product['nodeCount']} nodes"
        for product in current["gpuProducts"]
    ]
    return {
        "kubernetes": kubernetes,
        "nodes": f"{current['readyNodeCount']} of {current['nodeCount']} ready",
        "GPUs": f"{current['totalGPUAllocatable']} of {current['totalGPUCapacity']} allocatable",
        "": "\n".join(products),
        "stock": f"{current['stockUnitCount']} units",
        "tenants": f"{current['activeUnitCount']} active units",
        "degraded": Text("\n".join(current.get("degraded") or ()), style="yellow") if current.get("degraded") else None,
        "up for": build_duration(current["uptimeSeconds"]),
    }
