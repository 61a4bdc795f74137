"""`gpu-platform health`: how the platform is."""

import os

import typer
from rich.text import Text

from gpu_platform.api_models.health import HealthView, LivenessView
from gpu_platform.cli.options import AsJson, Url
from gpu_platform.cli.output import build_details, build_duration, print_json, print_table
from gpu_platform.cli.resources import connect
from gpu_platform.client.client import KEY_VARIABLE

NO_KEY = f"nodes, GPUs and counts need a key: set {KEY_VARIABLE}"
UNCHECKED = "the API has not read its keys yet: it does not reach Kubernetes"


def health(as_json: AsJson = False, url: Url = None) -> None:
    """Show how the platform is; without a key, only that it answers. Exits with 1 when it does not reach Kubernetes."""
    with connect(url, needs_key=False) as client:
        answer = client.health.get()
    has_key = bool(os.environ.get(KEY_VARIABLE, "").strip())
    current = answer.value
    if as_json:
        print_json(answer.document)
    elif isinstance(current, LivenessView):
        print_table(build_details({"platform": "answers", "": UNCHECKED if has_key else NO_KEY}))
    else:
        print_table(build_details(build_fields(current)))
    # A key that was sent and not looked at: the API has never reached Kubernetes.
    is_connected = not has_key if isinstance(current, LivenessView) else current.kubernetes_connected
    if not is_connected:
        raise typer.Exit(1)


def build_fields(current: HealthView) -> dict[str, object]:
    kubernetes = (
        Text("connected", style="green")
        if current.kubernetes_connected
        else Text(f"not reached: {current.kube_error or 'no reason is known'}", style="red")
    )
    products = [
        f"{product.product}: {product.allocatable} of {product.capacity} on {product.node_count} nodes"
        for product in current.gpu_products
    ]
    return {
        "kubernetes": kubernetes,
        "nodes": f"{current.ready_node_count} of {current.node_count} ready",
        "GPUs": f"{current.total_gpu_allocatable} of {current.total_gpu_capacity} allocatable",
        "": "\n".join(products),
        "stock": f"{current.stock_unit_count} units",
        "tenants": f"{current.active_unit_count} active units",
        "degraded": Text("\n".join(current.degraded), style="yellow") if current.degraded else None,
        "up for": build_duration(current.uptime_seconds),
    }
