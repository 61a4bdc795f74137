"""The settings of our processes where they run in a cluster: their own models, narrowed to what the manifests promise.

Ports that probes and Services ask, and the Lease that the Roles name, are no matter of configuration there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import Field, model_validator

from gpu_platform.settings import split_address
from platform_api.settings import ApiSettings
from reconciler.rbac import LEASE
from reconciler.settings import ReconcilerSettings, find_route_problem
from stacks.settings import StackWorkerSettings

# On all of the pod's addresses: the kubelet and the Service come from outside.
API_ADDRESS: Final = "0.0.0.0:8080"
API_METRICS_ADDRESS: Final = "0.0.0.0:9405"
API_PROBE_ADDRESS: Final = "0.0.0.0:9406"
METRICS_ADDRESS: Final = "0.0.0.0:9401"
PROBE_ADDRESS: Final = "0.0.0.0:9402"


class HostedApiSettings(ApiSettings):
    http_addr: Literal["0.0.0.0:8080"] = API_ADDRESS
    metrics_address: Literal["0.0.0.0:9405"] = API_METRICS_ADDRESS
    probe_address: Literal["0.0.0.0:9406"] = API_PROBE_ADDRESS
    auth: Literal["keys"] = "keys"
    kube_mode: Literal["required"] = "required"
    kubeconfig: None = None
    nats_url: Annotated[None, Field(alias="natsURL")] = None
    nats_credentials: None = None
    nats_ca: Annotated[None, Field(alias="natsCA")] = None
    development_addresses: Literal[False] = False

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.tenant_limits.model_fields_set:
            raise ValueError(
                "tenantLimits is a section of its own, which the API reads without a restart; set it there"
            )
        return self


class HostedReconcilerSettings(ReconcilerSettings):
    leader_elect: Literal[True] = True
    lease_namespace: Literal["runtime-system"] = "runtime-system"
    lease_name: Literal["gpu-platform-reconciler"] = LEASE
    metrics_address: Literal["0.0.0.0:9401"] = METRICS_ADDRESS
    probe_address: Literal["0.0.0.0:9402"] = PROBE_ADDRESS
    kubeconfig: None = None
    # Where NATS is, and as whom to come there, is a matter of the section `nats`.
    nats_url: Annotated[None, Field(alias="natsURL")] = None
    nats_credentials: None = None
    nats_ca: Annotated[None, Field(alias="natsCA")] = None
    nats_signing_key: None = None
    nats_system_credentials: None = None

    @model_validator(mode="after")
    def _check_routes(self) -> Self:
        # Here, because a pod that ends at once says it to fewer people than a preview does.
        if problem := find_route_problem(self):
            raise ValueError(problem)
        return self


PASSPHRASE_DIRECTORY: Final = "/etc/gpu-platform-passphrase"  # noqa: S105 - where it lies
STACK_METRICS_ADDRESS: Final = "0.0.0.0:9403"
STACK_PROBE_ADDRESS: Final = "0.0.0.0:9404"


class HostedStackWorkerSettings(StackWorkerSettings):
    # In the one directory of the pod that can be written.
    state_directory: Path = Path("/tmp/stacks")  # noqa: S108 - the pod's own
    passphrase_file: Path | None = Path(PASSPHRASE_DIRECTORY, "passphrase")
    pulumi: None = None
    metrics_address: Literal["0.0.0.0:9403"] = STACK_METRICS_ADDRESS
    probe_address: Literal["0.0.0.0:9404"] = STACK_PROBE_ADDRESS
    kubeconfig: None = None


HostedSettings = HostedApiSettings | HostedReconcilerSettings | HostedStackWorkerSettings

PROMISED = {
    HostedApiSettings: ("httpAddr", "auth", "kubeMode", "metricsAddress", "probeAddress"),
    HostedReconcilerSettings: ("leaderElect", "leaseNamespace", "leaseName", "metricsAddress", "probeAddress"),
    HostedStackWorkerSettings: ("stateDirectory", "passphraseFile", "metricsAddress", "probeAddress"),
}


def render_settings(settings: HostedSettings, found: Mapping[str, Any] | None = None) -> str:
    """The process's settings file: what is promised, what other sections have to say, and what was said. The rest is
    left to the image's own defaults, because an older image would refuse a key that it does not know yet."""
    everything: dict[str, Any] = settings.model_dump(mode="json", by_alias=True)
    said = settings.model_dump(mode="json", by_alias=True, exclude_unset=True)
    promised = {key: everything[key] for key in PROMISED[type(settings)]}
    return yaml.safe_dump(promised | dict(found or {}) | said, sort_keys=True)


def port_of(address: str) -> int:
    return split_address(address)[1]
