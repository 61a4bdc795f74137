"""The host node runs pods as real processes: what a pod may expect of it, on a real control plane."""

import asyncio
import signal
import ssl
from contextlib import aclosing

import aiohttp
import pytest

from gpu_platform.devcluster.credentials import key_pair
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, KubeError
from gpu_platform.kube.paths import CONFIG_MAPS, DEPLOYMENTS, ENDPOINT_SLICES, NODES, PODS, SECRETS, SERVICES
from tests.support.clusters import GPUS, RunningCluster
from tests.support.host_pods import (
    HOST_ADDRESS,
    POD_IP,
    Pods,
    container,
    fetch,
    has_phase,
    is_ready,
    pod_spec,
    processes,
    shell,
    waits_because,
)
from tests.support.waiting import eventually

SWITCHES = """
import http.server, sys
state = {"/ready": 200, "/live": 200}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(state.get(self.path, 200)); self.end_headers()
    def do_POST(self):
        state[self.path] = 503 if state[self.path] == 200 else 200
        self.send_response(200); self.end_headers()
http.server.HTTPServer((sys.argv[1], 8080), Handler).serve_forever()
"""
"""A server whose answers a test can flip with a POST."""


@pytest.fixture
def pods(kube: KubeClient, namespace: str) -> Pods:
    return Pods(kube, namespace)


async def test_the_node_is_ready_tainted_and_has_simulated_gpus(kube: KubeClient) -> None:
    node = await kube.get(NODES.item("host"))
    conditions = {condition["type"]: condition["status"] for condition in node["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert node["spec"]["taints"] == [
        {"key": "runtime.lokiwager.io/host-node", "value": "true", "effect": "NoSchedule"}
    ]
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == str(GPUS)


async def test_only_the_api_server_may_ask_the_node(kube: KubeClient, cluster: RunningCluster) -> None:
    node = await kube.get(NODES.item("host"))
    url = f"https://127.0.0.1:{node['status']['daemonEndpoints']['kubeletEndpoint']['Port']}/healthz"

    async def ask(name: str | None) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=key_pair(cluster.directory.pki, "ca").certificate)
        if name:
            pair = key_pair(cluster.directory.pki, name)
            context.load_cert_chain(pair.certificate, pair.key)
        async with aiohttp.request("GET", url, ssl=context) as response:
            return response.status, await response.text()

    assert await ask("kubelet-client") == (200, "ok")
    assert (await ask("admin"))[0] == 403
    with pytest.raises(aiohttp.ClientError):
        await ask(None)


async def test_a_deployment_answers_on_its_own_address_and_its_service_has_a_ready_endpoint(
    pods: Pods, kube: KubeClient, namespace: str
) -> None:
    server = {
        "name": "web",
        "image": "none",
        "command": ["python3", "-m", "http.server", "8080", "--bind", "$(POD_IP)"],
        "env": [POD_IP],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 1},
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec(server)}
    deployment = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    service = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}
    await kube.create(DEPLOYMENTS.collection(namespace), {"metadata": {"name": "web"}, "spec": deployment})
    await kube.create(SERVICES.collection(namespace), {"metadata": {"name": "web"}, "spec": service})

    async def ready_endpoint() -> Json | None:
        slices = await kube.get(ENDPOINT_SLICES.collection(namespace))
        found = [endpoint for each in slices["items"] for endpoint in each.get("endpoints") or []]
        return next((endpoint for endpoint in found if endpoint["conditions"]["ready"]), None)

    endpoint = await eventually(ready_endpoint)
    pod = await pods.get(endpoint["targetRef"]["name"])
    real, shown = pod["metadata"]["annotations"][HOST_ADDRESS], pod["status"]["podIP"]
    assert endpoint["addresses"] == [shown]
    assert (real.split(".")[0], shown.split(".")[0]) == ("127", "10")
    assert real.split(".")[1:] == shown.split(".")[1:]
    assert "Directory listing" in await fetch(pod)

    assert processes(pod)
    await kube.delete(DEPLOYMENTS.item("web", namespace), {"propagationPolicy": "Background"})
    await pods.gone(pod["metadata"]["name"])
    assert processes(pod) == []


