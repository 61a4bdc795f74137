"""Pods for the host node, and the questions that tests ask of them."""

from collections.abc import Callable
from typing import Any

import aiohttp

from gpu_platform.devcluster.child_process import find_marked
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, KubeError, NotFoundError
from gpu_platform.kube.paths import PODS
from tests.support.waiting import eventually

HOST_ADDRESS = "runtime.lokiwager.io/host-address"

POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def shell(script: str, name: str = "main", **fields: Any) -> Json:
    return {"name": name, "image": "none", "command": ["sh", "-c", script], **fields}


def pod_spec(*containers: Json, **fields: Any) -> Json:
    return {
        "nodeSelector": {"runtime.lokiwager.io/node": "host"},
        "tolerations": [{"key": "runtime.lokiwager.io/host-node", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 2,
        "containers": list(containers),
        **fields,
    }


class Pods:
    """The pods of one test's namespace."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace

    async def create(self, name: str, *containers: Json, **fields: Any) -> Json:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": pod_spec(*containers, **fields),
        }
        return await self.kube.create(PODS.collection(self.namespace), body)

    async def get(self, name: str) -> Json:
        return await self.kube.get(PODS.item(name, self.namespace))

    async def wait(self, name: str, condition: Callable[[Json], Any], within: float = 180) -> Json:
        async def question() -> Json | None:
            pod = await self.get(name)
            return pod if condition(pod) else None

        return await eventually(question, within)

    async def running(self, name: str, *containers: Json, **fields: Any) -> Json:
        await self.create(name, *containers, **fields)
        return await self.wait(name, is_ready)

    async def delete(self, name: str, **options: Any) -> None:
        await self.kube.delete(PODS.item(name, self.namespace), options)

    async def gone(self, name: str) -> None:
        async def question() -> bool:
            try:
                await self.get(name)
            except NotFoundError:
                return True
            return False

        await eventually(question)

    async def log(self, name: str, **options: str) -> str:
        return await self.kube.text(PODS.item(name, self.namespace, "log"), options)

    async def log_has(self, name: str, words: str, **options: str) -> str:
        async def question() -> str | None:
            try:
                log = await self.log(name, **options)
            except KubeError:
                return None
            return log if words in log else None

        return await eventually(question)


def container(pod: Json, index: int = 0) -> Json:
    statuses: list[Json] = pod["status"].get("containerStatuses") or [{}]
    return statuses[index]


def is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def waits_because(reason: str) -> Callable[[Json], bool]:
    def condition(pod: Json) -> bool:
        waiting: Json = container(pod).get("state", {}).get("waiting", {})
        return waiting.get("reason") == reason

    return condition


def has_phase(phase: str) -> Callable[[Json], bool]:
    return lambda pod: bool(pod["status"].get("phase") == phase)


def processes(pod: Json) -> list[int]:
    return list(find_marked("GPU_PLATFORM_DEV_POD", pod["metadata"]["uid"]))


async def is_without_processes(pod: Json) -> None:
    async def question() -> bool:
        return not processes(pod)

    await eventually(question)


async def fetch(pod: Json, path: str = "/", method: str = "GET") -> str:
    url = f"http://{pod['metadata']['annotations'][HOST_ADDRESS]}:8080{path}"
    async with aiohttp.request(method, url) as response:
        return await response.text()
