"""Where a call goes: which pod, which port, and what is left of the path."""

from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from platform_api.gpu_units.proxy_target import find_callable_port, plan_target
from platform_api.http.errors import ApiError
from platform_api.proxy.pod_address import Simulated, Target, plan_address, split_path
from platform_api.storages.proxy_target import plan_accessor
from tests.support.builders import make_storage

PORTS = [
    {"name": "http", "port": 8000},
    {"name": "8080-alt", "port": 9000},
    {"name": "dns", "port": 53, "protocol": "UDP"},
]


def pod(
    name: str = "web-1", *, ready: bool = True, ip: str | None = "10.0.0.7", real: str | None = None, **more: Any
) -> Json:
    annotations = {names.ANNOTATION_HOST_ADDRESS: real} if real else {}
    status: Json = {"conditions": [{"type": "Ready", "status": str(ready)}], **({"podIP": ip} if ip else {})}
    metadata = {"name": name, "creationTimestamp": "2026-11-17T03:00:00Z", "annotations": annotations, **more}
    return {"metadata": metadata, "spec": {"nodeName": "sim-0"}, "status": status}


def unit(phase: str | None = "Ready", message: str = "", *, leaving: bool = False, **spec: Any) -> Json:
    condition = {
        "type": "Ready",
        "status": "True" if phase == "Ready" else "False",
        "reason": "UnitProgressing",
        "message": message,
        "lastTransitionTime": "2026-11-17T03:00:00Z",
    }
    return {
        "metadata": {
            "name": "web",
            "namespace": "runtime-instance",
            "uid": "u-1",
            **({"deletionTimestamp": "2026-11-17T03:00:00Z"} if leaving else {}),
        },
        "spec": {"specName": "g1.1", "template": {"ports": PORTS}, **spec},
        **({"status": {"phase": phase, "conditions": [condition]}} if phase else {}),
    }


def message_of(refused: Target | ApiError) -> str:
    """Why there is no process that could take the call."""
    assert isinstance(refused, ApiError)
    assert (refused.status, refused.code) == (503, "not_ready")
    return refused.message


LEAVING: Json = {"deletionTimestamp": "2026-11-17T03:00:01Z"}
COPIED: Json = {"annotations": {names.ANNOTATION_MOUNTED_BY: "storage/copy"}}
LATER: Json = {"creationTimestamp": "2026-11-17T03:00:01Z"}


@pytest.mark.parametrize(
    ("pods", "address"),
    [
        ([], None),
        ([pod(ready=False)], None),
        ([pod(ip=None)], None),
        ([pod(**LEAVING)], None),
        ([{"metadata": pod()["metadata"]}], None),
        ([pod()], "10.0.0.7"),
        ([pod(ip="fd00::7")], "fd00::7"),
        ([pod(ready=False), pod("web-2", ip="10.0.0.8")], "10.0.0.8"),
        ([pod("b", ip="10.0.0.8", **LATER), pod("c")], "10.0.0.8"),
        ([pod("b", ip="10.0.0.8", **(LATER | LEAVING)), pod("c")], "10.0.0.7"),
        ([pod("a"), pod("b", ip="10.0.0.8")], "10.0.0.8"),
    ],
)
def test_the_newest_pod_that_is_ready_answers(pods: list[Json], address: str | None) -> None:
    assert plan_address(pods, development_addresses=False) == address


@pytest.mark.parametrize("real", ["127.9.8.7", "169.254.169.254", "", None])
def test_in_production_the_address_in_a_pods_status_is_the_only_one(real: str | None) -> None:
    assert plan_address([pod(real=real)], development_addresses=False) == "10.0.0.7"


@pytest.mark.parametrize("real", ["127.9.8.7", "::1"])
def test_on_the_embedded_cluster_the_host_node_is_called_where_it_listens(real: str) -> None:
    assert plan_address([pod(real=real)], development_addresses=True) == real


@pytest.mark.parametrize("real", [None, "", "10.128.0.7", "169.254.169.254", "platform.example", "::"])
def test_on_the_embedded_cluster_nothing_beyond_loopback_is_an_address(real: str | None) -> None:
    assert plan_address([pod(real=real)], development_addresses=True) == Simulated("sim-0")


def test_the_newest_pod_decides_whether_a_unit_is_simulated() -> None:
    pods = [pod("old", real="127.9.8.7"), pod("new", **LATER)]
    assert plan_address(pods, development_addresses=True) == Simulated("sim-0")
    assert plan_address([pod(ready=False)], development_addresses=True) is None


def test_a_simulated_unit_and_a_simulated_file_browser_say_that_nothing_runs() -> None:
    why = (
        "is on the simulated node 'sim-0', where no process runs; "
        "a spec of the host node, such as host.1, runs the command"
    )
    assert message_of(plan_target(unit(), [pod()], "http", development_addresses=True)) == f"the unit 'web' {why}"
    storage = make_storage(accessor={"enabled": True})
    refused = plan_accessor(storage, [pod()], development_addresses=True)
    assert message_of(refused) == f"the file browser of the storage 'weights' {why}"


@pytest.mark.parametrize(("port", "number"), [("http", 8000), ("8000", 8000), ("8080-alt", 9000), ("9000", 9000)])
def test_a_declared_port_is_found_by_name_and_by_number(port: str, number: int) -> None:
    assert plan_target(unit(), [pod()], port, development_addresses=False) == Target(
        what="the unit 'web'",
        address="10.0.0.7",
        port=number,
        authority=f"unit-web.runtime-instance.svc.cluster.local:{number}",
    )


