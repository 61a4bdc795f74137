"""The plugin's process, for people who run `pulumi` by hand."""

import asyncio
import sys

from providers.cluster.servicer import ClusterProvider
from providers.protocol.serving import find_engine, serve


async def run(engine: str) -> None:
    provider = ClusterProvider(engine=engine)
    try:
        await serve(provider)
    finally:
        await provider.close()


if __name__ == "__main__":
    asyncio.run(run(find_engine(sys.argv[1:])))
