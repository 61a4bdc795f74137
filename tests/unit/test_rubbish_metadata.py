"""Every annotation and label that we read, with every kind of rubbish: no decision fails on it."""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from types import ModuleType
from typing import Any, cast

import pytest

from gpu_platform.domain import names
from gpu_platform.domain import stacks as stack_records
from gpu_platform.domain.drift import find_differences
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import BadMetadata, key_of, read_json
from gpu_platform.domain.mount_holds import hold_of, is_holdable, plan_hold, unit_holder
from gpu_platform.domain.stack_plan import Records, plan_stack
from gpu_platform.domain.stacks import (
    Recorded,
    StackAddress,
    StackKind,
    StackRecord,
    as_accepted,
    intent_of,
    parse_record,
    record_annotations,
    record_labels,
)
from gpu_platform.domain.stock import HANDOFF_LIMIT
from gpu_platform.domain.storages import Prepare, is_mountable, prepare_digest
from gpu_platform.domain.units import build_started
from gpu_platform.kube import KubeClient
from gpu_platform.kube.informer import ObjectCache, WatchEvent, WatchTiming
from gpu_platform.nats.credentials import KeyRole, build_seed
from platform_api.cluster import Cluster
from platform_api.functions.views import view_function
from platform_api.gpu_units.views import view_unit
from platform_api.http.errors import ApiError
from platform_api.objects.optimistic_update import refuse_owned
from platform_api.proxy.pod_address import plan_address
from platform_api.stock.service import view_pool
from platform_api.stock.service import view_stock_unit as view_stock
from platform_api.storages.views import view_storage
from providers.cluster.kinds import KINDS
from providers.cluster.objects import accepted_hash_of, accepted_spec_of
from reconciler.functions import credentials
from reconciler.functions.credentials import Signing, plan_secret
from reconciler.functions.observe import build_after_unit, observe_function
from reconciler.functions.plan import plan_function
from reconciler.functions.workers import measure_start
from reconciler.guarded_writes import CreateObject
from reconciler.informers import World
from reconciler.metadata_reports import find_bad_metadata
from reconciler.operations.observe import Observed as ObservedOperation
from reconciler.operations.plan import plan_operation
from reconciler.orphans.plan import Observed as ObservedOrphans
from reconciler.orphans.plan import plan_orphans
from reconciler.stock.controller import StockController, observe_pool
from reconciler.stock.plan import plan_pool
from reconciler.storages.controller import StoragesController
from reconciler.storages.observe import observe_storage
from reconciler.storages.plan import plan_storage
from reconciler.units.controller import UnitsController
from reconciler.units.observe import observe_unit
from reconciler.units.plan import plan_unit
from tests.support.builders import (
    CREATED,
    NOW,
    as_stored,
    make_function,
    make_pod,
    make_pool,
    make_stock,
    make_storage,
    make_unit,
)
from tests.support.rubbish import RUBBISH
from tests.unit.reconciler.operations.records import SEED_REQUEST, UNIT_REQUEST, make_record
from tests.unit.reconciler.storages.test_plan import SETTINGS as STORAGE_SETTINGS
from tests.unit.reconciler.units.observed import READY, SETTINGS

HOME = names.DEFAULT_INSTANCE_NAMESPACE
STOCK = names.STOCK_NAMESPACE
MODULES = (names, stack_records, credentials)
"""Where the keys of annotations and labels are defined."""

NOT_READ = {
    names.LABEL_FUNCTION: "is written for people and kubectl",
    names.ANNOTATION_FIELDS: "is compared as a text with what we would write",
}
"""Keys whose value no decision looks at, and why."""

PREPARE = {"fromImage": "example/data", "command": ["fill"]}
TEMPLATE = {"metadata": {"labels": {names.LABEL_TEMPLATE: "made"}}, "spec": {"containers": []}}
GPU_SPEC = {
    "kind": "GPUSpec",
    "metadata": {"name": "g1.1", "uid": "uid-spec", "resourceVersion": "1"},
    "spec": {"memory": "16Gi", "gpu": 1},
}
ADDRESS = StackAddress(StackKind.GPU_UNIT, "default", "demo")
SIGNING = Signing(build_seed(KeyRole.ACCOUNT, bytes(32)), "the authority")

