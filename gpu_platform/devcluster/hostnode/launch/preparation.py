"""Gets everything ready that a container's process will find: reads, writes the volumes, builds the launch.

The pod's worker calls it before each start, and from time to time while the pod runs.
"""

from collections.abc import Mapping
from datetime import datetime

from gpu_platform.devcluster.hostnode.launch.build import Launch, build_launch, check_support
from gpu_platform.devcluster.hostnode.launch.directory import PodDirectory, link_volume, write_volume
from gpu_platform.devcluster.hostnode.launch.fields import NodeFacts
from gpu_platform.devcluster.hostnode.sources import SourceReader, Sources, find_env_references, find_volume_references
from gpu_platform.devcluster.hostnode.volumes import VolumeLink, plan_volume
from gpu_platform.kube import KubeClient
from gpu_platform.kube.client import Json


class Preparation:
    """For one pod. Both methods raise `CannotStartError`, and then nothing of a volume is half written."""

    def __init__(
        self,
        client: KubeClient,
        pod: Json,
        *,
        facts: NodeFacts,
        directory: PodDirectory,
        inherited: Mapping[str, str],
    ) -> None:
        self._sources = SourceReader(client, pod)
        self._facts = facts
        self._directory = directory
        self._inherited = inherited

    async def prepare(self, pod: Json, container: Json, now: datetime) -> Launch:
        check_support(pod, container)
        references = find_volume_references(pod) | find_env_references(container)
        sources = await self._sources.read(references, now)
        self._write_volumes(pod, sources)
        launch = build_launch(
            pod,
            container,
            sources=sources,
            facts=self._facts,
            directory=self._directory,
            inherited=self._inherited,
        )
        for path in launch.subpaths:
            if not path.exists():
                path.mkdir(parents=True)
        return launch

    async def refresh_volumes(self, pod: Json, now: datetime) -> None:
        """Follow changed ConfigMaps and Secrets, and renew tokens."""
        self._write_volumes(pod, await self._sources.read(find_volume_references(pod), now))

    def _write_volumes(self, pod: Json, sources: Sources) -> None:
        volumes = pod["spec"].get("volumes") or []
        planned = [(volume, plan_volume(volume, pod, sources, self._facts)) for volume in volumes]
        self._directory.ensure(pod)
        for volume, content in planned:
            place = self._directory.volume(pod, volume["name"])
            match content:
                case VolumeLink(directory):
                    link_volume(place, directory)
                case tuple(files):
                    write_volume(place, files)
