"""Where the API server is and who we are there: a kubeconfig, or the pod's own service account; and sessions that never
retry a write.

Left to itself, aiohttp sends a PUT or DELETE again when a kept-alive connection breaks. The first one may have been
carried out; the second then meets a conflict with our own write, which looks like another writer's.
"""

import os
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import yaml
from kubernetes.aio import client as aio_client
from kubernetes.aio import config as aio_config

from gpu_platform.kube.client import KubeClient
from gpu_platform.kube.fencing import LastLookRequest

CONNECTIONS = 100
"""Of one client at once."""

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")

NOT_A_KUBECONFIG = (AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError)
"""What the library raises on a file of another kind: it looks before it checks."""


class NoConnectionError(Exception):
    """Nothing says where the API server is, or what says it cannot be read."""


async def open_client(
    kubeconfig: Path | None = None,
    user_agent: str = "gpu-platform",
    context: str | None = None,
    *,
    connections: int = CONNECTIONS,
) -> KubeClient:
    """A client for this kubeconfig, else for that of KUBECONFIG, else for the cluster in which we run. `context` is one
    of the kubeconfig's, instead of its current one.

    Sends nothing: an API server that is away is the business of whoever asks it something.
    """
    configuration = aio_client.Configuration()
    configuration.connection_pool_maxsize = connections
    # Left to itself, aiohttp looks for a netrc file and a proxy in a thread before every request, which takes as
    # long as the request.
    configuration.client_session_kwargs = {
        "request_class": LastLookRequest,
        "trust_env": False,
        "middlewares": (no_retry,),
    }
    source = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG", "")
    try:
        if source:
            await aio_config.load_kube_config(config_file=source, context=context, client_configuration=configuration)
        else:
            aio_config.load_incluster_config(client_configuration=configuration)
    except NOT_A_KUBECONFIG as error:
        raise NoConnectionError(f"{source} is not a kubeconfig; name one in `kubeconfig` or KUBECONFIG") from error
    except (aio_config.ConfigException, OSError) as error:
        raise NoConnectionError(
            f"the kubeconfig {source} cannot be used: {error}"
            if source
            else f"there is no cluster to work for ({error}): name a kubeconfig in `kubeconfig` or KUBECONFIG"
        ) from error
    configuration.proxy = configuration.proxy or _find_proxy(configuration.host)
    return KubeClient(aio_client.ApiClient(configuration), user_agent)


def _find_proxy(server: str) -> str | None:
    """The environment's proxy for this server; this machine's own servers need none."""
    address = urlsplit(server)
    host = address.hostname or ""
    if host in LOOPBACK_HOSTS or proxy_bypass(host):
        return None
    return getproxies().get(address.scheme)


async def no_retry(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if request.method == "GET":
            raise
        # Of this class aiohttp does not think that trying again helps.
        raise aiohttp.ClientConnectionError(str(error)) from error
