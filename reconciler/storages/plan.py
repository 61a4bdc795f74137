"""What to do about one storage: a pure function from what was observed to writes and status."""

from dataclasses import dataclass
from datetime import datetime

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.mount_holds import mounting_unit_of
from gpu_platform.domain.quantities import QuantityError, parse_amount, parse_quantity
from gpu_platform.domain.storages import (
    GPUStorageSpec,
    GPUStorageStatus,
    PreparePhase,
    StoragePhase,
    StorageReason,
    check_prepare,
)
from gpu_platform.domain.value import RequestError
from reconciler.child_diff import StorageChild, plan_child, plan_removal
from reconciler.guarded_writes import CreateObject, ObjectWrite, PatchObject
from reconciler.pod_templates import choose_template, with_template
from reconciler.storages.observe import Observed
from reconciler.storages.prepare import PreparePlan, plan_prepare
from reconciler.storages.resources import (
    StorageBuild,
    StorageSettings,
    build_accessor,
    build_accessor_service,
    build_claim,
    build_job,
    build_network_policy,
)
from reconciler.storages.status import (
    Verdict,
    build_status,
    find_copier,
    has_volume,
    is_bound,
    is_lost,
    judge,
    judge_accessor,
)

RETAINED = "retained"
"""In the place of a digest: nobody prepared the claim, but it holds data."""


@dataclass(frozen=True)
class TakeSource:
    """The storage to copy, so that no unit writes to it meanwhile."""

    source: Json


Write = ObjectWrite | TakeSource


@dataclass(frozen=True)
class Plan:
    writes: tuple[Write, ...]
    status: GPUStorageStatus | None
    """None: nothing is said, because the storage is gone with this plan."""


def plan_storage(observed: Observed, settings: StorageSettings, now: datetime) -> Plan:
    """Rows are tried from top to bottom.

    | storage                                  | writes                                      | phase · reason                    |
    | ---------------------------------------- | ------------------------------------------- | --------------------------------- |
    | being deleted, held                      | none                                        | Terminating · StorageInUse        |
    | being deleted, with Jobs or file browser | delete them, then what is left of their pods | Terminating · StorageTerminating |
    | being deleted, claim there, no `retain`  | delete the claim                            | Terminating · StorageTerminating  |
    | being deleted, claim with data, unmarked | mark the claim as prepared                  | Terminating · StorageTerminating  |
    | being deleted, any other                 | give up the finalizer                       | –                                 |
    | without finalizer                        | put it on                                   | as it was                         |
    | spec is wrong                            | none                                        | Failed · StorageInvalidSpec       |
    | its claim is lost                        | none                                        | Failed · StorageClaimLost         |
    | any other                                | claim, policy, preparation, file browser    | see `judge`                       |

    The file browser is there when it is enabled, the claim is bound, the preparation has ended well, and no other
    storage is being filled from this one.
    """
    metadata = observed.storage["metadata"]
    finalizers = tuple(metadata.get("finalizers") or ())
    if "deletionTimestamp" in metadata:
        return _plan_deletion(observed, finalizers, now)
    if names.STORAGE_FINALIZER not in finalizers:
        with_ours = (*finalizers, names.STORAGE_FINALIZER)
        return Plan((_set_finalizers(observed.storage, with_ours),), GPUStorageStatus.of(observed.storage))
    if observed.spec is None:
        return Plan((), _plain_status(observed, _invalid("spec does not fit this version"), now))
    if problem := find_problem(observed.spec):
        return Plan((), _plain_status(observed, problem, now))
    if is_lost(observed):
        prepare = GPUStorageStatus.of(observed.storage).prepare
        return Plan((), _plain_status(observed, judge(observed, prepare), now))
    return _plan_children(observed, observed.spec, settings, now)