async def test_python3_finds_the_packages_of_the_platform(pods: Pods) -> None:
    await pods.create("worker", shell("python3 -c 'import serverless'"), restartPolicy="Never")
    pod = await pods.wait("worker", lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed"))
    assert pod["status"]["phase"] == "Succeeded", await pods.log("worker")


async def test_two_pods_bind_the_same_port(pods: Pods) -> None:
    server = shell("exec python3 -m http.server 8080 --bind $POD_IP", env=[POD_IP])
    server["readinessProbe"] = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    first, second = await asyncio.gather(pods.running("first", server), pods.running("second", server))
    assert "Directory listing" in await fetch(first)
    assert "Directory listing" in await fetch(second)


async def test_a_failure_without_a_message_is_silent_unless_the_logs_stand_in_for_it(pods: Pods) -> None:
    await pods.create("silent", shell("echo one; exit 3"), restartPolicy="Never")
    pod = await pods.wait("silent", has_phase("Failed"))
    assert "message" not in container(pod)["state"]["terminated"]


async def test_a_crash_loop_shows_its_code_and_last_output(pods: Pods) -> None:
    talking = shell("echo one; echo two >&2; exit 3") | {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await pods.create("crash", talking)
    pod = await pods.wait(
        "crash", lambda pod: waits_because("CrashLoopBackOff")(pod) and container(pod)["restartCount"]
    )
    end = container(pod)["lastState"]["terminated"]
    assert (end["exitCode"], end["reason"]) == (3, "Error")
    assert sorted(end["message"].splitlines()) == ["one", "two"]
    assert pod["status"]["phase"] == "Running"
    assert sorted((await pods.log("crash", previous="true")).splitlines()) == ["one", "two"]


async def test_logs_come_through_the_api_server(pods: Pods) -> None:
    await pods.running("talk", shell("for n in 1 2 3; do echo line $n; done; read x </dev/null; sleep 600"))
    assert await pods.log_has("talk", "line 3") == "line 1\nline 2\nline 3\n"
    assert await pods.log("talk", tailLines="1") == "line 3\n"
    assert await pods.log("talk", limitBytes="6") == "line 1"
    assert await pods.log("talk", sinceSeconds="600") == "line 1\nline 2\nline 3\n"
    stamped = await pods.log("talk", timestamps="true", tailLines="1")
    assert stamped.split(" ", 1)[0].endswith("Z")
    with pytest.raises(KubeError, match="previous terminated container"):
        await pods.log("talk", previous="true")


async def test_a_log_is_followed_to_its_end(pods: Pods) -> None:
    script = "echo begin; until [ -e /data/go ]; do sleep 0.02; done; echo end"
    helper = shell("sleep 0.5; touch /data/go", name="helper", volumeMounts=[{"name": "data", "mountPath": "/data"}])
    main = shell(script, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    volumes = [{"name": "data", "emptyDir": {}}]
    await pods.create("follow", main, helper, volumes=volumes, restartPolicy="Never")
    await pods.log_has("follow", "begin", container="main")
    options = {"follow": "true", "container": "main"}
    path = PODS.item("follow", pods.namespace, "log")
    async with aclosing(pods.kube.lines(path, options, silence=180)) as lines:
        assert [line async for line in lines] == [b"begin\n", b"end\n"]


async def test_volumes_are_directories_and_paths_into_them_are_rewritten(
    pods: Pods, kube: KubeClient, namespace: str
) -> None:
    meta = {"metadata": {"name": "settings"}}
    await kube.create(CONFIG_MAPS.collection(namespace), {"data": {"color": "blue", "deep": "sea"}} | meta)
    await kube.create(SECRETS.collection(namespace), {"stringData": {"key": "s3cret"}} | meta)
    volumes = [
        {"name": "a-volume-with-a-name-as-long-as-kubernetes-will-allow-it-to-be", "emptyDir": {}},
        {"name": "config", "configMap": {"name": "settings", "items": [{"key": "deep", "path": "a/b"}]}},
        {"name": "secret", "secret": {"secretName": "settings", "defaultMode": 0o400}},
        {
            "name": "mixed",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"path": "token", "audience": "test", "expirationSeconds": 600}},
                    {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                ]
            },
        },
        {"name": "one", "configMap": {"name": "settings"}},
    ]
    mounts = [
        {"name": volumes[0]["name"], "mountPath": "/var/run/sockets"},
        {"name": "config", "mountPath": "/etc/config"},
        {"name": "secret", "mountPath": "/etc/secret"},
        {"name": "mixed", "mountPath": "/etc/mixed"},
        {"name": "one", "mountPath": "/etc/color.txt", "subPath": "color"},
    ]
    script = """
import os, socket, stat, sys
read = lambda path: open(path).read()
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1].partition("=")[2])
print(read("/etc/config/a/b"), read("/etc/secret/key"), read("/etc/color.txt"), read("/etc/mixed/labels"))
print(oct(stat.S_IMODE(os.stat("/etc/secret/key").st_mode)), read("/etc/mixed/token").count("."))
print(len(sys.argv[1].partition("=")[2]) < 100, os.getcwd() == os.environ["HERE"])
"""
    arguments = ["--listen=/var/run/sockets/a-socket-with-a-rather-long-name.sock"]
    main = shell("", volumeMounts=mounts, workingDir="/etc/config", env=[{"name": "HERE", "value": "/etc/config"}])
    main |= {"command": ["python3", "-c", script], "args": arguments}
    await pods.create("files", main, volumes=volumes, restartPolicy="Never")
    await pods.wait("files", has_phase("Succeeded"))
    assert (await pods.log("files")).splitlines() == [
        'sea s3cret blue app="files"',
        "0o400 2",
        "True True",
    ]


