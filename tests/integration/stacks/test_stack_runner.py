"""One stack through the real CLI: recorded, previewed, removed, with as few processes as it takes."""

import json
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pulumi
import pytest

from gpu_platform.domain.stacks import PreviewResult, PreviewStep, PropertyChange
from stacks.runner import Fault, RunnerStoppedError, StackFailedError, StackRunner
from stacks.runner.backend import KEPT_UPDATES
from tests.support.shelf_provider import TOKEN, Shelf
from tests.support.stack_runners import PASSPHRASE, SECRET, RunnerBench, build_program, open_bench, unit

ONE = unit("one")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RunnerBench]:
    with open_bench(tmp_path) as bench:
        yield bench


@pytest.fixture
def runner(bench: RunnerBench) -> StackRunner:
    return bench.build_runner()


def commands(bench: RunnerBench) -> list[str]:
    return [" ".join(call.split()[:2]) for call in bench.calls()]


def read_state_files(bench: RunnerBench) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in bench.state.rglob("*") if path.is_file()}


def fail(runner: StackRunner, program: object, address: object = ONE) -> StackFailedError:
    with pytest.raises(StackFailedError) as caught:
        runner.record(address, program)  # type: ignore[arg-type]
    return caught.value


def test_a_new_stack_takes_two_processes_and_an_update_one(bench: RunnerBench, runner: StackRunner) -> None:
    created = runner.record(ONE, build_program("one", colour="red"))
    assert commands(bench) == ["stack init", "up --yes"]
    assert (created.outputs, created.resources, created.changes) == ({"where": "shelf of one"}, 1, {"create": 1})

    unchanged = runner.record(ONE, build_program("one", colour="red"))
    assert unchanged.changes == {"same": 1}
    assert unchanged.outputs == created.outputs

    updated = bench.build_runner().record(ONE, build_program("one", colour="blue"))
    assert updated.changes == {"update": 1}
    assert commands(bench)[2:] == ["up --yes", "up --yes"], "also in a process that never saw the stack"
    assert bench.shelves.things["one"]["colour"] == "blue"


def test_a_removed_stack_leaves_nothing_on_disk_and_its_things_alone(bench: RunnerBench, runner: StackRunner) -> None:
    runner.record(unit("other"), build_program("other"))
    before = bench.list_files()
    runner.record(ONE, build_program("one"))
    assert runner.exists(ONE)
    calls = len(bench.calls())

    runner.remove(ONE)

    assert commands(bench)[calls:] == ["stack rm"]
    left = {path for path in bench.list_files() - before if not path.name.startswith("meta.yaml")}
    assert left == set(), "one root's own meta file aside"
    assert not bench.files(ONE).locks.exists()
    assert not runner.exists(ONE)
    assert runner.read_state(ONE) is None
    assert list(bench.shelves.things) == ["other", "one"]

    runner.remove(ONE)
    assert len(bench.calls()) == calls + 1, "what is not there needs no process"


def test_the_checkpoint_can_be_read_and_holds_secrets_encrypted(bench: RunnerBench, runner: StackRunner) -> None:
    def program() -> None:
        shelf = Shelf("one", password=pulumi.Output.secret(SECRET))
        pulumi.export("password", pulumi.Output.secret(SECRET))
        pulumi.export("where", shelf.shelf)

    recorded = runner.record(ONE, program)

    assert recorded.outputs == {"password": SECRET, "where": "shelf of one"}
    state = runner.read_state(ONE)
    assert state is not None
    assert TOKEN in {resource["type"] for resource in state["checkpoint"]["latest"]["resources"]}
    texts = [path.read_bytes() for path in bench.directory.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in text or PASSPHRASE.encode() in text for text in texts)
    assert SECRET not in json.dumps(state)
    assert not any(SECRET in call or PASSPHRASE in call for call in bench.calls())


def test_a_changed_cluster_is_put_right_by_a_refreshing_update_only(bench: RunnerBench, runner: StackRunner) -> None:
    program = build_program("one", colour="red")
    runner.record(ONE, program)
    bench.shelves.things.clear()

    assert runner.record(ONE, program).changes == {"same": 1}, "a plain update trusts its state"
    assert runner.record(ONE, program, refresh=True).changes == {"create": 1}
    assert bench.shelves.things["one"]["colour"] == "red"


