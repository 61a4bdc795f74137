"""What to do about one unit: a pure function from what was observed to writes and status; with the Secrets of its FRP
tokens, and whether it may have the storages that it mounts.

A unit's pod is given a storage only while the unit holds it (`gpu_platform.domain.mount_holds`).
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import ClassVar, Self

from gpu_platform.domain import names
from gpu_platform.domain.conditions import reason_of
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import find_instant, key_of
from gpu_platform.domain.mount_holds import hold_of, unit_holder
from gpu_platform.domain.network import KUBE_DNS, DnsPods
from gpu_platform.domain.quantities import QuantityError, parse_amount
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.ssh import plan_spare_tokens, read_spare_tokens, with_spare_tokens
from gpu_platform.domain.stock import HANDOFF_LIMIT, claimed_at
from gpu_platform.domain.storages import GPUStorageStatus, is_mountable
from gpu_platform.domain.units import GPUUnitSpec, GPUUnitStatus, Phase, Reason, normalise_mounts
from gpu_platform.domain.value import RequestError
from reconciler.child_diff import UnitChild, plan_child, plan_removal
from reconciler.guarded_writes import DeleteObject, ObjectWrite, ReplaceObject
from reconciler.pod_templates import choose_template
from reconciler.units.observe import Observed
from reconciler.units.pod_status import find_away, find_node, find_trial, find_unschedulable, is_finished
from reconciler.units.resources import (
    UnitBuild,
    build_config_map,
    build_deployment,
    build_network_policy,
    build_route,
    build_service,
    find_preferred_node,
)
from reconciler.units.route_resources import ROUTES, RouteSettings, find_access_problem, plan_route
from reconciler.units.serverless_resources import (
    SidecarSettings,
    find_serverless_problem,
    is_made_for_function,
    plan_worker,
)
from reconciler.units.ssh_resources import SshSettings, find_ssh_problem, find_token_secret, plan_ssh
from reconciler.units.status import Verdict, build_status, judge, plain_status

QUIET_START = timedelta(seconds=2)
"""How long a new unit may start before its status says so (creation times are whole seconds, so it is 1 to 2 s). Most
are Ready after a tenth of that, and every write slows down the start."""

CONSUME_LIMIT = timedelta(seconds=2)
"""How long after its claim stock stands while its holder, scheduled already, becomes Ready: its end brings the refill,
and a tenant waits."""

LURKER_LIMIT = timedelta(seconds=2)
"""How long claimed stock keeps its GPUs until other stock's pods no longer wait for them."""

WRITTEN = (
    None,
    *(Reason.UNIT_READY, Reason.UNIT_PROGRESSING),
    *(Reason.STOCK_READY, Reason.STOCK_NOT_READY),
)
"""Reasons of a status that comes after the Deployment. The others may stand beside one that an earlier spec left."""

TOKEN_INTERVAL = timedelta(seconds=15)
"""Between two looks for a token that was lost: nobody says when somebody sends it again."""


@dataclass(frozen=True)
class DeleteSecret:
    """The unit has another token by now, or none."""

    namespace: str
    name: str
    kind: ClassVar[str] = "Secret"


Write = ObjectWrite | DeleteSecret


def plan_token_secrets(observed: Observed, build: UnitBuild) -> tuple[Write, ...]:
    """Before the Deployment, which says by its template which Secret is the last one that was dealt with."""
    writes: list[Write] = []
    used = find_token_secret(observed.deployment)
    if used is not None and used != (build.ssh.token_secret if build.ssh else None):
        writes.append(DeleteSecret(build.namespace, used))
    secret = observed.token_secret
    owner = names.owner_reference("GPUUnit", build.name, build.uid)
    if secret is not None and secret["metadata"].get("ownerReferences") != [owner]:
        # From now on it is deleted with the unit.
        adopted = {**secret["metadata"], "ownerReferences": [owner]}
        writes.append(ReplaceObject("Secret", {**secret, "metadata": adopted}))
    return tuple(writes)


@dataclass(frozen=True)
class UnitSettings:
    placeholder_image: str
    blocked_egress: tuple[str, ...]
    """Networks that units do not reach, those of the API server among them."""

    ssh: SshSettings
    sidecar: SidecarSettings | None = None
    """None: there is no NATS, and so there are no calls."""

    api_servers: frozenset[tuple[str, int]] = frozenset()
    """Addresses and ports of the API server."""

    route: RouteSettings | None = None
    """None: units have no addresses on the internet."""

    dns: DnsPods = KUBE_DNS