async def test_the_environment_has_the_downward_api_and_references(
    pods: Pods, kube: KubeClient, namespace: str
) -> None:
    meta = {"metadata": {"name": "settings"}}
    await kube.create(CONFIG_MAPS.collection(namespace), {"data": {"color": "blue"}} | meta)
    await kube.create(SECRETS.collection(namespace), {"stringData": {"key": "s3cret"}} | meta)

    def field(path: str) -> Json:
        return {"fieldRef": {"fieldPath": path}}

    env = [
        POD_IP,
        {"name": "NAME", "valueFrom": field("metadata.name")},
        {"name": "APP", "valueFrom": field("metadata.labels['app']")},
        {"name": "NODE", "valueFrom": field("spec.nodeName")},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "settings", "key": "key"}}},
        {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "x", "optional": True}}},
        {"name": "URL", "value": "http://$(POD_IP):80/$$(NAME)"},
    ]
    main = shell("printenv POD_IP NAME APP NODE CPUS MEMORY KEY URL C_color; printenv NONE; echo $(NAME)", env=env)
    main["envFrom"] = [{"prefix": "C_", "configMapRef": {"name": "settings"}}]
    main["resources"] = {"limits": {"cpu": "100m", "memory": "64Mi"}}
    await pods.create("env", main, restartPolicy="Never")
    pod = await pods.wait("env", has_phase("Succeeded"))
    real = pod["metadata"]["annotations"][HOST_ADDRESS]
    values = (real, "env", "env", "host", "1", "64", "s3cret", f"http://{real}:80/$(NAME)", "blue", "env")
    assert (await pods.log("env")).splitlines() == list(values)