MADE = plan_secret(make_function(), "default", None, SIGNING, NOW)
assert isinstance(MADE, CreateObject)
SECRET = {**MADE.body, "metadata": {**MADE.body["metadata"], "uid": "uid-secret", "resourceVersion": "1"}}


class Noting(dict[str, str]):
    """Annotations or labels that note which of their keys are looked at."""

    read: set[str] = set()  # noqa: RUF012 - one set for all, emptied by the test

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> str:
        self.read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return super().__contains__(key)


def spoil(item: Json, key: str, value: str) -> Json:
    """The object with this text under this key, as an annotation and as a label."""
    metadata = item["metadata"]
    marks = {part: Noting({**(metadata.get(part) or {}), key: value}) for part in ("annotations", "labels")}
    return {**item, "metadata": {**metadata, **marks}}


class Scene:
    """A tenant's unit from stock, with all that belongs to it, and every object spoilt in the same way."""

    def __init__(self, key: str, value: str) -> None:
        def spoilt(item: Json) -> Json:
            return spoil(copy.deepcopy(item), key, value)

        accepted = json.dumps(make_unit()["spec"])
        source = {
            names.ANNOTATION_SOURCE_STOCK_NAME: "pool-0",
            names.ANNOTATION_ACCEPTED_SPEC: accepted,
            names.ANNOTATION_WOKEN_AT: CREATED,
        }
        unit = make_unit(storageMounts=[{"name": "weights", "mountPath": "/data"}])
        unit["metadata"] |= {"annotations": source, "labels": {names.LABEL_POOL: "pool"}}
        self.unit = spoilt(unit)
        self.claimed = spoilt(make_stock("pool-0", claimed_by=f"{HOME}/demo"))
        self.free = spoilt(make_stock("pool-1"))
        pool = make_pool(2, replenish="Never")
        pool["metadata"]["creationTimestamp"] = CREATED
        self.pool = spoilt(pool)
        storage = make_storage(prepare=PREPARE)
        digest = prepare_digest(Prepare.model_validate(PREPARE), None)
        storage["status"] = {"prepare": {"phase": "Running", "observedDigest": digest, "begun": True}}
        storage["metadata"]["annotations"] = {names.ANNOTATION_MOUNTED_BY: "unit/demo"}
        self.storage = spoilt(storage)
        self.function = spoilt(make_function())
        self.worker = spoilt(make_unit("words-worker-0", serverless={"requestID": "words"}))
        labels = {**names.unit_labels("demo"), names.LABEL_UNIT_UID: "uid-demo", names.LABEL_STORAGE: "weights"}
        pod = make_pod(conditions=READY, labels=labels, phase="Running")
        pod["metadata"] |= {"resourceVersion": "1", "creationTimestamp": CREATED}
        pod["status"]["podIP"] = "10.1.2.3"
        self.pod = spoilt(pod)
        claim = stored("weights", names.storage_labels("weights"))
        claim |= {"spec": {"resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Bound"}}
        self.claim = spoilt(claim)
        self.deployment = as_stored(
            spoilt({**stored("unit-demo", names.unit_labels("demo")), "spec": {"replicas": 1, "template": TEMPLATE}})
        )
        recorded = Recorded(accepted, "op", "hash", NOW, outputs={"uid": "uid-demo"})
        record = StackRecord(ADDRESS, "uid-demo", recorded, error="failed", failures=1)
        lease = {"labels": record_labels(ADDRESS), "annotations": record_annotations(record)}
        self.lease = spoilt({"kind": "Lease", "metadata": {"name": "x", "namespace": "runtime-system", **lease}})
        self.secret = spoilt(SECRET)
        self.world = self._fill_world()

    @property
    def customs(self) -> tuple[Json, ...]:
        return self.unit, self.claimed, self.free, self.pool, self.storage, self.function, self.worker

    def _fill_world(self) -> World:
        world = World(cast(KubeClient, None), WatchTiming(), with_http_routes=True)
        put(world.specs, GPU_SPEC)
        put(world.units, self.unit, self.claimed, self.free, self.worker)
        put(world.pools, self.pool)
        put(world.storages, self.storage)
        put(world.functions, self.function)
        put(world.pods, self.pod)
        put(world.claims, self.claim)
        put(world.jobs, {**self.claim, "spec": {}, "status": {}})
        put(world.deployments, self.deployment)
        return world