@dataclass(frozen=True)
class Plan:
    writes: tuple[Write, ...]
    status: GPUUnitStatus
    requeue_after: timedelta | None = None
    why: str = ""

    def looking_again(self, wait: timedelta, why: str) -> Self:
        """The same plan, with another look after this time at the latest."""
        return replace(self, requeue_after=min(wait, self.requeue_after or wait), why=self.why or why)


def plan_unit(observed: Observed, settings: UnitSettings, now: datetime) -> Plan:
    """Rows are tried from top to bottom. A *hand-off* is under way while stock is claimed and not yet consumed.

    | unit                             | hand-off                                | writes                  | phase · reason              |
    | -------------------------------- | --------------------------------------- | ----------------------- | --------------------------- |
    | being deleted                    | any                                     | none                    | Terminating · Terminating   |
    | spec or catalogue entry is wrong | any                                     | no route it does not want | Failed · InvalidSpec      |
    | access that cannot be            | any                                     | likewise                | Failed · AccessConfigInvalid |
    | takes calls that cannot come     | any                                     | likewise                | Failed · ServerlessConfigInvalid |
    | SSH that cannot be               | any                                     | likewise                | Failed · SSHConfigInvalid   |
    | a storage cannot be mounted      | any                                     | likewise                | Failed · StorageMountInvalid |
    | claimed stock                    | its holder is scheduled and Ready, or 2 s old | consume it        | as it was                   |
    | claimed stock                    | its holder was stopped or deleted, 2 s old | consume it           | as it was                   |
    | claimed stock                    | other stock lurks for its GPUs          | keep its pod, look again | as it was                   |
    | claimed stock                    | else                                    | scale to 0              | as it was                   |
    | not running, a pod has not ended | any                                     | children, 0 replicas    | Progressing · Stopping      |
    | not running                      | any                                     | children, 0 replicas    | Stopped · Stopped           |
    | free stock, no Deployment        | of other stock, under way               | all but the Deployment  | Progressing · StockNotReady |
    | free stock, unschedulable        | of other stock, under way               | scale to 0              | Pending · Unschedulable     |
    | instance, no Deployment, or at 0 | its stock's pod is still there          | all but the Deployment  | Progressing · UnitProgressing |
    | a storage is not Ready           | any                                     | all but the Deployment  | Progressing · StorageNotReady, unless a pod says more |
    | any other                        | any                                     | children                | by the pods, see `judge`    |

    Besides, in all rows but the first two: Secrets of spare tokens, see `plan_spare_tokens`.
    """
    if "deletionTimestamp" in observed.unit["metadata"]:
        leaving = Verdict(Phase.TERMINATING, Reason.TERMINATING, "waits for its objects to go")
        return Plan((), plain_status(observed, leaving, now))
    spec = GPUUnitSpec.parse(observed.unit.get("spec", {}))
    if spec is None:
        return Plan((), plain_status(observed, _invalid("spec does not fit the schema of this version"), now))
    return _with_spare_tokens(observed, spec, _plan_spec(observed, spec, settings, now), now)


def _with_spare_tokens(observed: Observed, spec: GPUUnitSpec, plan: Plan, now: datetime) -> Plan:
    """The same plan, and what is done about spare tokens, also where nothing else can be done for the unit."""
    digest = spec.ssh.token_hash if spec.ssh is not None else None
    spare = plan_spare_tokens(observed.unit, digest, find_token_secret(observed.deployment), now)
    writes = list[Write](DeleteSecret(observed.unit["metadata"]["namespace"], name) for name in spare.deleted)
    if spare.listed != read_spare_tokens(observed.unit, now):
        listed = with_spare_tokens(observed.stored or observed.unit, spare.listed)
        writes.append(ReplaceObject("GPUUnit", listed))
    plan = replace(plan, writes=(*plan.writes, *writes))
    return plan.looking_again(spare.wait, "a token is not needed any more") if spare.wait is not None else plan