def _plan_children(observed: Observed, spec: GPUStorageSpec, settings: StorageSettings, now: datetime) -> Plan:
    prepare = plan_prepare(
        observed, spec.prepare, GPUStorageStatus.of(observed.storage).prepare, has_volume=has_volume(observed)
    )
    verdict = judge(observed, prepare.status)
    # A volume that comes with its first pod comes where that one is: the file browser must not choose the place. Nor may
    # it keep the volume on its node while the Job of a copy waits for it on another.
    may_show_files = verdict.phase is StoragePhase.READY and is_bound(observed.claim) and find_copier(observed) is None
    shows_files = spec.accessor.enabled and may_show_files
    build = _build(observed, spec, settings)
    writes = (
        *_claim_writes(observed, build, prepare),
        *_policy_writes(observed, build),
        *_prepare_writes(observed, build, prepare),
        *plan_child(StorageChild.SERVICE, build_accessor_service(build) if shows_files else None, observed.service),
        *plan_child(StorageChild.DEPLOYMENT, _accessor(observed, build) if shows_files else None, observed.deployment),
    )
    accessor = judge_accessor(observed, enabled=spec.accessor.enabled)
    return Plan(writes, build_status(observed, verdict, prepare.status, accessor, now))


def find_problem(spec: GPUStorageSpec) -> Verdict | None:
    """What makes the storage impossible, in words that say which field to mend."""
    try:
        parse_amount(spec.size)
        if spec.prepare is not None:
            check_prepare(spec.prepare)
    except QuantityError as error:
        return _invalid(f"spec.size: {error}")
    except RequestError as error:
        return _invalid(f"spec.{error}")
    return None


def _plan_deletion(observed: Observed, finalizers: tuple[str, ...], now: datetime) -> Plan:
    if names.STORAGE_FINALIZER not in finalizers:
        return Plan((), None)
    if observed.hold is not None:
        message = f"waits until {observed.hold.holder} no longer uses it"
        return Plan((), _terminating(observed, StorageReason.IN_USE, message, now))
    # A pod on the claim holds it up, and a Job that is deleted without care leaves its pod behind.
    browser = [(StorageChild.DEPLOYMENT, observed.deployment)] if observed.deployment is not None else []
    makers = [*browser, *((StorageChild.JOB, job) for job in observed.jobs)]
    if workers := makers or [(StorageChild.POD, pod) for pod in observed.pods]:
        writes = tuple(write for kind, item in workers for write in plan_removal(kind, item))
        return Plan(writes, _terminating(observed, StorageReason.TERMINATING, "waits for its pods to go", now))
    # Whoever cannot read the wish does not delete data.
    retains = observed.spec is None or observed.spec.retain
    if observed.claim is not None and not retains:
        writes = plan_removal(StorageChild.CLAIM, observed.claim)
        return Plan(writes, _terminating(observed, StorageReason.TERMINATING, "waits for its claim to go", now))
    if observed.claim is not None and _may_hold_data_unmarked(observed, observed.claim):
        mark = _mark_prepared(observed.claim, RETAINED)
        return Plan((mark,), _terminating(observed, StorageReason.TERMINATING, "leaves its claim behind", now))
    left = tuple(finalizer for finalizer in finalizers if finalizer != names.STORAGE_FINALIZER)
    return Plan((_set_finalizers(observed.storage, left),), None)


def _set_finalizers(storage: Json, finalizers: tuple[str, ...]) -> PatchObject:
    return PatchObject("GPUStorage", storage, {"metadata": {"finalizers": list(finalizers)}})


def _may_hold_data_unmarked(observed: Observed, claim: Json) -> bool:
    """Whether the next storage of this name could be prepared over what units have written."""
    is_filled = (
        observed.spec is None
        or observed.spec.prepare is None
        or GPUStorageStatus.of(observed.storage).prepare.phase is PreparePhase.SUCCEEDED
    )
    is_marked = names.ANNOTATION_PREPARED_DIGEST in annotations_of(claim)
    return is_filled and not is_marked and "deletionTimestamp" not in claim["metadata"]


def _terminating(observed: Observed, reason: StorageReason, message: str, now: datetime) -> GPUStorageStatus:
    return _plain_status(observed, Verdict(StoragePhase.TERMINATING, reason, message), now)


