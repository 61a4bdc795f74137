"""When NATS counts as storing nothing."""

import pytest

from gpu_platform.nats.durability import NO_ACKNOWLEDGEMENT, NO_STREAM, PROBES, Probe, judge_storage
from gpu_platform.nats.subjects import BODIES, QUEUE, RECORDS, queue_subject, record_subject

STORED = Probe()
SILENT = Probe({RECORDS: NO_ACKNOWLEDGEMENT})
FULL = Probe({RECORDS: NO_ACKNOWLEDGEMENT, QUEUE: NO_ACKNOWLEDGEMENT}, "no space left on device")
FAILING = Probe({QUEUE: NO_ACKNOWLEDGEMENT}, "input/output error")
MISSING = Probe({QUEUE: NO_STREAM, BODIES: NO_STREAM})
REFUSED = Probe({BODIES: "NATS failed: insufficient resources"})
ANY = (STORED, SILENT, FULL)


@pytest.mark.parametrize(
    ("last", "before", "verdict"),
    [
        *((STORED, before, None) for before in ANY),
        *(
            (FULL, before, f"NATS stores nothing in {RECORDS}, {QUEUE}: storage full (no space left on device)")
            for before in ANY
        ),
        *((FAILING, before, f"NATS stores nothing in {QUEUE}: storage failing (input/output error)") for before in ANY),
        (MISSING, STORED, None),
        (MISSING, MISSING, f"NATS stores nothing in {BODIES}, {QUEUE}: no stream answers"),
        (REFUSED, STORED, None),
        (REFUSED, SILENT, f"NATS stores nothing in {BODIES}: NATS failed: insufficient resources"),
        (SILENT, STORED, None),
        (SILENT, SILENT, f"NATS answers and stores nothing in {RECORDS}: storage full or failing"),
        (SILENT, FULL, f"NATS answers and stores nothing in {RECORDS}: storage full or failing"),
    ],
)
def test_one_slow_write_is_no_outage_and_a_cause_is_named_only_when_it_was_seen(
    last: Probe, before: Probe, verdict: str | None
) -> None:
    assert judge_storage(last, before) == verdict


def test_no_call_has_the_subject_of_a_probe() -> None:
    calls = {record_subject("*", "*", "*"), queue_subject("*", "*", "*")}
    assert {subject.count(".") for subject in calls}.isdisjoint({subject.count(".") for subject in PROBES.values()})
