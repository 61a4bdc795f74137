"""Nodes as the API server shows them."""

from gpu_platform.domain.json_text import Json


def make_node(name: str, *, product: str | None = "H100", gpus: int = 8, ready: bool = True) -> Json:
    amounts = {"cpu": "8", "memory": "64Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    conditions = [
        {"type": "MemoryPressure", "status": "False"},
        {"type": "Ready", "status": "True" if ready else "Unknown"},
    ]
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product} if product else {}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions},
    }
