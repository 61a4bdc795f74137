"""A pass waits for the echo of our own last write, but not for ever."""

from datetime import datetime, timedelta

from reconciler.expectations import PATIENCE, OwnWrites
from tests.support.builders import NOW, make_unit

PLACE = ("Deployment", "runtime-instance", "unit-demo")


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def test_what_was_never_written_is_never_outdated() -> None:
    assert not OwnWrites(Clock()).are_outdated([(PLACE, None), (PLACE, make_unit())])


def test_an_object_that_we_made_is_outdated_while_it_is_not_seen() -> None:
    writes = OwnWrites(Clock())
    writes.remember(PLACE, None)
    assert writes.are_outdated([(PLACE, None)])
    assert not writes.are_outdated([(PLACE, make_unit())])
    # Its echo came: when it is missing now, somebody deleted it.
    assert not writes.are_outdated([(PLACE, None)])


def test_an_object_that_we_changed_is_outdated_in_its_old_version() -> None:
    writes = OwnWrites(Clock())
    old, new = make_unit(), make_unit()
    new["metadata"]["resourceVersion"] = "8"
    writes.remember(PLACE, old)
    assert writes.are_outdated([(PLACE, old)])
    assert not writes.are_outdated([(PLACE, new)])


def test_an_echo_that_never_comes_is_not_waited_for_longer_than_its_time() -> None:
    clock = Clock()
    writes = OwnWrites(clock)
    writes.remember(PLACE, None)
    clock.now += PATIENCE
    assert not writes.are_outdated([(PLACE, None)])


def test_writes_to_what_nobody_looks_at_any_more_are_forgotten() -> None:
    clock = Clock()
    writes = OwnWrites(clock)
    writes.remember(("Service", "a", "gone"), None)
    clock.now += PATIENCE + timedelta(seconds=1)
    writes.remember(PLACE, None)
    clock.now -= PATIENCE
    assert not writes.are_outdated([(("Service", "a", "gone"), None)])