def _plain_status(observed: Observed, verdict: Verdict, now: datetime) -> GPUStorageStatus:
    """What was said of preparation and file browser stays."""
    old = GPUStorageStatus.of(observed.storage)
    enabled = observed.spec is not None and observed.spec.accessor.enabled
    accessor = judge_accessor(observed, enabled=enabled and verdict.phase is not StoragePhase.TERMINATING)
    return build_status(observed, verdict, old.prepare, accessor, now)


def _invalid(message: str) -> Verdict:
    return Verdict(StoragePhase.FAILED, StorageReason.INVALID_SPEC, message)


def _build(observed: Observed, spec: GPUStorageSpec, settings: StorageSettings) -> StorageBuild:
    metadata = observed.storage["metadata"]
    return StorageBuild(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        spec=spec,
        restricted=observed.restricted,
        settings=settings,
        beside_unit=mounting_unit_of(observed.storage) if observed.is_unit_running else None,
    )


def _accessor(observed: Observed, build: StorageBuild) -> Json:
    """The file browser. Like a unit it keeps its pod template while only the platform's version changes."""
    deployment = build_accessor(build)
    live = observed.deployment
    template = deployment["spec"]["template"]
    chosen = choose_template(
        template,
        {"besideUnit": build.beside_unit},
        live,
        replicas=deployment["spec"]["replicas"],
        is_made_for_inputs=live is not None and _affinity_of(live["spec"]["template"]) == _affinity_of(template),
    )
    return with_template(deployment, chosen)


def _affinity_of(template: Json) -> Json | None:
    affinity: Json | None = template["spec"].get("affinity")
    return affinity


def _claim_writes(observed: Observed, build: StorageBuild, prepare: PreparePlan) -> tuple[Write, ...]:
    claim = observed.claim
    desired = build_claim(build)
    if claim is None:
        return (CreateObject(StorageChild.CLAIM, desired),)
    if prepare.marks_claim and prepare.digest is not None:
        # Alone: a growth that is refused must not take the mark with it. It comes with the next pass.
        return (_mark_prepared(claim, prepare.digest),)
    if prepare.unmarks_claim:
        return (_mark_prepared(claim, None),)
    wanted = desired["spec"]["resources"]["requests"]["storage"]
    if parse_quantity(claim["spec"]["resources"]["requests"]["storage"]) < parse_quantity(wanted):
        return (PatchObject(StorageChild.CLAIM, claim, {"spec": {"resources": {"requests": {"storage": wanted}}}}),)
    return ()


def _mark_prepared(claim: Json, digest: str | None) -> PatchObject:
    """From now on no storage on this claim is prepared before somebody asks for it. None takes the mark away."""
    mark = {"metadata": {"annotations": {names.ANNOTATION_PREPARED_DIGEST: digest}}}
    return PatchObject(StorageChild.CLAIM, claim, mark)


def _policy_writes(observed: Observed, build: StorageBuild) -> tuple[Write, ...]:
    is_needed = build.spec.prepare is not None or build.spec.accessor.enabled
    desired = build_network_policy(build) if is_needed else None
    return plan_child(StorageChild.NETWORK_POLICY, desired, observed.network_policy)


def _prepare_writes(observed: Observed, build: StorageBuild, prepare: PreparePlan) -> tuple[Write, ...]:
    writes: list[Write] = [write for job in prepare.old_jobs for write in plan_removal(StorageChild.JOB, job)]
    if prepare.takes_source and observed.source is not None:
        writes.append(TakeSource(observed.source))
    if prepare.starts_job and build.spec.prepare is not None and prepare.digest is not None:
        writes.append(CreateObject(StorageChild.JOB, build_job(build, build.spec.prepare, prepare.digest)))
    if prepare.resumes_job is not None:
        # It was made suspended. Its controller may have written to it meanwhile.
        resumed = {"spec": {"suspend": False}}
        writes.append(PatchObject(StorageChild.JOB, prepare.resumes_job, resumed, unchanged=False))
    return tuple(writes)
