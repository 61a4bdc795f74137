"""What became of a stack. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gpu_platform.domain.stacks import StackAddress
from stacks.restore.plan import Action, Step

Json = dict[str, Any]


class Result(Enum):
    RESTORED = "restored"
    THERE = "already there"
    LEFT = "left alone"
    EMPTY = "empty"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


RESULTS = {
    Action.NOTHING: Result.THERE,
    Action.LEAVE: Result.LEFT,
    Action.SKIP: Result.EMPTY,
    Action.REFUSE: Result.FAILED,
}


@dataclass(frozen=True)
class Outcome:
    address: StackAddress
    result: Result
    reason: str = ""
    is_without_stock: bool = False
    """A running unit that was made without a claim: it gets its GPUs when some are free."""

    def to_json(self) -> Json:
        return {
            "stack": self.address.full_name,
            "result": self.result.value,
            "reason": self.reason or None,
            "withoutStock": self.is_without_stock,
        }


def outcome_of(address: StackAddress, step: Step) -> Outcome:
    """Of a step for which Pulumi is not run."""
    return Outcome(address, RESULTS[step.action], step.reason)


def count_results(outcomes: Iterable[Outcome]) -> dict[Result, int]:
    """Those that there are, in the order in which they are told."""
    counted = Counter(outcome.result for outcome in outcomes)
    return {result: counted[result] for result in Result if counted[result]}