def test_an_audit_tells_whether_the_stack_says_what_is_there_and_writes_nothing(
    bench: RunnerBench, runner: StackRunner
) -> None:
    assert not runner.audit(ONE), "there is no stack"
    runner.record(ONE, build_program("one", colour="red"))
    calls = len(bench.calls())
    before = read_state_files(bench)

    assert runner.audit(ONE)
    assert commands(bench)[calls:] == ["refresh --preview-only"]

    bench.shelves.things["one"]["colour"] = "green"
    assert not runner.audit(ONE)
    del bench.shelves.things["one"]
    assert not runner.audit(ONE)
    assert read_state_files(bench) == before

    runner.record(ONE, build_program("one", colour="red"), refresh=True)
    assert runner.audit(ONE)


def test_a_stack_that_says_nothing_any_more_is_not_what_is_there(runner: StackRunner) -> None:
    runner.record(ONE, build_program("one"))
    runner.record(ONE, lambda: None)

    assert not runner.audit(ONE)


def test_what_cannot_be_made_again_stays_recorded(bench: RunnerBench, runner: StackRunner) -> None:
    """A refresh forgets what is gone, and Pulumi saves that, also when the run then fails."""
    runner.record(ONE, build_program("one", colour="red"))
    before = runner.read_state(ONE)
    bench.shelves.things.clear()
    bench.shelves.refusals["one"] = "there is no shelf left"

    with pytest.raises(StackFailedError, match="there is no shelf left"):
        runner.record(ONE, build_program("one", colour="red"), refresh=True)
    assert runner.read_state(ONE) == before

    del bench.shelves.refusals["one"]
    assert runner.record(ONE, build_program("one", colour="red"), refresh=True).changes == {"create": 1}


def test_an_audit_that_cannot_look_says_so(bench: RunnerBench, runner: StackRunner) -> None:
    runner.record(ONE, build_program("one"))
    state = bench.files(ONE).find_state()
    assert state is not None
    state.write_bytes(b"no state at all")

    with pytest.raises(StackFailedError) as caught:
        runner.audit(ONE)
    assert caught.value.fault is Fault.BACKEND


def test_a_preview_shows_the_exact_change_and_writes_nothing(bench: RunnerBench, runner: StackRunner) -> None:
    runner.record(ONE, build_program("one", colour="red", size=1))
    bench.shelves.things["one"]["size"] = 7
    before = {path: path.read_bytes() for path in bench.list_files()}
    things = json.dumps(bench.shelves.things)

    preview = runner.preview(ONE, build_program("one", colour="blue", size=1, secret=SECRET))

    changes = (
        PropertyChange(path="colour", kind="update", old="red", new="blue"),
        PropertyChange(path="password", kind="update", new="[secret]"),
        PropertyChange(path="size", kind="update", old=7, new=1),
    )
    assert preview == PreviewResult(
        changes={"update": 1}, steps=(PreviewStep(op="update", resource="one", type=TOKEN, properties=changes),)
    )
    (bench.directory / "calls").write_bytes(before[bench.directory / "calls"])
    assert {path: path.read_bytes() for path in bench.list_files()} == before
    assert json.dumps(bench.shelves.things) == things


def test_a_preview_needs_no_lock_and_no_stack(bench: RunnerBench, runner: StackRunner) -> None:
    runner.record(ONE, build_program("one"))
    bench.files(ONE).locks.mkdir(parents=True, exist_ok=True)
    (bench.files(ONE).locks / "1.json").write_text(
        '{"pid":1,"hostname":"elsewhere","timestamp":"2026-11-16T10:00:00Z"}'
    )
    assert runner.preview(ONE, build_program("one")).changes == {"same": 1}

    new = runner.preview(unit("new"), build_program("new"))

    assert new == PreviewResult(changes={"create": 1}, steps=(PreviewStep(op="create", resource="new", type=TOKEN),))
    assert not runner.exists(unit("new"))


def test_a_provider_that_refuses_is_quoted_without_its_secrets(bench: RunnerBench, runner: StackRunner) -> None:
    bench.shelves.refusals["one"] = f"no shelf\nfor {SECRET}"

    error = fail(runner, build_program("one", secret=SECRET))

    assert (error.fault, error.message) == (Fault.PROVIDER, "one: no shelf; for [secret]")
    assert error.exit_code == 1
    bench.shelves.refusals.clear()
    assert runner.record(ONE, build_program("one")).changes == {"create": 1}


