"""The program that Pulumi runs for a person: declares what the API accepted, as cluster or index of stacks says it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pulumi

from gpu_platform.domain.stacks import Intent, StackAddress, intent_of, parse_address
from gpu_platform.kube import open_client
from gpu_platform.kube.requests import find
from gpu_platform.store.stack_leases import PATHS, find_record
from stacks.runner.programs import build_program


def declare() -> None:
    address = parse_address(pulumi.get_project(), pulumi.get_stack())
    if address is None:
        raise pulumi.RunError(f"{pulumi.get_project()}/{pulumi.get_stack()} is no stack of the platform")
    # Pulumi's own event loop runs this program.
    with ThreadPoolExecutor(1) as elsewhere:
        intent = elsewhere.submit(lambda: asyncio.run(find_intent(address))).result()
    if intent is None:
        raise pulumi.RunError(
            f"nothing says what {address.lease} is to be: neither the cluster nor the index of stacks"
        )
    build_program(intent)()


async def find_intent(address: StackAddress) -> Intent | None:
    """Of the object itself; once that is gone, as it was recorded last."""
    async with await open_client() as client:
        item = await find(client, PATHS[address.kind], address.name, address.namespace)
        if item is not None and (intent := intent_of(item)) is not None:
            return intent
        record = await find_record(client, address)
        return record.intent if record is not None else None


declare()
