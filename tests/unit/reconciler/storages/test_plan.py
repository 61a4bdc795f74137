"""The table of `plan_storage`, row by row, and what its objects look like."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.mount_holds import Hold, Holder, HolderKind, unit_holder
from gpu_platform.domain.specs import Toleration
from gpu_platform.domain.storages import GPUStorageSpec, Prepare, StoragePhase, prepare_digest
from reconciler.child_diff import StorageChild
from reconciler.guarded_writes import CreateObject, DeleteObject, PatchObject, ReplaceObject
from reconciler.storages.observe import Observed
from reconciler.storages.plan import Plan, plan_storage
from reconciler.storages.resources import StorageSettings
from reconciler.storages.status import with_refusal
from tests.support.builders import NOW, as_stored, make_pod, make_storage
from tests.unit.reconciler.storages.observed import make_observed

SETTINGS = StorageSettings(
    copy_image="busybox:1.36", accessor_image="dufs:1", accessor_command=("dufs", "/data"), blocked_egress=()
)
ENABLED: Json = {"accessor": {"enabled": True}}


def claim(size: str = "1Gi", phase: str = "Bound", **metadata: Any) -> Json:
    capacity = {"capacity": {"storage": size}} if phase == "Bound" else {}
    return {
        "metadata": {
            "name": "weights",
            "namespace": "runtime-instance",
            "uid": "c",
            "resourceVersion": "1",
            **metadata,
        },
        "spec": {"resources": {"requests": {"storage": size}}},
        "status": {"phase": phase, **capacity},
    }


def observe(storage: Json, **changes: Any) -> Observed:
    return make_observed(storage, **{"claim": claim(), **changes})


def leaving(**spec: Any) -> Json:
    storage = make_storage(**spec)
    storage["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    return storage


def plan(observed: Observed) -> Plan:
    return plan_storage(observed, SETTINGS, NOW)


def ready_reason(result: Plan) -> tuple[StoragePhase | None, str]:
    assert result.status is not None
    condition = find_condition(result.status.conditions, "Ready")
    assert condition is not None
    return result.status.phase, condition.reason


def finalizers_of(storage: Json, *finalizers: str) -> PatchObject:
    return PatchObject("GPUStorage", storage, {"metadata": {"finalizers": list(finalizers)}})


def test_protection_comes_before_anything_that_needs_it() -> None:
    storage = make_storage()
    storage["metadata"]["finalizers"] = ["example.com/other"]
    result = plan(observe(storage, claim=None))
    assert result.writes == (finalizers_of(storage, "example.com/other", names.STORAGE_FINALIZER),)


def test_a_new_storage_gets_a_claim_of_the_clusters_default_class_and_no_owner() -> None:
    result = plan(observe(make_storage(), claim=None))
    [write] = result.writes
    assert isinstance(write, CreateObject)
    assert write.kind is StorageChild.CLAIM
    assert "ownerReferences" not in write.body["metadata"]
    assert write.body["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    assert ready_reason(result) == (StoragePhase.PENDING, "StoragePending")


@pytest.mark.parametrize(
    ("spec", "setting", "wanted"),
    [
        ({}, "slow", "slow"),
        ({"storageClassName": "fast"}, "slow", "fast"),
        ({"storageClassName": "fast"}, None, "fast"),
    ],
)
def test_the_class_is_the_storages_or_else_the_platforms(spec: Json, setting: str | None, wanted: str) -> None:
    result = plan_storage(observe(make_storage(**spec), claim=None), replace(SETTINGS, storage_class=setting), NOW)
    [write] = result.writes
    assert isinstance(write, CreateObject)
    assert write.body["spec"]["storageClassName"] == wanted


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"claim": claim(phase="Pending")}, (StoragePhase.PENDING, "StoragePending")),
        ({"claim": claim(phase="Pending"), "binds_late": True}, (StoragePhase.READY, "StorageReady")),
        ({"claim": claim(phase="Lost")}, (StoragePhase.FAILED, "StorageClaimLost")),
        ({"claim": claim(deletionTimestamp="now")}, (StoragePhase.FAILED, "StorageClaimLost")),
        ({}, (StoragePhase.READY, "StorageReady")),
        ({"spec": None}, (StoragePhase.FAILED, "StorageInvalidSpec")),
    ],
)
def test_the_claim_decides_whether_it_can_be_mounted(changes: Json, reason: tuple[StoragePhase, str]) -> None:
    result = plan(observe(make_storage(), **changes))
    assert ready_reason(result) == reason
    assert result.writes == ()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"storageClassName": "slow"}, "its claim waits for a volume: there is no storage class 'slow'"),
        ({}, "its claim waits for a volume: no storage class is the default one"),
    ],
)
def test_a_class_that_is_not_there_is_named(spec: Json, words: str) -> None:
    waiting = {**claim(phase="Pending"), "spec": {"resources": {"requests": {"storage": "1Gi"}}, **spec}}
    result = plan(observe(make_storage(), claim=waiting, has_class=False))
    assert result.status is not None
    assert [each.message for each in result.status.conditions if each.type == "Ready"] == [words]


def test_a_claim_that_is_gone_with_its_data_is_not_made_anew() -> None:
    storage = {**make_storage(), "status": {"capacity": "1Gi", "claimName": "weights"}}
    result = plan(observe(storage, claim=None))
    assert result.writes == ()
    assert ready_reason(result) == (StoragePhase.FAILED, "StorageClaimLost")


def test_a_claim_grows_and_never_shrinks() -> None:
    [grows] = plan(observe(make_storage(size="2048Mi"))).writes
    assert grows == PatchObject(StorageChild.CLAIM, claim(), {"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
    assert plan(observe(make_storage(), claim=claim("2Gi"))).writes == ()


def test_a_claim_that_cannot_grow_can_still_be_mounted() -> None:
    status = plan(observe(make_storage(size="2Gi"))).status
    assert status is not None
    refused = with_refusal(status, StorageChild.CLAIM, "the class does not allow it")
    assert refused.phase is StoragePhase.READY
    condition = find_condition(refused.conditions, "Ready")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "StoragePVCSyncFailed")


@pytest.mark.parametrize("kind", [StorageChild.SERVICE, StorageChild.DEPLOYMENT])
def test_a_file_browser_that_cannot_be_made_blocks_nobody(kind: StorageChild) -> None:
    status = plan(observe(make_storage(**ENABLED))).status
    assert status is not None
    refused = with_refusal(status, kind, "quota")
    assert (refused.phase, refused.accessor.phase) == (StoragePhase.READY, "Failed")


def settled(storage: Json, **changes: Any) -> Observed:
    """The same storage after its planned objects were written."""
    observed = observe(storage, **changes)
    written = {write.kind: write.body for write in plan(observed).writes if isinstance(write, CreateObject)}
    return replace(
        observed,
        network_policy=as_stored(written[StorageChild.NETWORK_POLICY]),
        service=as_stored(written[StorageChild.SERVICE]),
        deployment=as_stored(written[StorageChild.DEPLOYMENT]),
    )


def test_the_file_browser_comes_with_policy_and_service_and_goes_when_switched_off() -> None:
    observed = settled(make_storage(**ENABLED))
    assert plan(observed).writes == ()
    off = replace(observed, storage=make_storage(), spec=GPUStorageSpec(size="1Gi"))
    assert [write.kind for write in plan(off).writes if isinstance(write, DeleteObject)] == [
        StorageChild.NETWORK_POLICY,
        StorageChild.SERVICE,
        StorageChild.DEPLOYMENT,
    ]


def test_the_file_browser_only_reads_and_waits_for_the_volume() -> None:
    observed = settled(make_storage(**ENABLED))
    assert observed.deployment is not None
    [container] = observed.deployment["spec"]["template"]["spec"]["containers"]
    assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data", "readOnly": True}]
    early = plan(observe(make_storage(**ENABLED), claim=claim(phase="Pending")))
    assert [write.kind for write in early.writes if isinstance(write, CreateObject)] == [StorageChild.NETWORK_POLICY]


def test_the_file_browser_is_asked_whether_it_is_there_without_listing_a_directory() -> None:
    """A list of a large one takes longer than a probe waits."""
    deployment = settled(make_storage(**ENABLED)).deployment
    assert deployment is not None
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"] == {"tcpSocket": {"port": "http"}, "periodSeconds": 2}


def test_the_file_browser_does_not_choose_the_place_of_a_volume_that_binds_late() -> None:
    result = plan(observe(make_storage(**ENABLED), claim=claim(phase="Pending"), binds_late=True))
    assert ready_reason(result) == (StoragePhase.READY, "StorageReady")
    assert [write.kind for write in result.writes if isinstance(write, CreateObject)] == [StorageChild.NETWORK_POLICY]
    assert result.status is not None
    assert result.status.accessor.phase == "Pending"


def test_the_file_browser_is_on_the_node_of_the_unit_that_runs_with_the_storage() -> None:
    storage = make_storage(**ENABLED)
    observed = settled(storage)
    storage["metadata"]["annotations"] = {names.ANNOTATION_MOUNTED_BY: "unit/train"}
    hold = Hold(unit_holder("train"), NOW, "uid-train")
    mounted = replace(observed, storage=storage, hold=hold)
    assert plan(mounted).writes == ()
    [moved] = plan(replace(mounted, is_unit_running=True)).writes
    assert isinstance(moved, ReplaceObject)
    affinity = moved.body["spec"]["template"]["spec"]["affinity"]["podAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"] == {"matchLabels": {names.LABEL_UNIT: "train"}}


@pytest.mark.parametrize("has_record", [True, False], ids=["with its record", "of a version without records"])
def test_a_newer_version_does_not_restart_the_file_browser(has_record: bool) -> None:
    storage = make_storage(**ENABLED)
    observed = settled(storage)
    assert observed.deployment is not None
    if not has_record:
        observed.deployment["metadata"]["annotations"].pop(names.ANNOTATION_TEMPLATE)
    newer = replace(SETTINGS, accessor_image="dufs:2")

    writes = plan_storage(observed, newer, NOW).writes
    bodies = [write.body for write in writes if isinstance(write, ReplaceObject)]
    assert len(bodies) == (0 if has_record else 1)
    assert all(body["spec"]["template"] == observed.deployment["spec"]["template"] for body in bodies)

    storage["metadata"]["annotations"] = {names.ANNOTATION_MOUNTED_BY: "unit/train"}
    mounted = replace(observed, storage=storage, hold=Hold(unit_holder("train"), NOW, "u"), is_unit_running=True)
    [moved] = plan_storage(mounted, newer, NOW).writes
    assert isinstance(moved, ReplaceObject)
    assert moved.body["spec"]["template"]["spec"]["containers"][0]["image"] == "dufs:2"


def test_the_file_browser_is_away_while_another_storage_is_filled_from_this_one() -> None:
    """A volume is on one node at a time, and the Job of a copy may be on another."""
    observed = settled(make_storage(**ENABLED))
    copied = replace(observed, hold=Hold(Holder(HolderKind.STORAGE, "copy"), NOW, "uid-copy"))
    result = plan(copied)
    assert [write.kind for write in result.writes if isinstance(write, DeleteObject)] == [
        StorageChild.SERVICE,
        StorageChild.DEPLOYMENT,
    ]
    assert ready_reason(result) == (StoragePhase.READY, "StorageReady")
    assert result.status is not None
    condition = find_condition(result.status.conditions, "AccessorReady")
    assert condition is not None
    assert (condition.status, condition.message) == ("False", "is away while storage/copy is filled from this storage")


def test_what_prepares_and_shows_runs_where_the_settings_say() -> None:
    place = replace(
        SETTINGS, node_selector={"disk": "fast"}, tolerations=(Toleration(key="storage", operator="Exists"),)
    )
    result = plan_storage(observe(make_storage(**ENABLED)), place, NOW)
    [deployment] = [
        write.body
        for write in result.writes
        if isinstance(write, CreateObject) and write.kind is StorageChild.DEPLOYMENT
    ]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"disk": "fast"}
    assert pod["tolerations"] == [{"key": "storage", "operator": "Exists"}]


def test_a_file_browser_that_does_not_start_says_why_and_the_storage_is_ready() -> None:
    waiting = {"name": "accessor", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    pod = make_pod(labels={names.LABEL_STORAGE_ACCESSOR: "uid-weights"})
    pod["status"] = {"containerStatuses": [waiting]}
    result = plan(replace(settled(make_storage(**ENABLED)), pods=(pod,)))
    assert ready_reason(result) == (StoragePhase.READY, "StorageReady")
    assert result.status is not None
    assert result.status.accessor.phase == "Failed"
    condition = find_condition(result.status.conditions, "AccessorReady")
    assert condition is not None
    assert "no such image" in condition.message


def test_a_held_storage_is_not_deleted() -> None:
    result = plan(observe(leaving(), hold=Hold(unit_holder("train"), NOW, "uid-train")))
    assert result.writes == ()
    assert ready_reason(result) == (StoragePhase.TERMINATING, "StorageInUse")


def test_deletion_takes_the_workers_then_their_pods_then_the_claim_then_the_protection() -> None:
    item = {"metadata": {"name": "x", "namespace": "runtime-instance", "uid": "x", "resourceVersion": "1"}}
    observed = observe(leaving(), jobs=(item,), deployment=item, pods=(item,))
    assert plan(observed).writes == (DeleteObject(StorageChild.DEPLOYMENT, item), DeleteObject(StorageChild.JOB, item))
    observed = replace(observed, jobs=(), deployment=None)
    assert plan(observed).writes == (DeleteObject(StorageChild.POD, item),)
    observed = replace(observed, pods=())
    assert plan(observed).writes == (DeleteObject(StorageChild.CLAIM, claim()),)
    going = claim(deletionTimestamp="now")
    assert plan(replace(observed, claim=going)).writes == ()
    last = plan(replace(observed, claim=None))
    assert last.writes == (finalizers_of(observed.storage),)
    assert last.status is None


MARKED: Json = {"annotations": {names.ANNOTATION_PREPARED_DIGEST: "d"}}
FILLED: Json = {"fromImage": "example/fetch", "command": ["fetch"]}


def test_a_retained_claim_stays() -> None:
    marked = claim(**MARKED)
    assert plan(observe(leaving(retain=True), claim=marked)).writes == (finalizers_of(leaving(retain=True)),)
    assert plan(observe(leaving(), spec=None, claim=marked)).writes == (finalizers_of(leaving()),)


@pytest.mark.parametrize(
    ("prepare", "phase", "is_marked"),
    [(None, None, True), (FILLED, "Succeeded", True), (FILLED, "Failed", False), (FILLED, "Running", False)],
)
def test_a_claim_that_is_left_behind_with_data_is_marked_so_that_nothing_is_prepared_over_them(
    prepare: Json | None, phase: str | None, is_marked: bool
) -> None:
    storage = leaving(retain=True, **({"prepare": prepare} if prepare else {}))
    storage["status"] = {"prepare": {"phase": phase}} if phase else {}
    [write] = plan(observe(storage)).writes

    mark = {"metadata": {"annotations": {names.ANNOTATION_PREPARED_DIGEST: "retained"}}}
    assert write == (PatchObject(StorageChild.CLAIM, claim(), mark) if is_marked else finalizers_of(storage))


def test_a_claim_that_goes_is_not_marked() -> None:
    going = claim(deletionTimestamp="now")
    assert plan(observe(leaving(retain=True), claim=going)).writes == (finalizers_of(leaving(retain=True)),)


def test_the_mark_comes_alone_and_the_growth_after_it() -> None:
    """A growth that is refused would take the mark with it."""
    storage = make_storage(size="2Gi", prepare=FILLED)
    digest = prepare_digest(GPUStorageSpec.model_validate(storage["spec"]).prepare or Prepare(), None)
    done = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    metadata = {"name": names.prepare_job_name("weights", digest), "uid": "j", "resourceVersion": "1"}
    observed = observe(storage, jobs=({**done, "spec": {}, "metadata": {**metadata, "namespace": "runtime-instance"}},))
    mark = {"metadata": {"annotations": {names.ANNOTATION_PREPARED_DIGEST: digest}}}
    growth = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}

    def patches(seen: Observed) -> list[Json]:
        return [
            write.changes
            for write in plan(seen).writes
            if isinstance(write, PatchObject) and write.kind is StorageChild.CLAIM
        ]

    assert patches(observed) == [mark]
    status = plan(observed).status
    assert status is not None
    marked = claim(annotations={names.ANNOTATION_PREPARED_DIGEST: digest})
    assert patches(replace(observed, storage={**storage, "status": status.to_json()}, claim=marked)) == [growth]


def test_a_job_is_made_suspended_and_let_run_when_that_is_recorded() -> None:
    storage = make_storage(prepare=FILLED)
    writes = plan(observe(storage)).writes
    [made] = [write.body for write in writes if isinstance(write, CreateObject) and write.kind is StorageChild.JOB]
    assert made["spec"]["suspend"] is True
    observed = observe(storage, jobs=(as_stored(made),))
    first = plan(observed)
    assert first.status is not None
    resumed = PatchObject(StorageChild.JOB, as_stored(made), {"spec": {"suspend": False}}, unchanged=False)
    assert resumed not in first.writes
    recorded = {**storage, "status": first.status.to_json()}
    assert resumed in plan(replace(observed, storage=recorded)).writes


def test_a_failed_preparation_leaves_a_claim_that_remembers_none() -> None:
    """It has written over what the earlier one made."""
    storage = make_storage(prepare=FILLED)
    storage["metadata"]["annotations"] = {names.ANNOTATION_RECOVERY_NONCE: "again"}
    result = plan(observe(storage, claim=claim(**MARKED)))
    [patch] = [write for write in result.writes if isinstance(write, PatchObject) and write.kind is StorageChild.CLAIM]
    assert patch.changes == {"metadata": {"annotations": {names.ANNOTATION_PREPARED_DIGEST: None}}}
    assert StorageChild.JOB not in [write.kind for write in result.writes if isinstance(write, CreateObject)]


def test_what_others_protect_is_left_to_them() -> None:
    storage = leaving()
    storage["metadata"]["finalizers"] = ["foregroundDeletion"]
    result = plan(observe(storage))
    assert (result.writes, result.status) == ((), None)


def test_a_second_pass_over_an_unchanged_storage_says_nothing_new() -> None:
    observed = settled(make_storage(**ENABLED))
    first = plan(observed).status
    assert first is not None
    stored = {**observed.storage, "status": first.to_json()}
    later = plan_storage(replace(observed, storage=stored), SETTINGS, NOW + timedelta(hours=1)).status
    assert later is not None
    assert later.model_copy(update={"last_sync_time": None}) == first.model_copy(update={"last_sync_time": None})