@pytest.mark.parametrize(
    "port", ["8001", "22", "dns", "53", "https", "08000", "HTTP", "", "-1", "http:8001", "127.0.0.1"]
)
@pytest.mark.parametrize("phase", ["Ready", "Progressing"])
def test_any_other_one_is_not_there(port: str, phase: str) -> None:
    refused = plan_target(unit(phase), [pod()], port, development_addresses=False)
    assert isinstance(refused, ApiError)
    assert (refused.status, refused.code) == (404, "port_not_found")
    assert "http (8000/TCP)" in refused.message


@pytest.mark.parametrize(
    ("of", "pods", "message"),
    [
        (unit(leaving=True), [pod()], "the unit 'web' is Terminating"),
        (unit(running=False), [pod()], "the unit 'web' is stopped; start it"),
        (unit("Progressing", "pulling"), [pod()], "the unit 'web' is Progressing: pulling"),
        (unit("Failed"), [pod()], "the unit 'web' is Failed: UnitProgressing"),
        (unit(None), [], "the unit 'web' is Pending"),
        (unit(), [pod(ready=False)], "the unit 'web' has no pod that is ready; see its events"),
    ],
)
def test_a_unit_that_cannot_be_called_says_why(of: Json, pods: list[Json], message: str) -> None:
    assert message_of(plan_target(of, pods, "http", development_addresses=False)) == message


@pytest.mark.parametrize(
    ("access", "port", "is_tls"),
    [
        (None, "http", False),
        ({"scheme": "https"}, "http", True),
        ({"scheme": "https"}, "9000", False),
        ({"scheme": "https", "primaryPort": "8080-alt"}, "9000", True),
        ({"scheme": "https", "primaryPort": "8080-alt"}, "http", False),
    ],
)
def test_tls_is_spoken_on_the_port_that_is_said_to_speak_it(access: Json | None, port: str, is_tls: bool) -> None:
    target = plan_target(unit(access=access), [pod()], port, development_addresses=False)
    assert isinstance(target, Target)
    assert target.is_tls is is_tls


@pytest.mark.parametrize(
    ("access", "port", "is_public"),
    [
        (None, "http", False),
        ({"scheme": "http"}, "http", False),
        ({"public": False}, "http", False),
        ({"public": True}, "http", True),
        ({"public": True}, "9000", False),
    ],
)
def test_a_public_unit_is_public_on_its_primary_port_only(access: Json | None, port: str, is_public: bool) -> None:
    target = plan_target(unit(access=access), [pod()], port, development_addresses=False)
    assert isinstance(target, Target)
    assert target.is_public is is_public


@pytest.mark.parametrize(
    ("spec", "port"),
    [
        ({}, "http"),
        ({"access": {"primaryPort": "8080-alt", "scheme": "https"}}, "8080-alt"),
        ({"access": {"scheme": "tcp"}}, None),
        ({"access": {"primaryPort": "dns"}}, None),
        ({"template": {}}, None),
    ],
)
def test_the_units_url_is_about_its_first_port_if_that_speaks_http(spec: Json, port: str | None) -> None:
    assert find_callable_port(unit(**spec)) == port


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        (b"/api/web/http/", ("/api/web/http", b"/")),
        (b"/api/web/http/a/b", ("/api/web/http", b"/a/b")),
        (b"/api/web/http//a", ("/api/web/http", b"//a")),
        (b"/api/web/http/../../other/", ("/api/web/http", b"/../../other/")),
        (b"/api/web/http/a%2Fb%20c%00", ("/api/web/http", b"/a%2Fb%20c%00")),
        (b"/api/w%65b/http/x", ("/api/w%65b/http", b"/x")),
        (b"/api/web/http", None),
        (b"/api/web%2Fhttp/a", None),
        (b"/api%2fweb/http/a/b", None),
        (b"/api/other/http/a", None),
        (b"/", None),
    ],
)
def test_the_rest_of_the_path_is_passed_on_as_it_came(raw: bytes, answer: tuple[str, bytes] | None) -> None:
    assert split_path(raw, "/api/web/http") == answer


@pytest.mark.parametrize(
    ("enabled", "metadata", "pods", "words"),
    [
        (True, LEAVING, [pod()], "is Terminating"),
        (False, {}, [pod()], "set accessor.enabled"),
        (True, {}, [], "is not ready"),
        (True, {}, [pod(ready=False)], "is not ready"),
        (True, COPIED, [], "is away while storage/copy is filled from it"),
    ],
)
def test_a_storage_that_cannot_be_looked_at_says_why(
    enabled: bool, metadata: Json, pods: list[Json], words: str
) -> None:
    storage = make_storage(accessor={"enabled": enabled})
    storage["metadata"] |= metadata

    target = plan_accessor(storage, pods, development_addresses=False)

    assert words in message_of(target)


def test_a_storage_is_looked_at_where_its_file_browser_is() -> None:
    target = plan_accessor(make_storage(accessor={"enabled": True}), [pod()], development_addresses=False)

    host = "accessor-weights.runtime-instance.svc.cluster.local:5000"
    assert target == Target("the storage 'weights'", "10.0.0.7", 5_000, host)
