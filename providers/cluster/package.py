"""What programs and the engine call the provider and its resources."""

PACKAGE = "gpuplatform"
VERSION = "0.1.0"
"""Of the resources' inputs and outputs, which programs depend on; not the platform's own."""

GPU_UNIT = f"{PACKAGE}:index:GpuUnit"
GPU_STORAGE = f"{PACKAGE}:index:GpuStorage"
GPU_FUNCTION = f"{PACKAGE}:index:GpuFunction"
STOCK_POOL = f"{PACKAGE}:index:StockPool"
GPU_SPEC = f"{PACKAGE}:index:GpuSpec"


def attachment(port: int) -> dict[str, str]:
    """The environment with which a `pulumi` command attaches to the provider on this port of this machine."""
    return {"PULUMI_DEBUG_PROVIDERS": f"{PACKAGE}:{port}"}
