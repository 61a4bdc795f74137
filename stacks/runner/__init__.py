"""Runs Pulumi for one stack: records, previews, removes. Synchronous; called from worker threads.

It decides nothing about when a stack is due, and holds no lease: callers see to it that one of them works on a stack.
"""

from stacks.runner.results import (
    Fault,
    RunnerStoppedError,
    StackFailedError,
    UnfitPulumiError,
)
from stacks.runner.runner import RunnerSettings, StackRunner, UpResult

__all__ = [
    "Fault",
    "RunnerSettings",
    "RunnerStoppedError",
    "StackFailedError",
    "StackRunner",
    "UnfitPulumiError",
    "UpResult",
]
