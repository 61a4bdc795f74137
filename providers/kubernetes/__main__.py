"""The plugin's process."""

import asyncio
import sys
import tempfile
from pathlib import Path

from providers.kubernetes.servicer import KubernetesProvider
from providers.protocol.engine_log import EngineLog
from providers.protocol.serving import find_engine, serve


async def run(engine: str) -> None:
    with tempfile.TemporaryDirectory(prefix="pulumi-kubernetes-") as workplace:
        provider = KubernetesProvider(EngineLog(engine), Path(workplace))
        try:
            await serve(provider)
        finally:
            await provider.close()


if __name__ == "__main__":
    asyncio.run(run(find_engine(sys.argv[1:])))