def test_a_program_that_raises_is_told_from_everything_else(runner: StackRunner) -> None:
    def raises() -> None:
        raise LookupError("no such spec")

    def raises_later() -> None:
        Shelf("one").shelf.apply(lambda _: int("many"))

    at_once, later = fail(runner, raises), fail(runner, raises_later)

    assert (at_once.fault, at_once.message) == (Fault.PROGRAM, "LookupError: no such spec")
    assert (later.fault, later.message) == (Fault.PROGRAM, "invalid literal for int() with base 10: 'many'")


def test_a_backend_that_is_no_directory_is_an_error_until_it_is_back(bench: RunnerBench, runner: StackRunner) -> None:
    runner.record(ONE, build_program("one"))
    aside = bench.state.rename(bench.directory / "aside")
    bench.state.write_text("not a directory")

    error = fail(runner, build_program("one"))
    assert error.fault is Fault.BACKEND
    assert str(bench.state) in error.message
    for call in (runner.remove, runner.exists, runner.read_state):
        with pytest.raises(StackFailedError):
            call(ONE)
    bench.state.unlink()
    with pytest.raises(StackFailedError):
        runner.remove(unit("two"))

    aside.rename(bench.state)
    assert runner.record(ONE, build_program("one")).changes == {"same": 1}


def test_a_root_that_the_cli_cannot_use_is_the_backends_fault(bench: RunnerBench, runner: StackRunner) -> None:
    root = bench.files(ONE).root
    root.mkdir(parents=True)
    (root / ".pulumi").write_text("not a directory")

    assert fail(runner, build_program("one")).fault is Fault.BACKEND


def test_the_history_keeps_its_newest_updates(bench: RunnerBench, runner: StackRunner) -> None:
    history = bench.files(ONE).history
    history.mkdir(parents=True)
    for number in range(2 * KEPT_UPDATES):
        (history / f"{ONE.stack}-{number:019}.history.json.gz").touch()

    runner.record(ONE, build_program("one"))

    assert len(list(history.glob("*.history.json.gz"))) == KEPT_UPDATES
    assert len(list(history.glob("*.checkpoint.json.gz"))) == 1, "that of the update itself"


def test_asyncio_is_still_heard_after_a_run(runner: StackRunner) -> None:
    logger = logging.getLogger("asyncio")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        runner.record(ONE, build_program("one"))
        assert logger.level == logging.WARNING
    finally:
        logger.setLevel(level)


def test_a_backend_that_is_no_directory_is_asked_by_processes(bench: RunnerBench, runner: StackRunner) -> None:
    bench.files(ONE).root.mkdir(parents=True)
    # There is no other kind of backend here: this one's files are not looked at.
    runner._backend_directory = None

    assert runner.exists(ONE) is False
    assert runner.heal_lock(ONE, lease_expired=True) is False
    assert runner.record(ONE, build_program("one")).changes == {"create": 1}
    assert runner.record(ONE, build_program("one")).changes == {"same": 1}
    assert commands(bench)[2:] == ["stack init", "up --yes", "up --yes"]
    state = runner.read_state(ONE)
    assert state is not None
    assert TOKEN in {resource["type"] for resource in state["checkpoint"]["latest"]["resources"]}

    bench.files(ONE).locks.mkdir(parents=True, exist_ok=True)
    (bench.files(ONE).locks / "1.json").write_text("{}")
    assert runner.heal_lock(ONE, lease_expired=False) is False
    assert runner.heal_lock(ONE, lease_expired=True) is True
    runner.remove(ONE)
    runner.remove(ONE)
    assert not bench.files(ONE).find_state()


def test_a_stopped_runner_begins_nothing(runner: StackRunner) -> None:
    runner.stop()

    with pytest.raises(RunnerStoppedError):
        runner.record(ONE, build_program("one"))


WITHOUT_A_NAME = ("unshare", "--user", "--map-user=54321", "--map-group=54321")
"""Runs a command under a UID without a passwd entry, as a container with a number for its user does."""


def test_a_stack_is_recorded_under_a_uid_without_a_passwd_entry(
    bench: RunnerBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("USER", "HOME"):
        monkeypatch.delenv(name, raising=False)
    try:
        asked = subprocess.run([*WITHOUT_A_NAME, "whoami"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare on PATH")
    if "54321" not in asked.stderr:
        pytest.skip(f"no user namespaces for this user: {asked.stderr.strip()}")
    nameless = tmp_path / "nameless-pulumi"
    nameless.write_text(f'#!/bin/sh\nexec {" ".join(WITHOUT_A_NAME)} {bench.pulumi} "$@"\n')
    nameless.chmod(0o755)

    assert bench.build_runner(pulumi=nameless).record(ONE, build_program("one")).changes == {"create": 1}
