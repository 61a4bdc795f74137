"""The way from the internet to a unit that asked for one: an Ingress or an HTTPRoute. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.network import build_peer
from gpu_platform.domain.units import GPUUnitSpec, why_not_public
from reconciler.child_diff import UnitChild, build_child, is_as_desired, note_fields

ROUTES = (UnitChild.INGRESS, UnitChild.HTTP_ROUTE)

NO_ROUTES = "this platform gives units no public addresses; an operator can change that with the reconciler's routeKind"


@dataclass(frozen=True)
class IngressClass:
    """Whose controller takes the Ingresses up. Never the cluster's default one: that is chosen when an Ingress is made,
    and lost when it is replaced."""

    name: str


@dataclass(frozen=True)
class Gateway:
    """Whose listeners the HTTPRoutes hang on."""

    namespace: str
    name: str
    listener: str | None = None
    """None: all of them."""

    def to_reference(self) -> Json:
        listener = {"sectionName": self.listener} if self.listener else {}
        return {"namespace": self.namespace, "name": self.name, **listener}


@dataclass(frozen=True)
class RouteSettings:
    target: IngressClass | Gateway
    domain: str
    from_namespace: str
    """Where the pods are that bring the calls."""

    from_labels: Mapping[str, str] = field(default_factory=dict)
    scheme: Literal["http", "https"] = "https"
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> UnitChild:
        return UnitChild.INGRESS if isinstance(self.target, IngressClass) else UnitChild.HTTP_ROUTE


@dataclass(frozen=True)
class RouteBuild:
    """Everything that a unit's route is made of."""

    settings: RouteSettings
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"{self.settings.scheme}://{self.host}/"


def find_access_problem(spec: GPUUnitSpec) -> str | None:
    """Why nobody could call the unit as its `access` says. The API refuses most of this, `kubectl` does not."""
    access = spec.access
    if access is None:
        return None
    port = spec.primary_port
    if port is None and access.primary_port is not None:
        known = ", ".join(each.name for each in spec.template.ports) or "none"
        return f"spec.access.primaryPort: {access.primary_port!r} is not a port of the template (it has: {known})"
    if not access.public:
        return None
    reason = why_not_public(access, port)
    return f"spec.access.public: {reason}" if reason else None


def wants_route(spec: GPUUnitSpec, namespace: str) -> bool:
    """Stock never does."""
    return spec.access is not None and bool(spec.access.public) and not names.is_stock_namespace(namespace)


def plan_route(spec: GPUUnitSpec, namespace: str, name: str, settings: RouteSettings | None) -> RouteBuild | None:
    """None for a unit that is not public, or on a platform that gives nobody an address."""
    port = spec.primary_port
    if not wants_route(spec, namespace) or port is None or settings is None:
        return None
    return RouteBuild(settings, names.public_host(name, namespace, settings.domain), port.port)


def build_route_object(route: RouteBuild, metadata: Json, service: str) -> Json:
    match route.settings.target:
        case IngressClass() as ingress_class:
            spec = _ingress_spec(route, ingress_class, service)
        case Gateway() as gateway:
            spec = _http_route_spec(route, gateway, service)
    return build_child(route.settings.kind.value, metadata, spec)


def _ingress_spec(route: RouteBuild, ingress_class: IngressClass, service: str) -> Json:
    backend = {"service": {"name": service, "port": {"number": route.port}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    rules = [{"host": route.host, "http": {"paths": [path]}}]
    spec: Json = {"ingressClassName": ingress_class.name, "rules": rules}
    if route.settings.scheme == "https":
        # Without a Secret: all hosts are of one domain, and its certificate is the controller's.
        spec["tls"] = [{"hosts": [route.host]}]
    return spec


def _http_route_spec(route: RouteBuild, gateway: Gateway, service: str) -> Json:
    return {
        "parentRefs": [gateway.to_reference()],
        "hostnames": [route.host],
        "rules": [{"backendRefs": [{"name": service, "port": route.port}]}],
    }


def build_admission(route: RouteBuild) -> Json:
    """The entry of the unit's NetworkPolicy for those who bring the calls."""
    settings = route.settings
    bringers = build_peer(settings.from_namespace, settings.from_labels)
    return {"from": [bringers], "ports": [{"protocol": "TCP", "port": route.port}]}


def find_route_wait(desired: Json, live: Json | None) -> str | None:
    """What a unit's public address still waits for; None when calls come through. Rows from top to bottom.

    | kind      | as it is                                               | waits for              |
    | --------- | ------------------------------------------------------ | ---------------------- |
    | any       | not made yet, or on its way out                        | the route              |
    | any       | not as it should be: perhaps of another host           | its change             |
    | Ingress   | its status has an address                              | –                      |
    | Ingress   | any other                                              | an ingress controller  |
    | HTTPRoute | a gateway says of this generation that it accepts it and finds its Service | –  |
    | HTTPRoute | a gateway says anything else                           | its words              |
    | HTTPRoute | any other                                              | a gateway              |
    """
    kind = UnitChild(desired["kind"])
    if live is None or "deletionTimestamp" in live["metadata"]:
        return f"its {kind} is not made yet"
    if not is_as_desired(note_fields(desired), live):
        return f"its {kind} is being changed"
    status = live.get("status") or {}
    if kind is UnitChild.INGRESS:
        has_address = bool((status.get("loadBalancer") or {}).get("ingress"))
        return None if has_address else "no ingress controller has taken up its Ingress yet"
    parents = [_judge_parent(parent, live["metadata"].get("generation")) for parent in status.get("parents") or ()]
    if not parents:
        return "no gateway has taken up its HTTPRoute yet"
    return None if None in parents else parents[0]


def _judge_parent(parent: Json, generation: int | None) -> str | None:
    """What keeps one gateway from passing calls on; None when nothing does."""
    said = {condition["type"]: condition for condition in parent.get("conditions") or ()}
    for kind in ("Accepted", "ResolvedRefs"):
        condition = said.get(kind)
        if condition is None or condition.get("observedGeneration", generation) != generation:
            return "the gateway has not looked at its HTTPRoute yet"
        if condition["status"] != "True":
            return f"the gateway says {condition['reason']}: {condition.get('message') or 'no more than that'}"
    return None
