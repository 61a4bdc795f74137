"""The plugin's process, for people who run `pulumi` by hand."""

import asyncio
import sys

from gpu_platform.pulumi_protocol.serving import find_engine, serve
from providers.cluster.servicer import ClusterProvider


async def run(engine: str) -> None:
    provider = ClusterProvider(engine=engine)
    try:
        await serve(provider)
    finally:
        await provider.close()


if __name__ == "__main__":
    asyncio.run(run(find_engine(sys.argv[1:])))
