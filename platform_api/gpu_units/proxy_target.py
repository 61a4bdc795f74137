"""Where a unit's calls are forwarded to: the decision as a table, and its inputs out of the caches, so that a call
costs Kubernetes nothing and goes on while it is away.
"""

from collections.abc import Iterable

from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.units import GPUUnitSpec, GPUUnitStatus, Phase, UnitPort
from platform_api.http.errors import ApiError, not_found, not_ready
from platform_api.proxy.pod_address import Simulated, Target, plan_address


def plan_target(unit: Json, pods: Iterable[Json], port: str, *, development_addresses: bool) -> Target | ApiError:
    """`port` is the name or the number of one that the unit declares.

    | port          | unit                   | a pod is ready       | answer                       |
    | ------------- | ---------------------- | -------------------- | ---------------------------- |
    | not declared  | any                    | any                  | no such port, and which are  |
    | UDP or SCTP   | any                    | any                  | no such port, and why        |
    | declared, TCP | being deleted          | any                  | not ready: Terminating       |
    | declared, TCP | stopped                | any                  | not ready: start it          |
    | declared, TCP | in any phase but Ready | any                  | not ready: phase and message |
    | declared, TCP | Ready                  | no                   | not ready: its pod is not    |
    | declared, TCP | Ready                  | on a simulated node  | not ready: nothing runs      |
    | declared, TCP | Ready                  | yes                  | the pod's address            |
    """
    metadata, spec = unit["metadata"], GPUUnitSpec.model_validate(unit["spec"])
    what = f"the unit {metadata['name']!r}"
    declared = find_port(spec, port)
    if declared is None or declared.protocol != "TCP":
        return not_found("port_not_found", f"{what} has no port {port!r} to call: {_describe_ports(spec)}")
    if why := _why_not_ready(unit, spec):
        return not_ready(f"{what} {why}")
    address = plan_address(pods, development_addresses=development_addresses)
    if address is None:
        return not_ready(f"{what} has no pod that is ready; see its events")
    if isinstance(address, Simulated):
        return not_ready(f"{what} {address.why}")
    return Target(
        what=what,
        address=address,
        port=declared.port,
        authority=f"{names.service_host(metadata['name'], metadata['namespace'])}:{declared.port}",
        is_tls=_scheme_of(spec) == "https" and declared == spec.primary_port,
        is_public=spec.access is not None and bool(spec.access.public) and declared == spec.primary_port,
    )


def find_callable_port(unit: Json) -> str | None:
    """The name of the port that the unit's URL is about; None where it speaks something else than HTTP there."""
    spec = GPUUnitSpec.model_validate(unit["spec"])
    port = spec.primary_port
    return port.name if port and port.protocol == "TCP" and _scheme_of(spec) != "tcp" else None


def find_port(spec: GPUUnitSpec, port: str) -> UnitPort | None:
    """A name has a letter in it, so that no number can be meant by it."""
    return next((each for each in spec.template.ports if port in (each.name, str(each.port))), None)


def _scheme_of(spec: GPUUnitSpec) -> str:
    return spec.access.scheme if spec.access else "http"


def _why_not_ready(unit: Json, spec: GPUUnitSpec) -> str | None:
    if "deletionTimestamp" in unit["metadata"]:
        return "is Terminating"
    if not spec.running:
        return "is stopped; start it"
    status = GPUUnitStatus.of(unit)
    if status.phase is Phase.READY:
        return None
    condition = find_condition(status.conditions, "Ready")
    why = (condition.message or condition.reason) if condition else ""
    return f"is {status.phase or Phase.PENDING}" + (f": {why}" if why else "")


def _describe_ports(spec: GPUUnitSpec) -> str:
    named = [f"{port.name} ({port.port}/{port.protocol})" for port in spec.template.ports]
    return f"it declares {', '.join(named)}, and TCP can be called" if named else "it declares none"
