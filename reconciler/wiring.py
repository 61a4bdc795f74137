"""Which controllers run, on which caches. The only place that knows all of them."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from gpu_platform.adapters.clock import now_utc
from gpu_platform.adapters.kube import KubeClient
from gpu_platform.adapters.kube.cache import ObjectCache
from gpu_platform.adapters.kube.events import EventRecorder
from gpu_platform.adapters.kube.guarded import GuardedClient
from gpu_platform.control.loop import ControllerLoop
from gpu_platform.control.metrics import Metrics
from reconciler.drift.controller import DriftController
from reconciler.drift.metrics import DriftMetrics
from reconciler.operations.controller import OperationsController
from reconciler.orphans.controller import OrphansController
from reconciler.settings import ReconcilerSettings
from reconciler.stock.controller import StockController
from reconciler.units.controller import UnitsController
from reconciler.units.plan import UnitSettings
from reconciler.world import World


def build_loops(
    client: KubeClient,
    writer: GuardedClient,
    events: EventRecorder,
    settings: ReconcilerSettings,
    metrics: Metrics,
) -> tuple[Sequence[ObjectCache], Sequence[ControllerLoop]]:
    world = World(client, timedelta(seconds=settings.resync_seconds))
    unit_settings = UnitSettings(
        placeholder_image=settings.placeholder_image,
        blocked_egress=tuple(str(cidr) for cidr in settings.blocked_egress_cidrs),
    )
    units = UnitsController(world, writer, events, unit_settings, now_utc)
    stock = StockController(world, writer, now_utc)
    operations = OperationsController(world, writer, now_utc)
    orphans = OrphansController(world, writer, now_utc)
    drift = DriftController(world, writer, events, DriftMetrics(metrics.registry))
    # One worker for the orphans: their one key is the whole cluster.
    known: dict[str, Callable[[], ControllerLoop]] = {
        "units": lambda: ControllerLoop(units, units.triggers(), workers=settings.workers, metrics=metrics),
        "stock": lambda: ControllerLoop(stock, stock.triggers(), workers=settings.workers, metrics=metrics),
        "operations": lambda: ControllerLoop(
            operations, operations.triggers(), workers=settings.workers, metrics=metrics
        ),
        "orphans": lambda: ControllerLoop(orphans, orphans.triggers(), workers=1, metrics=metrics),
        "drift": lambda: ControllerLoop(drift, drift.triggers(), workers=settings.workers, metrics=metrics),
    }
    return world.caches, [known[name]() for name in settings.controllers]