def _plan_spec(observed: Observed, spec: GPUUnitSpec, settings: UnitSettings, now: datetime) -> Plan:
    catalogue = observed.catalogue
    if catalogue is None:
        missing = _invalid(f"spec.specName: there is no GPUSpec {spec.spec_name!r}; see `kubectl get gpuspecs`")
        return _plan_impossible(observed, spec, settings, missing, now)
    if problem := find_problem(observed, spec, catalogue, settings):
        return _plan_impossible(observed, spec, settings, problem, now)
    is_running = spec.running and not observed.is_claimed_stock
    build = _build(observed, spec, catalogue, settings, now, replicas=1 if is_running else 0)
    if observed.is_claimed_stock:
        return _plan_claimed_stock(observed, build, now)
    if not is_running:
        verdict = _judge_stopped(observed)
        plan = Plan(_child_writes(observed, build), build_status(observed, build, verdict, now))
    else:
        plan = _unhurried(observed, _plan_running(observed, build, now), now)
    if build.ssh is not None and build.ssh.token_secret is not None and observed.token_secret is None:
        return plan.looking_again(TOKEN_INTERVAL, "its token may be sent again")
    return plan


def _judge_stopped(observed: Observed) -> Verdict:
    """A pod holds its GPUs until it is gone, also while it ends. One that was evicted or rejected runs nothing, and
    Kubernetes keeps it for a long time."""
    holding = [pod for pod in observed.pods if not is_finished(pod)]
    if holding:
        why = find_away(holding, observed.away) or "its pod still holds its GPUs"
        return Verdict(Phase.PROGRESSING, Reason.STOPPING, f"stopping; {why}")
    return Verdict(Phase.STOPPED, Reason.STOPPED, "stopped; its GPUs are free")


def _plan_running(observed: Observed, build: UnitBuild, now: datetime) -> Plan:
    verdict = judge(observed, build, now)
    storage_wait = find_waits(observed, build.spec)
    if storage_wait is not None and verdict.phase is Phase.PROGRESSING:
        verdict = storage_wait
    status = build_status(observed, build, verdict, now)
    if (wait := _stock_holds_back(observed, build, now)) is not None:
        is_unscheduled = find_unschedulable(observed.pods) is not None
        writes = _child_writes(observed, replace(build, replicas=0), with_deployment=is_unscheduled)
        return Plan(writes, status, wait, "a hand-off is under way")
    if (wait := _handoff_wait(observed, now)) is not None:
        writes = _child_writes(observed, build, with_deployment=False)
        return Plan(writes, status, wait, "the stock's pod is still there")
    trial = max((left for pod in observed.pods if (left := find_trial(pod, now)) is not None), default=None)
    why = "its container was restarted" if trial is not None else ""
    return Plan(_child_writes(observed, build, with_deployment=storage_wait is None), status, trial, why)


def _unhurried(observed: Observed, plan: Plan, now: datetime) -> Plan:
    """The same plan, but a new unit's first word is not that it starts, unless it starts slowly."""
    created_at = datetime.fromisoformat(observed.unit["metadata"]["creationTimestamp"])
    left = created_at + QUIET_START - now
    old = GPUUnitStatus.of(observed.unit)
    if plan.status.phase is not Phase.PROGRESSING or old.phase is not None or left <= timedelta():
        return plan
    return replace(plan, status=old).looking_again(left, "it may be ready before it says so")


def _plan_claimed_stock(observed: Observed, stopped: UnitBuild, now: datetime) -> Plan:
    status = GPUUnitStatus.of(observed.unit)
    since = claimed_at(observed.unit, now) or now
    if observed.holder is not None and _gives_up(observed.holder):
        left = since + CONSUME_LIMIT - now
        if left <= timedelta():
            return _consume(observed.unit, status)
        return Plan(_child_writes(observed, stopped), status, left, "its holder no longer wants it")
    # A holder that was stopped and starts again may still have a pod of its earlier life.
    pods = [pod for pod in observed.holder_pods if "deletionTimestamp" not in pod["metadata"]]
    if observed.holder is not None and find_node(pods) is not None:
        left = since + CONSUME_LIMIT - now
        if GPUUnitStatus.of(observed.holder).phase is Phase.READY or left <= timedelta():
            return _consume(observed.unit, status)
        return Plan((), status, left, "its holder is about to be ready")
    if observed.stock_lurks and (left := since + LURKER_LIMIT - now) > timedelta():
        return Plan((), status, left, "other stock lurks for its GPUs")
    return Plan(_child_writes(observed, stopped), status)


def _consume(stock: Json, status: GPUUnitStatus) -> Plan:
    """The holder has its place: the stock object has done its work."""
    return Plan((DeleteObject("GPUUnit", stock),), status)


