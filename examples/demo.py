"""`make demo`: the platform at work from nothing to the end, as a person uses it. Stops what it started."""

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from gpu_platform.devcluster.configuration import cluster_environment
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.record import get_record, read_status
from gpu_platform.domain import names
from gpu_platform.kube import NotFoundError, open_client
from gpu_platform.kube.paths import DEPLOYMENTS, GPU_UNITS

Json = dict[str, Any]

REPOSITORY = Path(__file__).resolve().parents[1]
REQUEST = "examples/requests/web.json"
PLATFORM = str(Path(sys.executable).with_name("gpu-platform"))
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.02

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-demo-") as root:
        place = ClusterDirectory(Path(root) / "cluster")
        option = ("--dir", str(place.root))
        try:
            step("Start etcd, Kubernetes, NATS and the nodes, bootstrap with Pulumi, start the platform's processes")
            run(PLATFORM, "dev", "up", *option)
            os.environ.update(cluster_environment(place, get_record(place), os.environ["PATH"]))
            step("Ask Pulumi what is left to do")
            run("pulumi", "preview", "--expect-no-changes", "--suppress-progress")
            with open_api() as api:
                show_platform(place, api)
            step("What runs now")
            run(PLATFORM, "dev", "status", *option)
        finally:
            step("Stop everything")
            run(PLATFORM, "dev", "down", *option)
    console.print(f"\n[bold green]done[/] in {time.monotonic() - started_at:.0f} s")


def show_platform(place: ClusterDirectory, api: httpx.Client) -> None:
    step("Fill a pool of warm stock on the host node, where commands really run")
    run(PLATFORM, "pools", "create", "host", "--spec", "host.1", "--replicas", "2", "--wait")

    step("Rent a unit, and reach it")
    run(PLATFORM, "units", "create", "web", "--file", REQUEST, "--wait")
    show_answer(run_and_read(PLATFORM, "units", "url", "web"))
    show_passed_on(api, "/gpu-units/web/proxy/http/")

    step("Send the same request again, over plain REST: nothing is rented twice")
    show_replays(api)

    step("Its Pulumi stack: what was accepted is recorded, after the answer")
    until(lambda: is_recorded(api), "the unit's stack")
    run(PLATFORM, "units", "stack", "web")
    run(PLATFORM, "units", "preview", "web")

    step("Make drift behind the platform's back, and see what was accepted come back")
    asyncio.run(show_drift(place))
    until(lambda: is_ready(api) and is_recorded(api), "the unit to be Ready and recorded again")
    run(PLATFORM, "drift")

    step("A storage outlives units: filled once, mounted by one unit at a time, its files to be looked at")
    fill = "echo 'to be or not to be' > /workspace/speech.txt"
    image = ("--from-image", "example/fetch", "--command", "sh", "--arg=-c", f"--arg={fill}")
    run(PLATFORM, "storages", "create", "speeches", "--size", "1Gi", *image, "--accessor", "--wait")
    run(PLATFORM, "units", "update", "web", "--mount", "speeches:/speeches", "--wait")
    run(PLATFORM, "storages", "list")
    run(PLATFORM, "storages", "delete", "speeches", exit_code=1)
    show_passed_on(api, "/gpu-storages/speeches/proxy/speech.txt")

    step("A unit that cannot start says why")
    broken = ("--spec", "host.1", "--image", "example/web", "--command", "pyhton3")
    run(PLATFORM, "units", "create", "broken", *broken, "--wait", exit_code=1)
    run(PLATFORM, "units", "events", "broken")
    run(PLATFORM, "units", "delete", "broken")

    step("Stop the unit, which frees its GPU, and start it on other stock")
    run(PLATFORM, "units", "stop", "web", "--wait")
    run(PLATFORM, "units", "start", "web", "--wait")

    step("kill -9 of etcd and of the API: both come back with everything in them")
    show_recovery(place, api)
    show_answer(run_and_read(PLATFORM, "units", "url", "web"))

    step("Declare a function, which costs nothing, and call it: the call brings a worker out of the same stock")
    handler = f"{REPOSITORY}/examples/functions/words.py:count"
    command = ("--command", "python3", "--arg=-m", "--arg=serverless.framework", f"--arg={handler}")
    options = ("--spec", "host.1", "--image", "example/words", "--idle-timeout", "5")
    run(PLATFORM, "functions", "create", "words", *options, *command)
    run(PLATFORM, "functions", "health", "words")
    run(PLATFORM, "invoke", "words", '{"text": "to be or not to be"}', "--trace")

    step("A call that kills its worker is answered all the same, and called again it is not run again")
    poison = ("invoke", "words", '{"text": "the rest is silence", "crash": 1}', "--id", "brave")
    run(PLATFORM, *poison)
    run(PLATFORM, *poison)
    run(PLATFORM, "invocations", "list")
    step("Nobody calls: the worker goes, and the stock is full again")
    until(lambda: api.get("/serverless/functions/words").json()["data"]["workers"] == 0, "the worker to go")
    run(PLATFORM, "functions", "list")
    run(PLATFORM, "functions", "delete", "words")

    step("Give the unit back")
    run(PLATFORM, "units", "delete", "web", "--wait")
    run(PLATFORM, "pools", "list")
    until(lambda: not api.get("/gpu-storages/speeches").json()["data"].get("mountedBy"), "the storage to be free")
    run(PLATFORM, "storages", "delete", "speeches", "--wait")


