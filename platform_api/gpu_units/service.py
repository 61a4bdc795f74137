"""All that can be done with units, put together once per process: the claims under way are shared by all requests."""

from collections.abc import Callable
from datetime import datetime

from platform_api.cluster import Cluster
from platform_api.gpu_units.acceptance import Acceptance
from platform_api.gpu_units.changes import UnitChanges
from platform_api.gpu_units.claiming import StockClaimer
from platform_api.gpu_units.reads import UnitReads
from platform_api.gpu_units.targets import UnitTargets
from platform_api.gpu_units.token_digests import TokenDigests
from platform_api.gpu_units.views import UnitViews
from platform_api.metrics import ApiMetrics
from platform_api.objects.limits import ObjectLimits
from platform_api.stacks.active_previews import ActivePreviews
from platform_api.stacks.previews import PreviewService
from platform_api.stacks.recording import RecordingWaits


class UnitService:
    def __init__(
        self,
        cluster: Cluster,
        limits: ObjectLimits,
        metrics: ApiMetrics,
        now: Callable[[], datetime],
        *,
        development_addresses: bool,
    ) -> None:
        claimer = StockClaimer(cluster, metrics, now)
        self.client = cluster.client
        digests = TokenDigests()
        self.acceptance = Acceptance(cluster, limits, claimer, digests, now)
        self.changes = UnitChanges(cluster, limits, claimer, digests, self.acceptance, now)
        self.targets = UnitTargets(cluster, development_addresses=development_addresses)
        self.reads = UnitReads(cluster.client, self.targets)
        self.views = UnitViews(self.targets)
        self.recordings = RecordingWaits(cluster.client)
        self.previews = PreviewService(cluster.client, ActivePreviews(cluster.operations, now), limits)