def put(cache: ObjectCache, *items: Json) -> None:
    for item in items:
        cache._take(WatchEvent("ADDED", copy.deepcopy(item)))


def stored(name: str, labels: Json) -> Json:
    metadata = {"name": name, "namespace": HOME, "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels}
    return {"metadata": {**metadata, "creationTimestamp": CREATED}, "spec": {}, "status": {}}


def decide_stacks(scene: Scene) -> None:
    for item in scene.customs:
        as_accepted(item)
        plan_stack(Records(item, None))
        intent = intent_of(item)
        if intent is not None:
            find_differences(item, intent)
        find_bad_metadata(item, NOW)
        read_json(item, names.ANNOTATION_ACCEPTED_SPEC)
    parse_record(scene.lease)


def decide_provider(scene: Scene) -> None:
    for item in scene.customs:
        [kind] = [each for each in KINDS.values() if each.name == item["kind"]]
        accepted_spec_of(kind, item)
        accepted_hash_of(kind, item)


def decide_pools(scene: Scene) -> None:
    for pool in (scene.pool, make_pool(2), make_pool(2, replenish="Never")):
        version = {"resourceVersion": f"of {id(pool)}"}
        put(scene.world.pools, {**pool, "metadata": {**pool["metadata"], **version}})
        observed = observe_pool(scene.world, STOCK, "pool")
        assert observed is not None
        plan_pool(observed, NOW)


def decide_units(scene: Scene) -> None:
    for item in (scene.unit, scene.claimed, scene.free, scene.worker):
        observed = observe_unit(scene.world, *key_of(item), NOW)
        assert observed is not None
        plan_unit(observed, SETTINGS, NOW)
    build_started(scene.unit, scene.free)


def decide_storages(scene: Scene) -> None:
    observed = observe_storage(scene.world, HOME, "weights")
    assert observed is not None
    plan_storage(observed, STORAGE_SETTINGS, NOW)
    is_mountable(scene.storage)
    is_holdable(scene.storage, unit_holder("demo"))
    if (hold := hold_of(scene.storage)) is not None:
        plan_hold(hold, None, NOW)
        plan_hold(hold, "uid-demo", NOW)


def decide_functions(scene: Scene) -> None:
    observed = observe_function(scene.world, HOME, "words")
    assert observed is not None
    plan_function(observed, 1, None, NOW)
    build_after_unit(scene.world, HOME, "words")
    list(measure_start(scene.worker, [scene.pod], NOW))
    plan_secret(make_function(), "default", scene.secret, SIGNING, NOW)


def decide_operations(scene: Scene) -> None:
    for kind, request, found in (
        ("CreateUnit", UNIT_REQUEST, scene.unit),
        ("StartUnit", {"generation": 1}, scene.unit),
        ("RecoverStorage", {}, scene.storage),
        ("SeedStockUnits", SEED_REQUEST, scene.pool),
        ("DeleteStorage", {}, scene.storage),
    ):
        uid = "uid-weights" if kind.endswith("Storage") else "uid-demo"
        record = make_record(kind, request, age=timedelta(hours=1), uid=uid)
        plan_operation(ObservedOperation(record, found=found, claims=(scene.claimed,)), NOW)


def decide_orphans(scene: Scene) -> None:
    plan_orphans(
        ObservedOrphans(
            stock=(scene.claimed, scene.free),
            units={f"{HOME}/demo": scene.unit},
            operations={},
            children=({**scene.deployment, "kind": "Deployment"},),
            orphaned_since={},
        ),
        NOW,
    )


def decide_triggers(scene: Scene) -> None:
    def now() -> Any:
        return NOW

    world, nothing = scene.world, cast(Any, None)
    controllers = (
        UnitsController(world, nothing, nothing, SETTINGS, now),
        StoragesController(world, nothing, nothing, STORAGE_SETTINGS, now),
        StockController(world, nothing, now),
    )
    for controller in controllers:
        for trigger in controller.triggers():
            for item in trigger.cache.objects():
                list(trigger.keys_of(item))


def decide_views(scene: Scene) -> None:
    view_unit(scene.unit)
    view_stock(scene.claimed)
    view_pool(scene.pool)
    view_storage(scene.storage)
    view_function(scene.function)
    plan_address([scene.pod], development_addresses=True)
    cluster = Cluster(cast(KubeClient, None), WatchTiming())
    put(cluster.units, scene.unit, scene.claimed, scene.free)
    put(cluster.pods, scene.pod)
    for item in scene.customs:
        with suppress(ApiError):
            refuse_owned(item, "object")


DECISIONS: tuple[Callable[[Scene], None], ...] = (
    decide_stacks,
    decide_provider,
    decide_pools,
    decide_units,
    decide_storages,
    decide_functions,
    decide_operations,
    decide_orphans,
    decide_triggers,
    decide_views,
)


def keys_of(module: ModuleType) -> Iterator[str]:
    """The values of its constants that are named as keys."""
    for name, value in vars(module).items():
        if name.startswith(("LABEL_", "ANNOTATION_")) and isinstance(value, str):
            yield value


KEYS = sorted({key for module in MODULES for key in keys_of(module)})


@pytest.mark.parametrize("key", KEYS)
def test_no_rubbish_in_any_annotation_or_label_stops_a_decision(key: str) -> None:
    for text in RUBBISH.values():
        scene = Scene(key, text)
        for decide in DECISIONS:
            decide(scene)


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_read_by_a_decision_of_this_module_or_listed_as_not_read(key: str) -> None:
    """Fails for a new key until a decision above reads it, so that the test before this one covers it."""
    Noting.read = set()
    scene = Scene(key, "rubbish")
    for decide in DECISIONS:
        decide(scene)
    assert (key in Noting.read) != (key in NOT_READ), f"{key}: add a decision that reads it, or add it to NOT_READ"


@pytest.mark.parametrize("text", RUBBISH.values(), ids=RUBBISH)
def test_an_unreadable_accepted_spec_is_named_with_object_key_and_reason(text: str) -> None:
    unit = spoil(make_unit(), names.ANNOTATION_ACCEPTED_SPEC, text)
    [bad] = find_bad_metadata(unit, NOW)
    assert isinstance(bad, BadMetadata)
    assert str(bad).startswith(f"GPUUnit {HOME}/demo: annotation {names.ANNOTATION_ACCEPTED_SPEC}: it ")
    assert len(str(bad)) < 500
    assert as_accepted(unit) is unit


@pytest.mark.parametrize("claimed_at", ["2190-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00", "nonsense"])
def test_a_claim_of_the_far_future_puts_off_neither_the_refill_nor_other_stock(claimed_at: str) -> None:
    spoilt = make_stock("pool-0", claimed_by=f"{HOME}/demo", resourceVersion="8", creationTimestamp=CREATED)
    spoilt["metadata"]["annotations"][names.ANNOTATION_CLAIMED_AT] = claimed_at
    world = World(cast(KubeClient, None), WatchTiming())
    put(world.specs, GPU_SPEC)
    put(world.pools, make_pool(2))
    put(world.units, spoilt, make_stock("pool-1"), make_stock("pool-2", phase="Progressing"))
    later = NOW + 2 * HANDOFF_LIMIT

    pool = observe_pool(world, STOCK, "pool")
    assert pool is not None
    assert plan_pool(pool, later).wait is None
    waiting = observe_unit(world, STOCK, "pool-2", later)
    assert waiting is not None
    assert waiting.claims_under_way == ()


def test_a_pool_with_an_unreadable_instance_still_gets_its_stock() -> None:
    instance = spoil(make_unit(), names.ANNOTATION_ACCEPTED_SPEC, RUBBISH["deep-lists"])
    instance["metadata"]["labels"][names.LABEL_POOL] = "pool"
    world = World(cast(KubeClient, None), WatchTiming())
    put(world.specs, GPU_SPEC)
    put(world.pools, make_pool(2))
    put(world.units, instance)

    observed = observe_pool(world, STOCK, "pool")
    assert observed is not None
    assert [type(write) for write in plan_pool(observed, NOW).writes] == [CreateObject, CreateObject]
