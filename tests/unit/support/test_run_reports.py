"""What the end of a test run shows: costs, faults, the logs of a failing test, the stacks of one that hangs."""

import subprocess
import sys
from pathlib import Path

from tests.architecture.repository import ROOT

TESTS = """
import threading
import pytest
from tests.support.processes import watched_file

@pytest.mark.faults
def test_hits(faults):
    faults.hit("process killed", 3)
    faults.held("nothing is lost")

@pytest.mark.faults
def test_misses(faults):
    pass

def test_fails(tmp_path):
    log = tmp_path / "reconciler.log"
    log.write_text("before\\nlease lost\\n")
    with watched_file(log):
        pass
    print("\\ud800")
    assert False

def test_hangs():
    threading.Event().wait()
"""
OPTIONS = ("-c", "/dev/null", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "1", "--timeout", "1")
MARKERS = "markers=faults: of the other tier"


def test_a_run_explains_itself(tmp_path: Path) -> None:
    file = tmp_path / "test_small.py"
    file.write_text(TESTS)

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, "-o", MARKERS, "--rootdir", str(tmp_path), str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert "this fault test hit no fault" in run.stdout
    assert "last lines of reconciler" in run.stdout
    assert "lease lost" in run.stdout
    assert "    1           3           1           0  test_small.py::test_hits" in run.stdout
    assert "    2           3           1           1  all" in run.stdout
    assert "all 1 modules" in run.stdout
    assert "Failed: Timeout (>1.0s)" in run.stdout
    assert "threading.Event().wait()" in run.stdout
    assert "2 failed, 2 passed, 1 error" in run.stdout, run.stdout