def _gives_up(holder: Json) -> bool:
    """Whether it was stopped or deleted before it took the place."""
    return "deletionTimestamp" in holder["metadata"] or not holder["spec"].get("running", True)


def _stock_holds_back(observed: Observed, build: UnitBuild, now: datetime) -> timedelta | None:
    """How long free stock that has no place yet stays out of the way of a hand-off; None when it need not."""
    is_settled = observed.deployment is not None and find_unschedulable(observed.pods) is None
    is_held = observed.deployment is not None and observed.deployment["spec"].get("replicas") == 0
    if not build.is_stock or (is_settled and not is_held):
        return None
    waits = [left for at in observed.claims_under_way if (left := at + HANDOFF_LIMIT - now) > timedelta()]
    return max(waits, default=None)


def find_problem(
    observed: Observed, spec: GPUUnitSpec, catalogue: GPUSpecSpec, settings: UnitSettings
) -> Verdict | None:
    """What makes the unit impossible to build, in words that say which field to mend."""
    namespace = observed.unit["metadata"]["namespace"]
    for field, text in (
        ("spec.memory", spec.memory or catalogue.memory),
        (f"GPUSpec {spec.spec_name}: cpu", catalogue.cpu),
    ):
        try:
            parse_amount(text)
        except QuantityError as error:
            return _invalid(f"{field}: {error}")
    if message := find_serverless_problem(spec, namespace, settings.sidecar):
        return Verdict(Phase.FAILED, Reason.SERVERLESS_CONFIG_INVALID, message)
    if message := find_ssh_problem(
        spec,
        namespace,
        restricted=observed.restricted,
        settings=settings.ssh,
        blocked=settings.blocked_egress,
        api_servers=settings.api_servers,
    ):
        return Verdict(Phase.FAILED, Reason.SSH_CONFIG_INVALID, message)
    if message := find_access_problem(spec):
        return Verdict(Phase.FAILED, Reason.ACCESS_CONFIG_INVALID, message)
    return find_mount_problem(observed, spec)


def _plan_impossible(
    observed: Observed, spec: GPUUnitSpec, settings: UnitSettings, problem: Verdict, now: datetime
) -> Plan:
    """Of a unit that cannot be built. Whoever no longer wants to be public is not, whatever else is wrong."""
    is_public = plan_route(spec, *key_of(observed.unit), settings.route) is not None
    there = () if is_public else tuple(kind for kind in ROUTES if kind in observed.children)
    writes = chain.from_iterable(plan_removal(kind, observed.children[kind]) for kind in there)
    return Plan(tuple(writes), plain_status(observed, problem, now))


def _invalid(message: str) -> Verdict:
    return Verdict(Phase.FAILED, Reason.INVALID_SPEC, message)


def _build(
    observed: Observed,
    spec: GPUUnitSpec,
    catalogue: GPUSpecSpec,
    settings: UnitSettings,
    now: datetime,
    *,
    replicas: int,
) -> UnitBuild:
    namespace, name = key_of(observed.unit)
    build = UnitBuild(
        namespace=namespace,
        name=name,
        uid=observed.unit["metadata"]["uid"],
        spec=spec,
        catalogue=catalogue,
        restricted=observed.restricted,
        replicas=replicas,
        preferred_node=_preferred_node(observed),
        placeholder_image=settings.placeholder_image,
        blocked_egress=settings.blocked_egress,
        dns=settings.dns,
        worker=plan_worker(
            spec,
            namespace,
            name,
            observed.function,
            settings.sidecar,
            woken_at=find_instant(observed.unit, names.ANNOTATION_WOKEN_AT, now),
            claimed_at=claimed_at(observed.unit, now),
        ),
        ssh=plan_ssh(spec, namespace, name, settings.ssh, settings.blocked_egress),
        route=plan_route(spec, namespace, name, settings.route),
    )
    chosen = choose_template(
        build.pod_template,
        build.template_inputs,
        observed.deployment,
        replicas=replicas,
        is_made_for_inputs=is_made_for_spec(observed.unit) and is_made_for_function(build.worker, observed.deployment),
    )
    return replace(build, kept_template=chosen)


def is_made_for_spec(unit: Json) -> bool:
    """Whether the Deployment was made for the spec as it is now, as far as the status says: of these reasons the
    Deployment was written before the status was, and only the first spec can have a Deployment without a status."""
    status = GPUUnitStatus.of(unit)
    return (
        unit["metadata"].get("generation", 1) == (status.observed_generation or 1)
        and reason_of(status.conditions) in WRITTEN
    )


