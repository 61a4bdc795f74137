"""The settings of our processes where they run in a cluster: their own models, narrowed to what the manifests promise.

Ports that probes and Services ask, and the Lease that the Roles name, are no matter of configuration there.
"""

from typing import Any, Final, Literal

import yaml

from gpu_platform.settings import split_address
from platform_api.settings import ApiSettings
from reconciler.rules import LEASE
from reconciler.settings import ReconcilerSettings

# On all of the pod's addresses: the kubelet and the Service come from outside.
API_ADDRESS: Final = "0.0.0.0:8080"
METRICS_ADDRESS: Final = "0.0.0.0:9401"
PROBE_ADDRESS: Final = "0.0.0.0:9402"


class HostedApiSettings(ApiSettings):
    http_addr: Literal["0.0.0.0:8080"] = API_ADDRESS
    auth: Literal["keys"] = "keys"
    kube_mode: Literal["required"] = "required"
    kubeconfig: None = None
    development_addresses: Literal[False] = False


class HostedReconcilerSettings(ReconcilerSettings):
    leader_elect: Literal[True] = True
    lease_namespace: Literal["runtime-system"] = "runtime-system"
    lease_name: Literal["gpu-platform-reconciler"] = LEASE
    metrics_address: Literal["0.0.0.0:9401"] = METRICS_ADDRESS
    probe_address: Literal["0.0.0.0:9402"] = PROBE_ADDRESS
    kubeconfig: None = None


PROMISED = {
    HostedApiSettings: ("httpAddr", "auth", "kubeMode"),
    HostedReconcilerSettings: ("leaderElect", "leaseNamespace", "leaseName", "metricsAddress", "probeAddress"),
}


def render_settings(settings: HostedApiSettings | HostedReconcilerSettings) -> str:
    """The process's settings file: what is promised and what was said. The rest is left to the image's own defaults,
    because an older image would refuse a key that it does not know yet."""
    everything: dict[str, Any] = settings.model_dump(mode="json", by_alias=True)
    said = settings.model_dump(mode="json", by_alias=True, exclude_unset=True)
    promised = {key: everything[key] for key in PROMISED[type(settings)]}
    return yaml.safe_dump(promised | said, sort_keys=True)


def port_of(address: str) -> int:
    return split_address(address)[1]
