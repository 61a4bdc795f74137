"""The table at the end of `make faults`."""

from tests.support.fault_report import FaultReport, FaultRow, build_table


def test_all_runs_of_a_test_are_one_row_and_the_last_row_is_their_sum() -> None:
    crash, race = FaultRow(), FaultRow()
    for fault in ("api.stock-claimed", "api.unit-created"):
        report = FaultReport()
        report.hit(fault)
        report.held("one unit per operation", "no claim is left")
        crash.add(report.to_json(), failed=fault == "api.unit-created")
    report = FaultReport()
    report.hit("units at once", 50)
    race.add(report.to_json(), failed=False)

    assert build_table({"test_units.py::test_crash": crash, "test_units.py::test_race": race}) == [
        " runs  faults hit  invariants  violations  test",
        "    2           2           4           1  test_units.py::test_crash",
        "    1          50           0           0  test_units.py::test_race",
        "    3          52           4           1  all",
    ]
