"""The plugin's process."""

import asyncio
import sys
import tempfile
from pathlib import Path

from gpu_platform.devcluster.pulumi_kubernetes.servicer import KubernetesProvider
from gpu_platform.pulumi_protocol.serving import EngineLog, find_engine, serve


async def run(engine: str) -> None:
    with tempfile.TemporaryDirectory(prefix="pulumi-kubernetes-") as workplace:
        provider = KubernetesProvider(EngineLog(engine), Path(workplace))
        try:
            await serve(provider)
        finally:
            await provider.close()


if __name__ == "__main__":
    asyncio.run(run(find_engine(sys.argv[1:])))
