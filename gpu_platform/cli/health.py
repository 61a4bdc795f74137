"""`gpu-platform health`: how the platform is."""

import os

import typer
from rich.text import Text

from gpu_platform.cli.connection import KEY_VARIABLE, connect
from gpu_platform.cli.options import AsJson, Url
from gpu_platform.cli.output import build_details, build_duration, print_json, print_table
from gpu_platform.cli.views import HealthView

NO_KEY = f"nodes, GPUs and counts need a key: set {KEY_VARIABLE}"
UNCHECKED = "the API has not read its keys yet: it does not reach Kubernetes"


def health(as_json: AsJson = False, url: Url = None) -> None:
    """Show how the platform is; without a key, only that it answers. Exits with 1 when it does not reach Kubernetes."""
    with connect(url, needs_key=False) as client:
        current = client.get_health()
    has_key = bool(os.environ.get(KEY_VARIABLE, "").strip())
    if as_json:
        print_json(current)
    elif "status" in current:
        print_table(build_details({"platform": "answers", "": UNCHECKED if has_key else NO_KEY}))
    else:
        print_table(build_details(build_fields(current)))
    # A key that was sent and not looked at: the API has never reached Kubernetes.
    is_connected = not has_key if "status" in current else current["kubernetesConnected"]
    if not is_connected:
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
