"""What a unit with SSH has besides: an SSH server, an FRP client that brings users to it, and their files. Pure.

```
 FRP server ◄── ssh-frpc (token) ──► 127.0.0.1:port ──► ssh-server (keys, and the main container's volumes)
```

Both are native sidecars without a startup probe: the main container waits for neither. Nor do they have a readiness
probe, which would take a unit out of service because its SSH is not well.
"""

import hashlib
import json
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.ssh import Ssh, SshContainer, check_ssh, target_host
from gpu_platform.domain.units import GPUUnitSpec
from gpu_platform.domain.value import RequestError
from reconciler.isolation import (
    ADDED_CAPABILITIES,
    build_empty_dir,
    build_helper_resources,
    build_helper_security_context,
    build_security_context,
)
from reconciler.units.serverless_resources import HEALTH_PORT, Egress

SERVER, CLIENT = SshContainer.SERVER.value, SshContainer.CLIENT.value
CONTAINERS = (SERVER, CLIENT)

HOME_VOLUME, KEYS_VOLUME, CLIENT_VOLUME = "ssh-config", "ssh-authorized-keys", "ssh-frpc"
HOME_DIRECTORY, KEYS_DIRECTORY, CLIENT_DIRECTORY = "/config", "/ssh-keys", "/etc/frp"
KEYS_FILE, CLIENT_FILE = "authorized_keys", "frpc.toml"
KEYS_MODE, CLIENT_MODE = 0o600, 0o444

TOKEN_VARIABLE = "FRP_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_KEY = "token"  # noqa: S105 - the name of a field

HOME_LIMIT = "5Gi"
"""Of what a user leaves in the home directory; the storages are beside it."""

USER = 1_000


@dataclass(frozen=True)
class SshSettings:
    server_image: str
    client_image: str
    private_servers: tuple[str, ...] = ()
    """Networks within the blocked ranges in which tenants' FRP servers may be."""


@dataclass(frozen=True)
class SshBuild:
    """Everything that the sidecars of one unit are made of."""

    settings: SshSettings
    block: Ssh
    """Checked."""

    namespace: str
    unit: str
    blocked_egress: tuple[str, ...]

    @property
    def token_secret(self) -> str | None:
        return names.ssh_token_secret(self.unit, self.block.token_hash) if self.block.token_hash else None

    @property
    def files(self) -> dict[str, str]:
        """The content of the ConfigMap."""
        return {KEYS_FILE: "".join(f"{key}\n" for key in self.block.authorized_keys), CLIENT_FILE: _client_file(self)}

    @property
    def egress(self) -> Egress | None:
        """The one hole to the FRP server: only to an address that units could not reach otherwise."""
        block = self.block
        if not _find_networks(block.server_addr, self.blocked_egress):
            return None
        address = ip_address(block.server_addr or "")
        return Egress(block.server_port, cidr=f"{address}/{address.max_prefixlen}")


def find_ssh_problem(
    spec: GPUUnitSpec,
    namespace: str,
    *,
    restricted: bool,
    settings: SshSettings,
    blocked: tuple[str, ...],
    api_servers: frozenset[tuple[str, int]] = frozenset(),
) -> str | None:
    """Why there can be no SSH into a unit, in words that say what to mend."""
    if spec.ssh is None or not spec.ssh.enabled or names.is_stock_namespace(namespace):
        return None
    if restricted:
        return f"spec.ssh: the SSH server begins as root, and the Pod Security profile of {namespace} is restricted"
    try:
        block = check_ssh(spec.ssh)
    except RequestError as error:
        return f"spec.{error}"
    taken = {port.port for port in spec.template.ports} | ({HEALTH_PORT} if spec.serverless is not None else set())
    if block.port in taken:
        return f"spec.ssh.port: {block.port} is taken by the template or the serverless sidecar; choose another"
    if (block.server_addr, block.server_port) in api_servers:
        server = f"{block.server_addr}:{block.server_port}"
        return f"spec.ssh.serverAddr: {server} is the Kubernetes API server; name your FRP server"
    is_blocked = _find_networks(block.server_addr, blocked)
    if is_blocked and not _find_networks(block.server_addr, settings.private_servers):
        return (
            f"spec.ssh.serverAddr: {block.server_addr} is in a network that units may not reach; "
            "an operator can allow it with the reconciler's sshServerCIDRs"
        )
    return None


def plan_ssh(
    spec: GPUUnitSpec, namespace: str, unit: str, settings: SshSettings, blocked: tuple[str, ...]
) -> SshBuild | None:
    """None for a unit without SSH; of one in which `find_ssh_problem` finds none."""
    if spec.ssh is None or not spec.ssh.enabled or names.is_stock_namespace(namespace):
        return None
    return SshBuild(settings, check_ssh(spec.ssh), namespace, unit, blocked)


