"""What a unit's status says: phase, Ready condition, address. Pure."""

from dataclasses import dataclass
from datetime import datetime

from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition, set_condition
from gpu_platform.domain.ssh import SshPhase, SshStatus, access_command, target_host
from gpu_platform.domain.units import GPUUnitStatus, Phase, Reason
from reconciler.child_diff import UnitChild
from reconciler.units.observe import Observed
from reconciler.units.pod_status import (
    describe_wait,
    find_container_failure,
    find_failure,
    find_node,
    find_ready,
    find_unschedulable,
)
from reconciler.units.resources import UnitBuild, build_route, template_hash
from reconciler.units.route_resources import NO_ROUTES, find_route_wait, wants_route
from reconciler.units.ssh_resources import CONTAINERS, SshBuild

READY = "Ready"
SSH_READY = "SSHReady"
PUBLISHED = "Published"


@dataclass(frozen=True)
class Verdict:
    """What the unit's Ready condition says."""

    phase: Phase
    reason: Reason
    message: str


@dataclass(frozen=True)
class SshVerdict:
    """What its SSHReady condition says."""

    phase: SshPhase
    reason: Reason
    message: str


def judge(observed: Observed, build: UnitBuild, now: datetime) -> Verdict:
    """The Ready condition of a unit whose objects are as they should be; rows from top to bottom. A pod in a crash loop
    is not Ready, see `find_trial`.

    | deployment | pods                                | verdict                                          |
    | ---------- | ----------------------------------- | ------------------------------------------------ |
    | above 0    | one of the newest template is Ready | Ready · UnitReady (StockReady)                   |
    | any        | one cannot start                    | Failed · PodStartupFailed, the container's words |
    | any        | one has no place                    | Pending · Unschedulable, the scheduler's words   |
    | any        | any other                           | Progressing · UnitProgressing (StockNotReady),   |
    |            |                                     | what `describe_wait` sees                        |
    """
    if observed.is_scaled_up and find_ready(observed.pods, template_hash(build), now) is not None:
        reason = Reason.STOCK_READY if build.is_stock else Reason.UNIT_READY
        return Verdict(Phase.READY, reason, "holds its GPUs" if build.is_stock else "runs")
    if failure := find_failure(observed.pods, now):
        return Verdict(Phase.FAILED, Reason.POD_STARTUP_FAILED, failure)
    if unschedulable := find_unschedulable(observed.pods):
        return Verdict(Phase.PENDING, Reason.UNSCHEDULABLE, unschedulable)
    reason = Reason.STOCK_NOT_READY if build.is_stock else Reason.UNIT_PROGRESSING
    return Verdict(Phase.PROGRESSING, reason, describe_wait(observed.pods, observed.away, observed.deployment))


def judge_ssh(observed: Observed, ssh: SshBuild, verdict: Verdict) -> SshVerdict:
    """The SSHReady condition; rows from top to bottom.

    | unit          | token                  | its two sidecars   | verdict                 |
    | ------------- | ---------------------- | ------------------ | ----------------------- |
    | any           | one was sent, and lost | any                | Failed · UnitSSHFailed  |
    | Stopped       | any other              | any                | Pending · UnitSSHPending |
    | any           | any other              | one cannot start   | Failed · UnitSSHFailed, the container's words |
    | Ready         | any other              | any other          | Ready · UnitSSHReady    |
    | any other     | any other              | any other          | Pending · UnitSSHPending |
    """
    if ssh.token_secret is not None and observed.token_secret is None:
        message = "the FRP server's token is not there any more: send `ssh` with its token again"
        return SshVerdict(SshPhase.FAILED, Reason.UNIT_SSH_FAILED, message)
    if verdict.phase is Phase.STOPPED:
        return SshVerdict(SshPhase.PENDING, Reason.UNIT_SSH_PENDING, "the unit is stopped")
    if failure := find_container_failure(observed.pods, CONTAINERS):
        return SshVerdict(SshPhase.FAILED, Reason.UNIT_SSH_FAILED, failure)
    if verdict.phase is Phase.READY:
        return SshVerdict(SshPhase.READY, Reason.UNIT_SSH_READY, "server and FRP client run")
    return SshVerdict(SshPhase.PENDING, Reason.UNIT_SSH_PENDING, "the unit is not ready yet")


