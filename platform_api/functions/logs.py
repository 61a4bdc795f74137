"""What the workers of a function have written, also those that are gone."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from gpu_platform.domain.worker_logs import appended, merge_logs, text_of
from gpu_platform.nats.errors import QueueUnavailableError
from gpu_platform.nats.worker_logs import WorkerLog, list_logs
from platform_api.http.errors import conflict, unavailable
from platform_api.nats_connection import QueueLink
from platform_api.objects.reads import TAIL_LIMIT

LOOK_SECONDS = 1.0
"""Between two looks at what is followed: entries are written once a second."""


@dataclass(frozen=True)
class FunctionLogOptions:
    """How much of it a caller wants."""

    follow: Annotated[bool, Query(description="Go on as it grows.")] = False
    tail: Annotated[int | None, Query(ge=0, le=TAIL_LIMIT, description="Only the last lines.")] = None
    timestamps: Annotated[bool, Query(description="With the time of each line.")] = False
    worker: Annotated[
        str | None,
        Query(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="Of this worker only, without its name."),
    ] = None


async def read_function_logs(
    link: QueueLink, tenant: str, function: str, options: FunctionLogOptions
) -> AsyncGenerator[bytes, None]:
    try:
        found = await list_logs(link.js, tenant, function, options.worker or "*")
    except QueueUnavailableError as error:
        raise unavailable(
            f"the logs of the function {function!r} are kept in NATS, which does not answer; "
            'read those of a worker that runs with "gpu-platform units logs"'
        ) from error
    if not found and not options.follow:
        who = f"its worker {options.worker!r}" if options.worker else "none of its workers"
        said = "has not" if options.worker else "has"
        raise conflict(f"the function {function!r} has no logs: {who} {said} written a line in the last 24 hours")
    lines = merge_logs((each.worker, each.lines) for each in found)
    yield _render(lines if options.tail is None else lines[max(0, len(lines) - options.tail) :], options)
    while options.follow:
        await asyncio.sleep(LOOK_SECONDS)
        known = {each.worker: each for each in found}
        changed = await _read_changed(link, tenant, function, options, found)
        if changed:
            added = ((each.worker, appended(_lines_of(known, each.worker), each.lines)) for each in changed)
            yield _render(merge_logs(added), options)
            found = tuple((known | {each.worker: each for each in changed}).values())


async def _read_changed(
    link: QueueLink, tenant: str, function: str, options: FunctionLogOptions, found: Iterable[WorkerLog]
) -> tuple[WorkerLog, ...]:
    """What was written since then; nothing while NATS is away."""
    sequence = max((each.sequence for each in found), default=0) + 1
    try:
        return await list_logs(link.js, tenant, function, options.worker or "*", sequence=sequence)
    except QueueUnavailableError:
        return ()


def _lines_of(known: dict[str, WorkerLog], worker: str) -> tuple[str, ...]:
    return known[worker].lines if worker in known else ()


def _render(lines: Iterable[tuple[str, str]], options: FunctionLogOptions) -> bytes:
    shown = ((worker, line if options.timestamps else text_of(line)) for worker, line in lines)
    rendered = (text if options.worker else f"{worker} | {text}" for worker, text in shown)
    return "".join(f"{text}\n" for text in rendered).encode()
