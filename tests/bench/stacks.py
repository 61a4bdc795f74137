"""P3: recording a stack, against what the Automation API does by default, on the same CLI, backend and provider."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pulumi import automation

from stacks.runner import RunnerSettings, StackRunner
from tests.bench.figures import Figure, Goal, p50
from tests.bench.workloads import Bench
from tests.support.shelf_provider import Shelves, serve
from tests.support.stack_runners import PASSPHRASE, build_program, find_pulumi, unit

TURNS = 8
"""Of each kind, by turns: both see the same machine."""


@dataclass
class Times:
    """In seconds."""

    create: list[float] = field(default_factory=list)
    update: list[float] = field(default_factory=list)
    destroy: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class DefaultSequence:
    """As in Pulumi's own examples of a service that runs programs."""

    directory: Path
    port: int

    def up(self, name: str, *, number: int) -> None:
        self._stack(name, number).up()

    def destroy(self, name: str) -> None:
        self._stack(name, 0).destroy(remove=True)

    def _stack(self, name: str, number: int) -> automation.Stack:
        environment = {
            "PULUMI_BACKEND_URL": f"file://{self.directory / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            "PULUMI_DEBUG_PROVIDERS": f"gpuplatform:{self.port}",
        }
        options = automation.LocalWorkspaceOptions(
            work_dir=str(self.directory / name),
            pulumi_home=str(self.directory / "home"),
            env_vars=environment,
            pulumi_command=automation.PulumiCommand(str(self.directory)),
        )
        (self.directory / name).mkdir(exist_ok=True)
        return automation.create_or_select_stack(
            name, project_name="bench", program=build_program(name, number=number), opts=options
        )


async def measure_recording(bench: Bench) -> list[Figure]:
    ours, default = await asyncio.to_thread(take_turns)
    for what in ("create", "update", "destroy"):
        bench.say(f"{what}: {p50(getattr(ours, what)):.2f} s, by default {p50(getattr(default, what)):.2f} s")
    return build_figures(ours, default)


def take_turns(turns: int = TURNS) -> tuple[Times, Times]:
    ours, default = Times(), Times()
    with tempfile.TemporaryDirectory(prefix="gpu-bench-stacks-") as name, serve(Shelves()) as port:
        directory, pulumi = Path(name), find_pulumi()
        for needed in ("bin", "state", "home"):
            (directory / needed).mkdir()
        (directory / "bin" / "pulumi").symlink_to(pulumi)
        sequence = DefaultSequence(directory, port)
        settings = RunnerSettings(f"file://{directory / 'ours'}", directory / "work", PASSPHRASE, pulumi)
        runner = StackRunner(settings, port)
        for number in range(turns):
            time_one(ours, runner_steps(runner, f"ours-{number}"))
            time_one(default, default_steps(sequence, f"default-{number}"))
    return ours, default


Steps = tuple[Callable[[], object], Callable[[], object], Callable[[], object]]


def runner_steps(runner: StackRunner, name: str) -> Steps:
    address = unit(name)
    return (
        lambda: runner.record(address, build_program(name, number=0)),
        lambda: runner.record(address, build_program(name, number=1)),
        lambda: runner.remove(address),
    )


def default_steps(sequence: DefaultSequence, name: str) -> Steps:
    return (
        lambda: sequence.up(name, number=0),
        lambda: sequence.up(name, number=1),
        lambda: sequence.destroy(name),
    )


def time_one(times: Times, steps: Steps) -> None:
    for step, taken in zip(steps, (times.create, times.update, times.destroy), strict=True):
        began_at = time.perf_counter()
        step()
        taken.append(time.perf_counter() - began_at)


def build_figures(ours: Times, default: Times) -> list[Figure]:
    goal = Goal(0.4, of_ratio=True)
    return [
        Figure(
            "P3",
            "recording a new stack, p50 ÷ the Automation API's default sequence",
            p50(ours.create),
            "s",
            len(ours.create),
            p50(default.create),
            goal,
        ),
        *(
            Figure("P3", f"{what}, p50 ÷ the default", p50(mine), "s", len(mine), p50(theirs))
            for what, mine, theirs in (
                ("recording a change", ours.update, default.update),
                ("removing a stack", ours.destroy, default.destroy),
            )
        ),
    ]
