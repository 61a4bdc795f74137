"""What a cluster is, over all its starts and stops: identity, ports, API key, size, binaries."""

import json
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.errors import DevClusterError
from gpu_platform.devcluster.files import write_atomically
from gpu_platform.domain.api_keys import build_key, draw_key_parts

DEFAULT_NODES = 4
DEFAULT_GPUS = 8


@dataclass(frozen=True)
class ClusterRecord:
    id: str
    """Marks every process of this cluster in its environment, so that leftovers are found by proof."""

    pods: str
    """Root of the host node's pod directories: short, because a Unix socket's path ends at 107 characters."""

    api_key: str
    """Opens everything: the platform of one developer on one machine."""

    ports: Mapping[str, int]
    nodes: int
    gpus: int
    platform: bool
    """The platform's own processes run too, not only the cluster."""

    stack_worker: bool
    """One of them keeps the units' stacks."""

    binaries: Mapping[str, str]
    path_entries: tuple[str, ...]

    @classmethod
    def new(cls) -> Self:
        identity = secrets.token_hex(4)
        return cls(
            id=identity,
            pods=str(Path(tempfile.gettempdir()) / f"gpu-{identity}"),
            api_key=_new_key(),
            ports={},
            nodes=DEFAULT_NODES,
            gpus=DEFAULT_GPUS,
            platform=True,
            stack_worker=True,
            binaries={},
            path_entries=(),
        )

    def sized(self, nodes: int | None, gpus: int | None) -> Self:
        """The same cluster with another size; what is not said stays."""
        return replace(
            self,
            nodes=self.nodes if nodes is None else nodes,
            gpus=self.gpus if gpus is None else gpus,
        )

    @property
    def nats_url(self) -> str:
        return f"nats://127.0.0.1:{self.ports['nats']}"

    @property
    def platform_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['api']}"

    @property
    def metrics_url(self) -> str:
        """The listener of the API process for Prometheus."""
        return f"http://127.0.0.1:{self.ports['api-metrics']}"

    @property
    def probe_url(self) -> str:
        """The listener of the API process for probes."""
        return f"http://127.0.0.1:{self.ports['api-probes']}"

    @property
    def api_server_url(self) -> str:
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"


def _new_key() -> str:
    return build_key(*draw_key_parts(secrets.token_bytes))


def find_record(directory: ClusterDirectory) -> ClusterRecord | None:
    try:
        fields = json.loads(directory.record.read_text())
        # One from before NATS knew its users by their keys has a password that opens nothing any more.
        fields.pop("nats_password", None)
        # A cluster from before there were keys and stacks gets them.
        added = {"api_key": _new_key(), "stack_worker": True}
        return ClusterRecord(**{**added, **fields, "path_entries": tuple(fields["path_entries"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise DevClusterError(
            f"{directory.record} is not a cluster record ({error}); "
            f"remove {directory.root} to start with an empty cluster"
        ) from error


def get_record(directory: ClusterDirectory) -> ClusterRecord:
    record = find_record(directory)
    if record is None:
        raise DevClusterError(
            f"there is no cluster in {directory.root}; start one there with "
            f"`gpu-platform dev up --dir {directory.root}`, or name another directory"
        )
    return record


def save_record(directory: ClusterDirectory, record: ClusterRecord) -> None:
    write_atomically(directory.record, json.dumps(asdict(record), indent=2) + "\n")