async def test_init_containers_and_sidecars_keep_their_order(pods: Pods) -> None:
    mounts: Json = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    sidecar = shell(
        "trap 'echo sidecar ends >>/data/log; exit 0' TERM; sleep 0.3; echo sidecar >>/data/log; touch /data/up; "
        "while :; do sleep 0.05; done",
        name="sidecar",
        restartPolicy="Always",
        startupProbe={"exec": {"command": ["test", "-e", "/data/up"]}, "periodSeconds": 1},
        **mounts,
    )
    first = shell("echo first >>/data/log", name="first", **mounts)
    second = shell("echo second >>/data/log; sleep 0.1", name="second", **mounts)
    main = shell("echo main >>/data/log; sleep 0.5; echo main ends >>/data/log; cat /data/log", **mounts)
    await pods.create(
        "order",
        main,
        initContainers=[first, sidecar, second],
        volumes=[{"name": "data", "emptyDir": {}}],
        restartPolicy="Never",
    )
    pod = await pods.wait("order", has_phase("Succeeded"))
    log = await pods.log("order", container="main")
    assert log.splitlines() == ["first", "sidecar", "second", "main", "main ends"]
    ends = {each["name"]: each["state"]["terminated"] for each in pod["status"]["initContainerStatuses"]}
    assert {name: end["exitCode"] for name, end in ends.items()} == {"first": 0, "sidecar": 0, "second": 0}
    assert ends["sidecar"]["finishedAt"] >= container(pod)["state"]["terminated"]["finishedAt"]


async def test_probes_flip_readiness_and_restart_what_is_not_alive(pods: Pods) -> None:
    impatient = {"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 20}
    main = {
        "name": "main",
        "image": "none",
        "command": ["python3", "-c", SWITCHES, "$(POD_IP)"],
        "env": [POD_IP],
        "ports": [{"name": "http", "containerPort": 8080}],
        "startupProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1, "failureThreshold": 30},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, **impatient},
        "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}, **impatient},
    }
    pod = await pods.running("probed", main)
    await fetch(pod, "/ready", "POST")
    await pods.wait("probed", lambda pod: not is_ready(pod))
    await fetch(pod, "/ready", "POST")
    pod = await pods.wait("probed", is_ready)
    assert container(pod)["restartCount"] == 0
    await fetch(pod, "/live", "POST")
    pod = await pods.wait("probed", lambda pod: container(pod)["restartCount"] == 1 and is_ready(pod))
    assert container(pod)["lastState"]["terminated"]["exitCode"] == 128 + signal.SIGTERM


async def test_a_pod_that_ends_has_a_phase_and_a_termination_message(pods: Pods) -> None:
    await pods.create("good", shell("echo done >/dev/termination-log"), restartPolicy="Never")
    await pods.create("bad", shell("exit 4"), restartPolicy="Never")
    await pods.create(
        "absent", {"name": "main", "image": "none", "command": ["no-such-command"]}, restartPolicy="Never"
    )
    good = await pods.wait("good", has_phase("Succeeded"))
    bad = await pods.wait("bad", has_phase("Failed"))
    absent = await pods.wait("absent", has_phase("Failed"))
    assert container(good)["state"]["terminated"]["message"] == "done\n"
    assert container(bad)["state"]["terminated"]["exitCode"] == 4
    assert container(absent)["state"]["terminated"]["reason"] == "StartError"


async def test_a_pod_without_a_command_is_told_to_go_elsewhere(pods: Pods) -> None:
    await pods.create("image", {"name": "main", "image": "nginx"})
    pod = await pods.wait("image", waits_because("ImagePullBackOff"))
    assert "this node runs commands, not images" in container(pod)["state"]["waiting"]["message"]
    assert pod["status"]["phase"] == "Pending"


async def test_a_missing_config_map_is_named_and_awaited(pods: Pods, kube: KubeClient, namespace: str) -> None:
    await pods.create("patient", shell("sleep 600", envFrom=[{"configMapRef": {"name": "late"}}]))
    pod = await pods.wait("patient", waits_because("CreateContainerConfigError"))
    assert container(pod)["state"]["waiting"]["message"] == 'configmap "late" not found'
    await kube.create(CONFIG_MAPS.collection(namespace), {"metadata": {"name": "late"}})
    await pods.wait("patient", is_ready)


async def test_a_volume_that_the_node_does_not_have_is_named(pods: Pods) -> None:
    await pods.create("hungry", shell("sleep 600"), volumes=[{"name": "disk", "hostPath": {"path": "/"}}])
    pod = await pods.wait("hungry", waits_because("CreateContainerConfigError"))
    assert "of kind hostPath" in container(pod)["state"]["waiting"]["message"]
