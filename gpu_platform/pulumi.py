"""The Pulumi resources for a tenant's own program: units, storages and functions over the REST API.

Their arguments are mappings with the fields of the REST API, or these models of them.
"""

from gpu_platform.domain.storages import Accessor, Prepare
from gpu_platform.domain.units import Access, Framework, Serverless, StorageMount, Template

try:
    from providers.dynamic import GpuFunction, GpuStorage, GpuUnit
except ModuleNotFoundError as error:
    if error.name != "pulumi":
        raise
    raise ImportError("gpu_platform.pulumi needs the extra pulumi: pip install 'gpu-platform[pulumi]'") from error

__all__ = [
    "Access",
    "Accessor",
    "Framework",
    "GpuFunction",
    "GpuStorage",
    "GpuUnit",
    "Prepare",
    "Serverless",
    "StorageMount",
    "Template",
]
