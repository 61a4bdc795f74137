"""Which attempt's log the API server asks for."""

import pytest

from gpu_platform.devcluster.hostnode.log_server import find_attempt
from gpu_platform.devcluster.hostnode.plan import Container, Waiting
from tests.unit.devcluster.hostnode.builders import ending, running


class TestLogOfAttempt:
    def test_the_newest_attempt_has_the_log(self) -> None:
        assert find_attempt(running(), previous=False) == 0

    def test_while_it_waits_the_newest_attempt_is_also_the_previous_one(self) -> None:
        crashed = Container("main", Waiting("CrashLoopBackOff"), last=ending(), attempt=3)
        assert find_attempt(crashed, previous=False) == 3
        assert find_attempt(crashed, previous=True) == 3
        again = Container("main", running().state, last=crashed.last, attempt=4)
        assert find_attempt(again, previous=True) == 3

    def test_what_never_ran_has_none(self) -> None:
        with pytest.raises(ValueError, match="is waiting to start: ContainerCreating"):
            find_attempt(Container("main", Waiting("ContainerCreating")), previous=False)
        with pytest.raises(ValueError, match="previous terminated container"):
            find_attempt(running(), previous=True)
