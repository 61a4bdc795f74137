"""What holds for all tests: order, tiers, and what the end of a run shows."""

import signal
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes, rbac_usage
from tests.support.fault_report import PROPERTY, FaultReport, FaultRow, build_table
from tests.support.module_seconds import MODULE_SECONDS

FAULTS = Path(__file__).parent / "faults"
SHOWN_MODULES = 50
RIGHTS = {"rbac-seen": rbac_usage.seen, "rbac-missed": rbac_usage.missed}


_seconds: dict[str, float] = defaultdict(float)
"""Of each module, over all of its tests and fixtures."""


def pytest_configure(config: pytest.Config) -> None:
    """A shell that starts us in the background lets us ignore Ctrl-C, and our children too. Tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(_Workers())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what belongs to `make faults`, and starts slow modules first: the last ones keep one worker busy alone."""
    for item in items:
        if item.path.is_relative_to(FAULTS):
            item.add_marker(pytest.mark.faults)
    items.sort(key=lambda item: -MODULE_SECONDS.get(item.nodeid.partition("::")[0], 0))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    processes.begin_test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failing test shows the last lines of the processes that were involved."""
    report = yield
    if report.failed:
        report.sections += [(f"last lines of {name}", text) for name, text in processes.list_last_lines()]
    # A worker cannot send lone surrogates, which some tests log.
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(autouse=True)
def faults(request: pytest.FixtureRequest) -> Iterator[FaultReport]:
    """The figures of a fault test. One that caused no fault fails: it would prove nothing."""
    report = FaultReport()
    yield report
    if request.node.get_closest_marker("faults") is not None:
        request.node.user_properties.append((PROPERTY, report.to_json()))
        if not report.hits:
            pytest.fail("this fault test hit no fault")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker sends its figures to the process that started it. That one fails when a process missed a right."""
    if hasattr(session.config, "workeroutput"):
        for name, rights in RIGHTS.items():
            # Only plain types cross over.
            session.config.workeroutput[name] = [[str(part) for part in right] for right in sorted(rights)]
    elif rbac_usage.missed and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


class _Workers:
    """Hooks of pytest-xdist, which does not know them where it is not used."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for name, rights in RIGHTS.items():
            sent = getattr(node, "workeroutput", {}).get(name, ())
            rights.update(rbac_usage.Right(*right) for right in sent)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if hasattr(terminalreporter.config, "workerinput"):
        return
    _show_costs(terminalreporter)
    _show_faults(terminalreporter)
    _show_missed_rights(terminalreporter)
    _show_unused_rights(terminalreporter)


def _show_costs(terminal: Any) -> None:
    terminal.section(f"seconds per module, the {SHOWN_MODULES} slowest")
    for module, seconds in sorted(_seconds.items(), key=lambda item: -item[1])[:SHOWN_MODULES]:
        terminal.write_line(f"{seconds:8.1f}  {module}")
    terminal.write_line(f"{sum(_seconds.values()):8.1f}  all {len(_seconds)} modules")


def _show_faults(terminal: Any) -> None:
    rows: dict[str, FaultRow] = defaultdict(FaultRow)
    reports = [each for group in terminal.stats.values() for each in group if isinstance(each, pytest.TestReport)]
    failed = {report.nodeid for report in reports if report.failed}
    for report in reports:
        figures: Any = dict(report.user_properties).get(PROPERTY)
        if figures is not None and report.when == "teardown":
            rows[report.nodeid.partition("[")[0]].add(figures, failed=report.nodeid in failed)
    if rows:
        terminal.section("faults")
        for line in build_table(rows):
            terminal.write_line(line)


def _show_missed_rights(terminal: Any) -> None:
    if rbac_usage.missed:
        terminal.section(f"RBAC: {len(rbac_usage.missed)} rights missed, the run fails", red=True)
        for right in sorted(rbac_usage.missed):
            terminal.write_line(str(right))


def _show_unused_rights(terminal: Any) -> None:
    """After a whole tier of tests on real parts: the rights that neither this run nor the last one of the other tier
    has used."""
    tiers = ("not faults", "faults")
    tier = terminal.config.option.markexpr
    if tier not in tiers or not rbac_usage.seen:
        return
    cache = terminal.config.cache
    cache.set(rbac_usage.CACHE_KEY.format(tier), sorted(rbac_usage.seen))
    runs = {each: cache.get(rbac_usage.CACHE_KEY.format(each), None) for each in tiers}
    used = {rbac_usage.Right(*right) for rights in runs.values() for right in rights or ()}
    unused = rbac_usage.list_unused(used)
    terminal.section(f"RBAC: {len(unused)} of {len(set(rbac_usage.list_declared()))} rights unused")
    if missing := [each for each, rights in runs.items() if rights is None]:
        terminal.write_line(f"(without the tests marked {', '.join(missing)!r}, which have not run here)")
    for right in unused:
        terminal.write_line(str(right))
