"""What a unit with SSH has besides, what its status says, and that no other unit has any of it."""

import tomllib
from dataclasses import replace
from typing import Any, TypeGuard

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.ssh import SPARE_GRACE, SshPhase, hash_token, with_spare_tokens
from gpu_platform.domain.units import GPUUnitStatus, Phase, Reason
from gpu_platform.store.ssh_tokens import UnitToken, build_token_secret
from reconciler.child_diff import UnitChild
from reconciler.guarded_writes import DeleteObject, ReplaceObject
from reconciler.units.observe import Observed
from reconciler.units.plan import (
    TOKEN_INTERVAL,
    DeleteSecret,
    Plan,
    UnitSettings,
    Write,
    plan_unit,
)
from reconciler.units.resources import build_config_map, build_network_policy
from reconciler.units.ssh_resources import SshSettings, plan_ssh
from tests.support.builders import NOW, make_pod, make_unit
from tests.support.ssh_blocks import make_key, ssh_block
from tests.unit.reconciler.units.builds import BLOCKED, make_build, pod_of
from tests.unit.reconciler.units.observed import observe, ready_reason, with_child, with_written

SETTINGS = SshSettings("example/sshd:1", "example/frpc:1")
UNITS = UnitSettings("busybox:1.36", BLOCKED, SETTINGS)
TOKEN = "open-sesame"  # noqa: S105
TOKEN_HASH = hash_token(TOKEN, "runtime-instance", "demo")


def ssh_pod(settings: SshSettings = SETTINGS, build_fields: Json | None = None, **block: Any) -> Json:
    return pod_of(ssh_build(settings, build_fields, **block))


def ssh_build(settings: SshSettings = SETTINGS, build_fields: Json | None = None, **block: Any) -> Any:
    build = make_build(ssh=ssh_block(**block), **(build_fields or {}))
    return replace(build, ssh=plan_ssh(build.spec, build.namespace, build.name, settings, BLOCKED))


def client_file(**block: Any) -> Json:
    config_map = build_config_map(ssh_build(**block))
    assert config_map is not None
    # As the client does it with the variable, before it reads the file.
    text = config_map["data"]["frpc.toml"].replace('{{ printf "%q" (index .Envs "FRP_TOKEN") }}', f'"{TOKEN}"')
    return tomllib.loads(text)


def env_of(container: Json) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def plan(observed: Observed) -> Plan:
    return plan_unit(observed, UNITS, NOW)


def settle(observed: Observed) -> Observed:
    """The same unit once its children were written and its pod is ready."""
    return with_written(observed, plan(observed), is_ready=True)


def changed(observed: Observed, **block: Any) -> Observed:
    return replace(observed, unit=make_unit(ssh=ssh_block(**block)))


def token_secret(owner: Json) -> Json:
    secret = build_token_secret("demo", UnitToken(TOKEN, TOKEN_HASH), owner)
    return {**secret, "metadata": {**secret["metadata"], "uid": "uid-secret", "resourceVersion": "3"}}


def is_list_of_tokens(write: Write) -> TypeGuard[ReplaceObject]:
    return isinstance(write, ReplaceObject) and write.kind == "GPUUnit"


def spare_writes(planned: Plan) -> list[Write]:
    return [write for write in planned.writes if isinstance(write, DeleteSecret) or is_list_of_tokens(write)]


def ssh_reason(status: GPUUnitStatus) -> tuple[SshPhase, str]:
    condition = find_condition(status.conditions, "SSHReady")
    assert condition is not None
    assert status.ssh is not None
    return status.ssh.phase, condition.reason


def test_a_unit_without_ssh_is_as_it_was() -> None:
    """Another template would restart it."""
    plain = make_build()

    assert plan_ssh(plain.spec, plain.namespace, plain.name, SETTINGS, BLOCKED) is None
    assert "initContainers" not in pod_of(plain)
    assert build_config_map(plain) is None


def test_stock_has_no_ssh() -> None:
    build = make_build("runtime-stock", ssh=ssh_block())

    assert plan_ssh(build.spec, build.namespace, build.name, SETTINGS, BLOCKED) is None


