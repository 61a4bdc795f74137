"""The Pulumi resources for a tenant's own program: units, storages and functions over the REST API."""

from providers.dynamic import GpuFunction, GpuStorage, GpuUnit

__all__ = ["GpuFunction", "GpuStorage", "GpuUnit"]