def build_status(observed: Observed, build: UnitBuild, verdict: Verdict, now: datetime) -> GPUUnitStatus:
    plain = plain_status(observed, verdict, now)
    is_ready = verdict.phase is Phase.READY
    has_service = not build.is_stock and bool(build.spec.template.ports)
    ssh = judge_ssh(observed, build.ssh, verdict) if build.ssh is not None else None
    wait = find_wait_to_be_public(observed, build, verdict)
    status = plain.model_copy(
        update={
            "ready_replicas": 1 if is_ready else 0,
            "service_name": names.child_name(build.name) if has_service else None,
            "access_url": _access_url(build) if is_ready else None,
            "public_url": build.route.url if build.route is not None and wait is None else None,
            "ssh": _ssh_status(build.ssh, ssh) if build.ssh is not None and ssh is not None else None,
        }
    )
    if ssh is not None:
        status = _with_condition(status, observed, SSH_READY, ssh.phase is SshPhase.READY, ssh.reason, ssh.message, now)
    if wait is not None:
        status = _with_condition(status, observed, PUBLISHED, False, Reason.UNIT_NOT_PUBLISHED, wait, now)
    elif build.route is not None:
        message = f"everybody can call it at {build.route.url}"
        status = _with_condition(status, observed, PUBLISHED, True, Reason.UNIT_PUBLISHED, message, now)
    return status


def find_wait_to_be_public(observed: Observed, build: UnitBuild, verdict: Verdict) -> str | None:
    """What its public address waits for, in words; None when the public can call it, or was never asked to."""
    if not wants_route(build.spec, build.namespace):
        return None
    if build.route is None:
        return NO_ROUTES
    if verdict.phase is Phase.STOPPED:
        return "the unit is stopped"
    if verdict.phase is not Phase.READY:
        return "the unit is not ready yet"
    kind = build.route.settings.kind
    desired = build_route(build, kind)
    return find_route_wait(desired, observed.children.get(kind)) if desired is not None else None


def _with_condition(
    status: GPUUnitStatus, observed: Observed, kind: str, is_met: bool, reason: Reason, message: str, now: datetime
) -> GPUUnitStatus:
    """The same with this condition, which remembers since when it is as it is."""
    before = find_condition(GPUUnitStatus.of(observed.unit).conditions, kind)
    others = [each for each in status.conditions if each.type != kind]
    conditions = set_condition(
        (*others, *([before] if before else [])),
        kind,
        is_met=is_met,
        reason=reason,
        message=message,
        generation=status.observed_generation,
        now=now,
    )
    return status.model_copy(update={"conditions": conditions})


def _ssh_status(ssh: SshBuild, verdict: SshVerdict) -> SshStatus:
    block = ssh.block
    return SshStatus(
        phase=verdict.phase,
        username=block.username,
        target_host=target_host(block, ssh.namespace, ssh.unit),
        connect_host=block.connect_host or "",
        connect_port=block.connect_port,
        access_command=access_command(block, ssh.namespace, ssh.unit) if verdict.phase is SshPhase.READY else None,
    )


def plain_status(observed: Observed, verdict: Verdict, now: datetime) -> GPUUnitStatus:
    """Without a word about SSH and the public: that is for units whose objects can be built."""
    old = GPUUnitStatus.of(observed.unit)
    kept = [each for each in old.conditions if each.type not in (SSH_READY, PUBLISHED)]
    generation = observed.unit["metadata"].get("generation")
    conditions = set_condition(
        kept,
        READY,
        is_met=verdict.phase is Phase.READY,
        reason=verdict.reason,
        message=verdict.message,
        generation=generation,
        now=now,
    )
    return GPUUnitStatus(
        phase=verdict.phase,
        observed_generation=generation,
        last_sync_time=now,
        # Not while it starts: one status write more per unit, for something that is of use once it runs.
        node_name=None if verdict.phase is Phase.PROGRESSING else find_node(observed.pods),
        conditions=conditions,
    )


def _access_url(build: UnitBuild) -> str | None:
    """None where there is no Service."""
    port = build.spec.primary_port
    if port is None or build.is_stock:
        return None
    scheme = build.spec.access.scheme if build.spec.access else "http"
    return f"{scheme}://{names.service_host(build.name, build.namespace)}:{port.port}"


def with_refused_route(status: GPUUnitStatus, observed: Observed, message: str, now: datetime) -> GPUUnitStatus:
    """The same after the API server refused the unit's route, or its removal."""
    hidden = status.model_copy(update={"public_url": None})
    return _with_condition(hidden, observed, PUBLISHED, False, Reason.UNIT_ROUTE_SYNC_FAILED, message, now)


def with_sync_failure(observed: Observed, kind: UnitChild | None, message: str, now: datetime) -> GPUUnitStatus:
    """The status after the API server refused one of the unit's objects; without a kind, the Secret of its token."""
    reasons = {
        UnitChild.NETWORK_POLICY: Reason.UNIT_NETWORK_POLICY_SYNC_FAILED,
        UnitChild.SERVICE: Reason.UNIT_SERVICE_SYNC_FAILED,
        UnitChild.CONFIG_MAP: Reason.UNIT_SSH_FAILED,
        UnitChild.DEPLOYMENT: Reason.UNIT_DEPLOYMENT_SYNC_FAILED,
    }
    reason = reasons[kind] if kind is not None else Reason.UNIT_SSH_FAILED
    return plain_status(observed, Verdict(Phase.FAILED, reason, message), now)