def show_replays(api: httpx.Client) -> None:
    body = (REPOSITORY / REQUEST).read_bytes()
    unit = api.get("/gpu-units/web")
    again = post_unit(api, body)
    if again.status_code != httpx.codes.OK or again.headers["ETag"] != unit.headers["ETag"]:
        raise SystemExit(f"the same request did not get the same unit: {again.text}")
    console.print(f"  {again.status_code}: {again.json()['data']['name']}, the same unit, {again.headers['ETag']}")
    other = post_unit(api, body.replace(b"example/web", b"example/other"))
    if other.status_code != httpx.codes.CONFLICT:
        raise SystemExit(f"another request with the same operationID was not refused: {other.text}")
    console.print(f"  with another image: {other.status_code} {other.json()['error']['message']}")


async def show_drift(place: ClusterDirectory) -> None:
    unit = GPU_UNITS.item("web", names.DEFAULT_INSTANCE_NAMESPACE)
    deployment = DEPLOYMENTS.item(names.child_name("web"), names.DEFAULT_INSTANCE_NAMESPACE)
    async with await open_client(place.kubeconfig) as kube:

        async def look(path: str) -> Json | None:
            with contextlib.suppress(NotFoundError):
                return await kube.get(path)
            return None

        async def show(what: str, change: Awaitable[object], is_back: Callable[[], Awaitable[bool]]) -> None:
            began_at = time.monotonic()
            await change
            while not await is_back():
                if time.monotonic() > began_at + WAIT_SECONDS:
                    raise SystemExit(f"{what}: what was accepted did not come back")
                await asyncio.sleep(POLL_SECONDS)
            console.print(f"  {what}: right again after {time.monotonic() - began_at:.2f} s")

        before = await kube.get(unit)

        async def is_spec_back() -> bool:
            return bool((await kube.get(unit))["spec"] == before["spec"])

        def is_made_again(path: str, old: Json) -> Callable[[], Awaitable[bool]]:
            async def is_other() -> bool:
                found = await look(path)
                return found is not None and bool(found["metadata"]["uid"] != old["metadata"]["uid"])

            return is_other

        await show("the unit's image edited", kube.patch(unit, {"spec": {"image": "example/other"}}), is_spec_back)
        child = await kube.get(deployment)
        await show("its Deployment deleted", kube.delete(deployment), is_made_again(deployment, child))
        await show("the unit itself deleted", kube.delete(unit), is_made_again(unit, before))


def show_recovery(place: ClusterDirectory, api: httpx.Client) -> None:
    for process in read_status(place).processes:
        if process.name in ("etcd", "api") and process.pid is not None:
            console.print(f"  killed {process.name} ({process.pid})")
            os.kill(process.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    until(lambda: is_ready(api), "the API to answer again")
    console.print(f"  {time.monotonic() - killed_at:.1f} s later the API answers, and the unit is Ready")


def show_answer(url: str) -> None:
    answer = httpx.get(url, trust_env=False)
    console.print(f"  GET {url} answers {answer.status_code} {answer.reason_phrase}")


def show_passed_on(api: httpx.Client, path: str) -> None:
    """Through the platform's own door, with its key."""
    until(lambda: api.get(path).is_success, path)
    said = api.get(path).text.strip().splitlines()
    console.print(f"  GET /api/v1{path} answers: {said[0] if said else ''}")


def open_api() -> httpx.Client:
    """Plain HTTP, as any other program would do it."""
    return httpx.Client(
        base_url=f"{os.environ['GPU_PLATFORM_URL']}/api/v1",
        headers={"Authorization": f"Bearer {os.environ['GPU_PLATFORM_KEY']}"},
        # A proxy of the environment does not know this machine's own addresses.
        trust_env=False,
    )


def post_unit(api: httpx.Client, body: bytes) -> httpx.Response:
    return api.post("/gpu-units", content=body, headers={"Content-Type": "application/json"})


def is_ready(api: httpx.Client) -> bool:
    """False also while nobody answers."""
    try:
        answer = api.get("/gpu-units/web")
    except httpx.TransportError:
        return False
    return answer.is_success and answer.json()["data"]["phase"] == "Ready"


def is_recorded(api: httpx.Client) -> bool:
    return bool(api.get("/gpu-units/web/stack").json()["data"]["recorded"])


def until(question: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not question():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {WAIT_SECONDS:.0f} s in vain for {what}")
        time.sleep(POLL_SECONDS)


def step(title: str) -> None:
    console.print(f"\n[bold cyan]▸ {title}[/]")


def run(*command: str, exit_code: int = 0) -> None:
    say(command)
    done = subprocess.run(command, cwd=REPOSITORY, check=False)
    if done.returncode != exit_code:
        raise SystemExit(f"{command[0]} ended with {done.returncode}, not with {exit_code}")


def run_and_read(*command: str) -> str:
    say(command)
    done = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def say(command: tuple[str, ...]) -> None:
    shown = shlex.join([Path(command[0]).name, *command[1:]])
    console.print(f"  [dim]$ {shown}[/]")


if __name__ == "__main__":
    main()
