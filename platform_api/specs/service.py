"""The catalogue, from memory."""

from platform_api.cluster import Cluster
from platform_api.http.errors import not_found
from platform_api.specs.schemas import SpecView, view_of


def list_specs(cluster: Cluster) -> tuple[SpecView, ...]:
    return tuple(sorted(map(view_of, cluster.specs.objects()), key=lambda spec: spec.name))


def get_spec(cluster: Cluster, name: str) -> SpecView:
    spec = cluster.specs.get(None, name)
    if spec is None:
        raise not_found("spec_not_found", f"there is no spec {name!r}")
    return view_of(spec)