def test_parity_38_both_sidecars_are_native_and_the_main_container_waits_for_neither() -> None:
    server, client = ssh_pod()["initContainers"]

    assert (server["name"], client["name"]) == ("ssh-server", "ssh-frpc")
    for sidecar in (server, client):
        assert sidecar["restartPolicy"] == "Always"
        assert {"startupProbe", "readinessProbe"}.isdisjoint(sidecar)
    assert (server["image"], client["image"]) == ("example/sshd:1", "example/frpc:1")


def test_the_configured_port_is_the_servers_and_the_clients() -> None:
    server, _ = ssh_pod(port=2022)["initContainers"]

    assert env_of(server)["LISTEN_PORT"] == "2022"
    assert server["ports"] == [{"name": "ssh-server", "containerPort": 2022, "protocol": "TCP"}]
    assert server["livenessProbe"]["tcpSocket"] == {"port": 2022}
    assert client_file(port=2022)["proxies"][0]["localPort"] == 2022


def test_parity_38_the_client_speaks_tcpmux_with_the_derived_domain() -> None:
    file = client_file(serverPort=7001)

    assert (file["serverAddr"], file["serverPort"], file["loginFailExit"]) == ("frp.example.com", 7001, False)
    assert "auth" not in file
    assert file["proxies"] == [
        {
            "name": "ssh-runtime-instance-demo",
            "type": "tcpmux",
            "multiplexer": "httpconnect",
            "customDomains": ["demo.runtime-instance.ssh.example.com"],
            "localIP": "127.0.0.1",
            "localPort": 2222,
        }
    ]


def test_parity_38_the_keys_are_in_a_config_map_mounted_for_their_reader_alone() -> None:
    pod = ssh_pod(authorizedKeys=[make_key(1), make_key(2)])
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    config_map = build_config_map(ssh_build(authorizedKeys=[make_key(1), make_key(2)]))

    assert config_map is not None
    assert config_map["data"]["authorized_keys"] == f"{make_key(1)}\n{make_key(2)}\n"
    assert volumes["ssh-authorized-keys"]["configMap"]["defaultMode"] == 0o600
    assert volumes["ssh-authorized-keys"]["configMap"]["name"] == "unit-demo"
    assert env_of(pod["initContainers"][0])["SUDO_ACCESS"] == "false"


def test_whoever_logs_in_finds_the_volumes_of_the_main_container() -> None:
    pod = ssh_pod()

    [main] = pod["containers"]
    assert all(mount in pod["initContainers"][0]["volumeMounts"] for mount in main["volumeMounts"])


def test_only_the_client_is_told_the_token_and_only_where_it_is() -> None:
    pod = ssh_pod(tokenHash=TOKEN_HASH)
    _, client = pod["initContainers"]

    reference = {"name": f"ssh-token-demo-{TOKEN_HASH[:10]}", "key": "token", "optional": True}
    assert env_of(client)["FRP_TOKEN"] == {"secretKeyRef": reference}
    assert str(pod).count("secretKeyRef") == 1
    assert client_file(tokenHash=TOKEN_HASH)["auth"] == {"token": TOKEN}


@pytest.mark.parametrize(
    "block",
    [{"authorizedKeys": [make_key(9)]}, {"serverPort": 7001}, {"username": "ada"}, {"tokenHash": TOKEN_HASH}],
)
def test_parity_38_whatever_changes_starts_the_pod_anew(block: Json) -> None:
    before, after = ssh_build(), ssh_build(**block)

    assert before.pod_template["metadata"]["labels"] != after.pod_template["metadata"]["labels"]


@pytest.mark.parametrize(
    ("server", "rule"),
    [
        ("frp.example.com", None),
        ("203.0.113.9", None),
        ("10.1.2.3", {"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}], "ports": [{"protocol": "TCP", "port": 7000}]}),
    ],
)
def test_parity_39_a_blocked_address_gets_one_precise_hole(server: str, rule: Json | None) -> None:
    holes = build_network_policy(ssh_build(serverAddr=server))["spec"]["egress"][3:]

    assert holes == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"authorizedKeys": []}, "spec.ssh.authorizedKeys"),
        ({"authorizedKeys": ["ssh-rsa nonsense"]}, "spec.ssh.authorizedKeys[0]"),
        ({"serverAddr": None}, "spec.ssh.serverAddr"),
        ({"domainSuffix": None}, "spec.ssh.domainSuffix"),
        ({"serverAddr": "10.1.2.3"}, "sshServerCIDRs"),
        ({"port": 8000}, "spec.ssh.port"),
    ],
)
def test_parity_32_ssh_that_cannot_be_is_said_and_nothing_is_built(block: Json, words: str) -> None:
    template = {"ports": [{"name": "http", "port": 8000}]}
    result = plan(observe(make_unit(ssh=ssh_block(**block), template=template)))

    assert ready_reason(result) == (Phase.FAILED, Reason.SSH_CONFIG_INVALID)
    assert words in result.status.conditions[0].message
    assert result.writes == ()


