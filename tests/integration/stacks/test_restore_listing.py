"""Which stacks there are: read from the files, or asked of the real CLI, as for a backend that is no directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_platform.domain.stacks import StackAddress
from stacks.runner import Fault, StackFailedError, StackRunner
from stacks.runner.backend import SHARDS, shard_of
from tests.support.stack_runners import RunnerBench, build_program, open_bench, unit


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RunnerBench]:
    with open_bench(tmp_path) as bench:
        yield bench


def list_all(runner: StackRunner, shards: tuple[str, ...] = SHARDS) -> set[StackAddress]:
    return {address for shard in shards for address in runner.list_root(shard)}


def test_files_and_the_cli_tell_of_the_same_stacks(bench: RunnerBench) -> None:
    runner = bench.build_runner()
    units = {unit("one"), unit("two")}
    for address in units:
        runner.record(address, build_program(address.name))
    runner.remove(unit("two"))
    assert list_all(runner) == {unit("one")}
    elsewhere = bench.build_runner(backend_url=runner._backend_url)
    elsewhere._backend_directory = None
    assert list_all(elsewhere, tuple(shard_of(address.stack) for address in units)) == {unit("one")}
    assert elsewhere.read_state(unit("one")) is not None


def test_a_backend_that_is_not_there_has_not_no_stacks(bench: RunnerBench) -> None:
    runner = bench.build_runner(backend_url=f"file://{bench.directory}/nowhere")
    with pytest.raises(StackFailedError, match="there is no directory") as caught:
        runner.list_root("00")
    assert caught.value.fault is Fault.BACKEND
    runner._backend_directory = None
    with pytest.raises(StackFailedError) as caught:
        runner.list_root("00")
    assert caught.value.fault is Fault.BACKEND
