"""Whether what was waited for has come. Pure."""

from dataclasses import dataclass
from enum import Enum, auto

from gpu_platform.cli.tables import build_why
from gpu_platform.cli.views import (
    FunctionView,
    JobView,
    PoolView,
    PreviewView,
    StackView,
    StockUnitView,
    StorageView,
    UnitView,
)


class Outcome(Enum):
    NOT_YET = auto()
    DONE = auto()
    FAILED = auto()


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    state: str
    """In words: shown while waiting, and told when it fails."""


def judge_settled(unit: UnitView | None, phase: str, generation: int) -> Verdict:
    """Whether the unit is in this phase, judged from the spec that was accepted or from a later one.

    | unit                                           | verdict |
    | ---------------------------------------------- | ------- |
    | gone                                           | failed  |
    | shown as it was before, or not looked at since | not yet |
    | in the phase                                   | done    |
    | Failed, on its way out                         | failed  |
    | anything else                                  | not yet |
    """
    if unit is None:
        return Verdict(Outcome.FAILED, "it is gone")
    state = build_state(unit["phase"], build_why(unit))
    if unit["phase"] == "Terminating":
        return Verdict(Outcome.FAILED, state)
    if unit["generation"] < generation or unit.get("observedGeneration") != unit["generation"]:
        return Verdict(Outcome.NOT_YET, state)
    if unit["phase"] == phase:
        return Verdict(Outcome.DONE, state)
    return Verdict(Outcome.FAILED if unit["phase"] == "Failed" else Outcome.NOT_YET, state)


UNPROBED_SECONDS = 2.0
"""How long a unit without probes stays Ready before `--wait` believes it: without a probe, a program that ends at once
is Ready for a moment. Chosen by feel; most programs that cannot start have ended by then."""


def find_steady_seconds(unit: UnitView, phase: str) -> float:
    """How long the unit must stay in the phase before it counts as reached."""
    probes = (unit.get("template") or {}).get("probes") or {}
    is_probed = bool(probes.get("readiness") or probes.get("startup"))
    return UNPROBED_SECONDS if phase == "Ready" and not is_probed else 0.0


def judge_gone(seen: UnitView | StorageView | None) -> Verdict:
    if seen is None:
        return Verdict(Outcome.DONE, "gone")
    return Verdict(Outcome.NOT_YET, build_state(seen["phase"], build_why(seen)))


def judge_accepted(refusal: str | None) -> Verdict:
    """Of a request that is sent again and again; without a refusal it was accepted."""
    return Verdict(Outcome.NOT_YET, refusal) if refusal else Verdict(Outcome.DONE, "accepted")


def judge_job(job: JobView) -> Verdict:
    if job["status"] == "failed":
        return Verdict(Outcome.FAILED, f"failed: {job.get('error') or 'the platform does not say why'}")
    return Verdict(Outcome.DONE if job["status"] == "succeeded" else Outcome.NOT_YET, job["status"])


def judge_seeded(stock: list[StockUnitView] | None) -> Verdict:
    """Whether the stock that a job made can be claimed. None of it left: others were faster, and it was made."""
    waiting = [unit for unit in stock or () if unit["state"] == "waiting"]
    total = len(stock or ())
    state = f"{total - len(waiting)} of {total} ready"
    if not waiting:
        return Verdict(Outcome.DONE, state)
    why = build_why(waiting[0]) or waiting[0]["phase"]
    return Verdict(Outcome.NOT_YET, f"{state}; {waiting[0]['name']} waits ({why})")


def judge_recorded(stack: StackView | None) -> Verdict:
    """A try that failed is no end: it is tried again."""
    if stack is None:
        return Verdict(Outcome.FAILED, "it is gone")
    if stack["recorded"]:
        return Verdict(Outcome.DONE, "recorded")
    error = stack.get("error")
    return Verdict(Outcome.NOT_YET, f"failed {stack['failures']} times: {error}" if error else "not recorded yet")


def judge_preview(preview: PreviewView | None) -> Verdict:
    if preview is None:
        return Verdict(Outcome.FAILED, "the platform does not know it")
    state = build_state(preview["phase"], build_why(preview))
    outcomes = {"Succeeded": Outcome.DONE, "Failed": Outcome.FAILED}
    return Verdict(outcomes.get(preview["phase"], Outcome.NOT_YET), state)


def judge_ready(seen: PoolView | FunctionView | StorageView | None) -> Verdict:
    if seen is None:
        return Verdict(Outcome.FAILED, "it is gone")
    state = build_state(seen["phase"], build_why(seen))
    if seen["phase"] == "Terminating":
        return Verdict(Outcome.FAILED, state)
    if seen.get("observedGeneration") != seen["generation"]:
        return Verdict(Outcome.NOT_YET, state)
    outcomes = {"Ready": Outcome.DONE, "Failed": Outcome.FAILED}
    return Verdict(outcomes.get(seen["phase"], Outcome.NOT_YET), state)


def judge_recovered(seen: StorageView | None, failed_digest: str | None) -> Verdict:
    """As `judge_ready`, but the preparation that had failed before is no news."""
    if seen is not None and seen["phase"] == "Failed" and seen["prepareStatus"].get("observedDigest") == failed_digest:
        return Verdict(Outcome.NOT_YET, "not begun")
    return judge_ready(seen)


def build_state(phase: str, why: str) -> str:
    return f"{phase} ({why})" if why else phase


def build_goes_on(group: str, name: str) -> str:
    """What becomes of an object that is no longer waited for. `group` are its commands."""
    noun = group.removesuffix("s")
    command = f"gpu-platform {group}"
    return f"the {noun} {name} lives on: `{command} get {name}` shows it, `{command} delete {name}` deletes it"
