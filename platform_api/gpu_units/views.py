"""Units as their tenants see them: what their objects say, and where they can be called just now."""

from typing import Any

from platform_api.gpu_units.schemas import UnitView, view_of
from platform_api.gpu_units.targets import UnitTargets
from platform_api.proxying.target import Simulated

Json = dict[str, Any]


class UnitViews:
    def __init__(self, targets: UnitTargets) -> None:
        self._targets = targets

    def show(self, unit: Json, root: str) -> UnitView:
        """A unit's URLs are shown while a pod of it is ready. Its own status may be some seconds behind on that, or for
        ever, where nobody is left to write it. `root` is where the caller reaches this API."""
        view = view_of(unit)
        address = self._targets.find_address(unit) if view.access_url is not None else None
        if address is None:
            gone: Json = {"access_url": None, "public_url": None}
            # What it says about an address that is there is no longer true; what it waits for still is.
            return view.model_copy(update=gone if view.public_url is None else {**gone, "public_message": None})
        # The Service of a simulated unit exists, but this API passes no calls on to it.
        path = None if isinstance(address, Simulated) else self._targets.find_proxy_path(unit)
        return view.model_copy(update={"proxy_url": f"{root}{path}" if path else None})