def test_a_restricted_tenant_is_told_that_there_is_no_ssh() -> None:
    result = plan(observe(make_unit(ssh=ssh_block()), restricted=True))

    assert ready_reason(result) == (Phase.FAILED, Reason.SSH_CONFIG_INVALID)
    assert "restricted" in result.status.conditions[0].message


def test_an_operator_may_allow_the_network_of_a_server() -> None:
    allowed = replace(UNITS, ssh=replace(SETTINGS, private_servers=("10.1.0.0/16",)))
    result = plan_unit(observe(make_unit(ssh=ssh_block(serverAddr="10.1.2.3"))), allowed, NOW)

    assert result.writes != ()


def test_the_api_server_is_never_the_server_of_a_tenant() -> None:
    allowed = replace(UNITS, ssh=replace(SETTINGS, private_servers=("10.1.0.0/16",)))
    settings = replace(allowed, api_servers=frozenset({("10.1.2.3", 6443)}))
    closed = plan_unit(observe(make_unit(ssh=ssh_block(serverAddr="10.1.2.3", serverPort=6443))), settings, NOW)
    beside = plan_unit(observe(make_unit(ssh=ssh_block(serverAddr="10.1.2.3", serverPort=7000))), settings, NOW)

    assert ready_reason(closed) == (Phase.FAILED, Reason.SSH_CONFIG_INVALID)
    assert "Kubernetes API server" in closed.status.conditions[0].message
    assert beside.writes != ()


def test_once_the_unit_is_ready_so_is_its_ssh_and_nothing_is_left_to_write() -> None:
    result = plan(settle(observe(make_unit(ssh=ssh_block()))))

    assert result.writes == ()
    assert ssh_reason(result.status) == (SshPhase.READY, Reason.UNIT_SSH_READY)
    assert result.status.ssh is not None
    assert result.status.ssh.access_command == (
        "ssh -o ProxyCommand='nc -X connect -x frp.example.com:1337 %h %p' "
        "runtime@demo.runtime-instance.ssh.example.com"
    )


def test_while_it_starts_ssh_is_pending_and_there_is_no_command() -> None:
    old = make_unit(ssh=ssh_block()) | {"status": {"phase": "Progressing"}}
    result = plan(replace(settle(observe(old)), pods=()))

    assert ssh_reason(result.status) == (SshPhase.PENDING, Reason.UNIT_SSH_PENDING)
    assert result.status.ssh is not None
    assert result.status.ssh.access_command is None


def test_a_stopped_units_ssh_is_pending() -> None:
    result = plan(observe(make_unit(ssh=ssh_block(), running=False)))

    assert ssh_reason(result.status) == (SshPhase.PENDING, Reason.UNIT_SSH_PENDING)