def _preferred_node(observed: Observed) -> str | None:
    """Of its stock, whose GPUs it takes over. While the unit runs, its template stays: another preference would
    restart it."""
    source_node = observed.source.unit.get("status", {}).get("nodeName") if observed.source else None
    if source_node and not observed.is_scaled_up:
        return str(source_node)
    return find_preferred_node(observed.deployment)


def _handoff_wait(observed: Observed, now: datetime) -> timedelta | None:
    """How long the Deployment still has to wait for the stock's pod; None when it may be applied. One that a stopped
    unit left stays at 0 until then."""
    source = observed.source
    if source is None or not source.pods or observed.is_scaled_up:
        return None
    since = source.claimed_at or datetime.fromisoformat(observed.unit["metadata"]["creationTimestamp"])
    left = since + HANDOFF_LIMIT - now
    return left if left > timedelta() else None


def _child_writes(observed: Observed, build: UnitBuild, *, with_deployment: bool = True) -> tuple[Write, ...]:
    """The policy comes first: no pod may ever run without it. Routes come last: somebody else's rules may refuse them, and
    the unit runs without."""
    wanted = {
        UnitChild.NETWORK_POLICY: build_network_policy(build),
        UnitChild.SERVICE: build_service(build),
        UnitChild.CONFIG_MAP: build_config_map(build),
        **({UnitChild.DEPLOYMENT: build_deployment(build)} if with_deployment else {}),
        **{kind: build_route(build, kind) for kind in ROUTES},
    }
    writes = (
        plan_removal(kind, observed.leftovers[kind])
        if kind in observed.leftovers
        else plan_child(kind, desired, observed.children.get(kind))
        for kind, desired in wanted.items()
    )
    return (*plan_token_secrets(observed, build), *chain.from_iterable(writes))


def find_mount_problem(observed: Observed, spec: GPUUnitSpec) -> Verdict | None:
    """
    | mount                                     | verdict                        |
    | ----------------------------------------- | ------------------------------ |
    | of stock                                  | Failed · StorageMountInvalid   |
    | name or path is wrong, or there twice     | Failed · StorageMountInvalid   |
    | storage is missing, or leaves unheld      | Failed · StorageMountInvalid   |
    | storage is held for somebody else         | Failed · StorageMountInvalid   |
    | any other                                 | none                           |
    """
    if spec.storage_mounts and names.is_stock_namespace(observed.unit["metadata"]["namespace"]):
        return _invalid_mount(
            "spec.storageMounts: stock mounts nothing; its storages come with the unit that is made from it"
        )
    try:
        normalise_mounts(spec.storage_mounts)
    except RequestError as error:
        return _invalid_mount(f"spec.{error}")
    for mount in spec.storage_mounts:
        if message := _find_obstacle(observed, mount.name):
            return _invalid_mount(f"spec.storageMounts: {message}")
    return None


def find_waits(observed: Observed, spec: GPUUnitSpec) -> Verdict | None:
    """Progressing while a storage is not Ready, or not yet held for this unit."""
    waits = [text for mount in spec.storage_mounts if (text := _find_wait(observed, mount.name))]
    if not waits:
        return None
    return Verdict(Phase.PROGRESSING, Reason.STORAGE_NOT_READY, f"waits for storage {', '.join(waits)}")


def _find_obstacle(observed: Observed, name: str) -> str | None:
    storage = observed.storages.get(name)
    if storage is None:
        return f"there is no GPUStorage {name!r}; see `kubectl get gpustorages`"
    hold = hold_of(storage)
    if hold is not None and hold.holder != unit_holder(observed.unit["metadata"]["name"]):
        return f"storage {name!r} is in use by {hold.holder}"
    if hold is None and "deletionTimestamp" in storage["metadata"]:
        return f"storage {name!r} is being deleted"
    return None


def _find_wait(observed: Observed, name: str) -> str | None:
    storage = observed.storages[name]
    if hold_of(storage) is not None and is_mountable(storage):
        return None
    phase = GPUStorageStatus.of(storage).phase
    return f"{name} ({phase or 'Pending'})"


def _invalid_mount(message: str) -> Verdict:
    return Verdict(Phase.FAILED, Reason.STORAGE_MOUNT_INVALID, message)