def with_ssh(pod: Json, ssh: SshBuild, config_map: str) -> Json:
    """The pod, and beside its containers the two sidecars."""
    files = ((KEYS_VOLUME, KEYS_FILE, KEYS_MODE), (CLIENT_VOLUME, CLIENT_FILE, CLIENT_MODE))
    volumes: list[Json] = [
        {
            "name": volume,
            "configMap": {"name": config_map, "items": [{"key": file, "path": file}], "defaultMode": mode},
        }
        for volume, file, mode in files
    ]
    [main] = pod["containers"]
    return {
        **pod,
        "initContainers": [*pod.get("initContainers", []), _server(ssh, main["volumeMounts"]), _client(ssh)],
        "volumes": [*pod["volumes"], {"name": HOME_VOLUME, **build_empty_dir(HOME_LIMIT)}, *volumes],
    }


def find_token_secret(deployment: Json | None) -> str | None:
    """The Secret that a Deployment of ours reads its token from."""
    pod = deployment["spec"]["template"]["spec"] if deployment else {}
    for container in pod.get("initContainers") or []:
        for variable in container.get("env") or []:
            if container["name"] == CLIENT and variable["name"] == TOKEN_VARIABLE:
                reference = (variable.get("valueFrom") or {}).get("secretKeyRef") or {}
                return reference.get("name")
    return None


def _server(ssh: SshBuild, main_mounts: list[Json]) -> Json:
    block = ssh.block
    said = {
        "PUID": str(USER),
        "PGID": str(USER),
        "TZ": "Etc/UTC",
        "USER_NAME": block.username,
        "LISTEN_PORT": str(block.port),
        "PUBLIC_KEY_FILE": f"{KEYS_DIRECTORY}/{KEYS_FILE}",
        "PASSWORD_ACCESS": "false",
        "SUDO_ACCESS": "false",
        "LOG_STDOUT": "true",
        # The server reads its keys once, when it starts: other keys are another template.
        "SSH_AUTHORIZED_KEYS_HASH": _hash_of(ssh.files[KEYS_FILE]),
    }
    own: list[Json] = [
        {"name": HOME_VOLUME, "mountPath": HOME_DIRECTORY},
        {"name": KEYS_VOLUME, "mountPath": KEYS_DIRECTORY, "readOnly": True},
    ]
    taken = {mount["mountPath"] for mount in own}
    return {
        "name": SERVER,
        "image": ssh.settings.server_image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": name, "value": value} for name, value in said.items()],
        "ports": [{"name": SERVER, "containerPort": block.port, "protocol": "TCP"}],
        "restartPolicy": "Always",
        "livenessProbe": {
            "tcpSocket": {"port": block.port},
            "initialDelaySeconds": 30,
            "periodSeconds": 10,
            "timeoutSeconds": 2,
            "failureThreshold": 3,
        },
        "resources": build_helper_resources(cpu="1", memory="1Gi"),
        # Its init process ends the server, which runs as another user.
        "securityContext": build_security_context((*ADDED_CAPABILITIES, "KILL")),
        "volumeMounts": [*own, *(mount for mount in main_mounts if mount["mountPath"] not in taken)],
    }


def _client(ssh: SshBuild) -> Json:
    env: list[Json] = [{"name": "FRPC_CONFIG_HASH", "value": _hash_of(ssh.files[CLIENT_FILE])}]
    if ssh.token_secret is not None:
        # Optional: a token that was lost costs the unit its SSH, and not its start.
        reference = {"name": ssh.token_secret, "key": TOKEN_KEY, "optional": True}
        env.append({"name": TOKEN_VARIABLE, "valueFrom": {"secretKeyRef": reference}})
    return {
        "name": CLIENT,
        "image": ssh.settings.client_image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-c", f"{CLIENT_DIRECTORY}/{CLIENT_FILE}"],
        "env": env,
        "restartPolicy": "Always",
        "resources": build_helper_resources(cpu="500m", memory="128Mi"),
        "securityContext": build_helper_security_context(),
        "volumeMounts": [{"name": CLIENT_VOLUME, "mountPath": CLIENT_DIRECTORY, "readOnly": True}],
    }


def _client_file(ssh: SshBuild) -> str:
    """In TOML, whose strings are those of JSON. The client puts the variable in when it reads the file."""
    block = ssh.block
    token = f'auth.token = {{{{ printf "%q" (index .Envs "{TOKEN_VARIABLE}") }}}}' if ssh.token_secret else None
    lines = (
        f"serverAddr = {json.dumps(block.server_addr)}",
        f"serverPort = {block.server_port}",
        # It goes on trying: an FRP server that is away does not end the container.
        "loginFailExit = false",
        token,
        "",
        "[[proxies]]",
        f"name = {json.dumps(block.client_name or f'ssh-{ssh.namespace}-{ssh.unit}')}",
        'type = "tcpmux"',
        'multiplexer = "httpconnect"',
        f"customDomains = [{json.dumps(target_host(block, ssh.namespace, ssh.unit))}]",
        'localIP = "127.0.0.1"',
        f"localPort = {block.port}",
    )
    return "".join(f"{line}\n" for line in lines if line is not None)


def _find_networks(host: str | None, networks: tuple[str, ...]) -> tuple[str, ...]:
    """Those that a literal address is in; none for a name, of which nobody knows where it leads."""
    try:
        address = ip_address(host or "")
    except ValueError:
        return ()
    return tuple(network for network in networks if address in ip_network(network))


def _hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