def test_a_sidecar_that_cannot_start_is_quoted() -> None:
    settled = settle(observe(make_unit(ssh=ssh_block())))
    failing = make_pod(
        containers=[{"name": "ssh-frpc", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]
    )
    result = plan(replace(settled, pods=(failing,)))

    assert ssh_reason(result.status) == (SshPhase.FAILED, Reason.UNIT_SSH_FAILED)
    assert ready_reason(result) == (Phase.FAILED, Reason.POD_STARTUP_FAILED)


def test_other_keys_replace_the_files_and_the_template() -> None:
    result = plan(changed(settle(observe(make_unit(ssh=ssh_block()))), authorizedKeys=[make_key(9)]))

    assert [write.kind for write in result.writes if isinstance(write, ReplaceObject)] == [
        UnitChild.CONFIG_MAP,
        UnitChild.DEPLOYMENT,
    ]


def test_edited_files_are_put_right() -> None:
    settled = settle(observe(make_unit(ssh=ssh_block())))
    files = settled.children[UnitChild.CONFIG_MAP]
    edited = {**files, "data": {**files["data"], "more": "x"}}
    [write] = plan(with_child(settled, UnitChild.CONFIG_MAP, edited)).writes

    assert isinstance(write, ReplaceObject)
    assert "more" not in write.body["data"]


def test_parity_38_without_ssh_the_files_and_the_token_go() -> None:
    unit = make_unit(ssh=ssh_block(tokenHash=TOKEN_HASH))
    settled = settle(observe(unit, token_secret=token_secret(unit)))
    result = plan(replace(settled, unit=make_unit(), token_secret=None))

    secret = names.ssh_token_secret("demo", TOKEN_HASH)
    assert DeleteSecret("runtime-instance", secret) in result.writes
    assert DeleteObject(UnitChild.CONFIG_MAP, settled.children[UnitChild.CONFIG_MAP]) in result.writes
    assert result.status.ssh is None
    assert find_condition(result.status.conditions, "SSHReady") is None


def test_the_unit_takes_over_its_token_from_the_operation() -> None:
    operation = {
        "kind": "Operation",
        "metadata": {"name": "op-1", "namespace": "runtime-instance", "uid": "uid-operation"},
    }
    observed = observe(make_unit(ssh=ssh_block(tokenHash=TOKEN_HASH)), token_secret=token_secret(operation))
    writes = (write for write in plan(observed).writes if isinstance(write, ReplaceObject))
    adopted = next(write for write in writes if write.kind == "Secret")

    owner = names.owner_reference("GPUUnit", "demo", "uid-demo")
    assert adopted.body["metadata"]["ownerReferences"] == [owner]
    assert adopted.body["metadata"]["resourceVersion"] == "3"
    settled = settle(replace(observed, token_secret=adopted.body))
    assert plan(settled).writes == ()


def test_another_token_removes_the_one_before() -> None:
    unit = make_unit(ssh=ssh_block(tokenHash=TOKEN_HASH))
    settled = settle(observe(unit, token_secret=token_secret(unit)))
    result = plan(changed(settled, tokenHash=hash_token("another", "runtime-instance", "demo")))

    secret = names.ssh_token_secret("demo", TOKEN_HASH)
    places = [type(write) for write in result.writes]
    assert DeleteSecret("runtime-instance", secret) in result.writes
    assert places.index(DeleteSecret) < places.index(ReplaceObject)


@pytest.mark.parametrize("block", [{}, {"authorizedKeys": []}], ids=["healthy", "failed"])
def test_the_secret_of_a_spare_token_is_deleted_by_the_pass_after_its_mark(block: Json) -> None:
    spare = "5" * 32
    unit = make_unit(ssh=ssh_block(tokenHash=TOKEN_HASH))
    settled = settle(observe(unit, token_secret=token_secret(unit)))
    unit = make_unit(ssh=ssh_block(tokenHash=TOKEN_HASH, **block))
    noted = plan(replace(settled, unit=with_spare_tokens(unit, {spare: NOW})))
    assert noted.requeue_after == SPARE_GRACE
    assert spare_writes(noted) == []
    [marked] = spare_writes(plan(replace(settled, unit=with_spare_tokens(unit, {spare: NOW - SPARE_GRACE}))))
    assert is_list_of_tokens(marked)
    deleted, forgotten = spare_writes(plan(replace(settled, unit=marked.body)))
    assert deleted == DeleteSecret("runtime-instance", names.ssh_token_secret("demo", spare))
    assert is_list_of_tokens(forgotten)
    assert names.ANNOTATION_SPARE_TOKENS not in forgotten.body["metadata"]["annotations"]


def test_a_token_that_was_lost_costs_the_unit_its_ssh_and_nothing_else() -> None:
    result = plan(settle(observe(make_unit(ssh=ssh_block(tokenHash=TOKEN_HASH)))))

    assert result.status.phase is Phase.READY
    assert ssh_reason(result.status) == (SshPhase.FAILED, Reason.UNIT_SSH_FAILED)
    assert result.requeue_after == TOKEN_INTERVAL
