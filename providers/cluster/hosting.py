"""The provider inside a process that lives already: Pulumi attaches to it instead of starting one.

The engine is told by `PULUMI_DEBUG_PROVIDERS`. Any number of them may be attached at once.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpu_platform.kube import KubeClient
from gpu_platform.pulumi_protocol.serving import listening
from providers.cluster.servicer import ClusterProvider


@asynccontextmanager
async def hosted(client: KubeClient) -> AsyncIterator[int]:
    """The port of the provider, on 127.0.0.1, while the block runs. The client stays its owner's to close."""
    async with listening(ClusterProvider(client)) as port:
        yield port
