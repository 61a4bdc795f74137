"""`make bench`: starts an embedded cluster of its own, measures, prints the table and writes `bench/results.json`.

Ends with 0 when it could measure. Goals that are missed are red, and an error only with `--strict`.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console

from gpu_platform.devcluster import lifecycle
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.parts import ensure_parts
from gpu_platform.devcluster.record import ClusterRecord
from gpu_platform.kube import open_client
from tests.bench.accept import measure_accept
from tests.bench.calls import measure_calls
from tests.bench.cold import measure_cold
from tests.bench.figures import Figure, build_table, save_figures
from tests.bench.recording import measure_waiting
from tests.bench.repair import measure_repair
from tests.bench.restoring import measure_restore
from tests.bench.second_pass import measure_second_pass
from tests.bench.stacks import measure_recording
from tests.bench.startup import measure_startup
from tests.bench.workloads import Bench, prepare
from tests.bench.writes import measure_writes

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "bench" / "results.json"

NODES = 8
GPUS = 32
"""Room for everything that is made, so that nothing has to be cleared away between two measurements."""

MEASUREMENTS: dict[str, tuple[str, Callable[[Bench], Awaitable[list[Figure]]]]] = {
    # First, while there is nothing else.
    "accept": ("P1: accepting a unit", measure_accept),
    "startup": ("P2: from the request to Ready", measure_startup),
    "recording": ("P3: recording a stack", measure_recording),
    "recorded": ("P3: from the answer to the record", measure_waiting),
    "calls": ("P5: calls of a function", measure_calls),
    "cold": ("P6: calls of a function without workers", measure_cold),
    "restore": ("P8: lost units from their stacks", measure_restore),
    "writes": ("P4: API writes per unit from stock", measure_writes),
    "second-pass": ("P4: a second pass over 1,000 units", measure_second_pass),
    # Last, so that a thousand other units are there.
    "repair": ("P7: deleted children", measure_repair),
}

MISSED = 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Measures the platform against bare baselines.")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a goal is missed")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="measure this; may be repeated")
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    started_at = time.monotonic()
    figures = run_on_own_cluster(options.only or list(MEASUREMENTS), console)
    save_figures(RESULTS, figures)
    console.print()
    console.print(build_table(figures))
    console.print(f"measured in {time.monotonic() - started_at:.0f} s; also in {RESULTS.relative_to(REPOSITORY)}")
    return MISSED if options.strict and any(figure.is_ok is False for figure in figures) else 0


def run_on_own_cluster(chosen: list[str], console: Console) -> list[Figure]:
    """The cluster ends with this process, whatever its death, and leaves nothing on disk."""
    with tempfile.TemporaryDirectory(prefix="gpu-bench-") as root:
        directory = ClusterDirectory(Path(root) / "cluster")
        console.print("[bold cyan]▸ start a cluster[/]")
        record = lifecycle.up(
            directory, ensure_parts(), lifecycle.Wish(nodes=NODES, gpus=GPUS, stack_worker=False, tied=True)
        )
        try:
            return asyncio.run(measure(chosen, directory, record, console))
        finally:
            lifecycle.down(directory)


async def measure(
    chosen: list[str], directory: ClusterDirectory, record: ClusterRecord, console: Console
) -> list[Figure]:
    figures: list[Figure] = []
    async with await open_client(directory.kubeconfig) as kube:
        await prepare(kube)
        bench = Bench(kube, directory, record, console)
        for title, measurement in (MEASUREMENTS[name] for name in MEASUREMENTS if name in chosen):
            console.print(f"[bold cyan]▸ {title}[/]")
            started_at = time.monotonic()
            figures += await measurement(bench)
            bench.say(f"[dim]{time.monotonic() - started_at:.0f} s[/]")
    return figures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
