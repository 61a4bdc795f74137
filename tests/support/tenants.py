"""Tenants besides the default one: a namespace and keys of its own, gone afterwards."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from gpu_platform.domain.tenants import Role, tenant_namespace
from gpu_platform.kube import KubeClient
from tests.support.api import UNITS, add_key, open_api, remove_key
from tests.support.namespaces import tenant_namespace_of
from tests.support.waiting import NotYet, eventually


@dataclass(frozen=True)
class Tenant:
    name: str
    api: httpx.AsyncClient
    key: str

    @property
    def namespace(self) -> str:
        return tenant_namespace(self.name)


@asynccontextmanager
async def tenant(kube: KubeClient, url: str, *roles: Role) -> AsyncIterator[Tenant]:
    """A new tenant, and a client with a key of these roles that the API at this address knows already."""
    name = f"t-{secrets.token_hex(3)}"
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    async with (
        tenant_namespace_of(kube, tenant_namespace(name), labels),
        key_of(kube, url, name, *roles) as (api, key),
    ):
        yield Tenant(name, api, key)


@asynccontextmanager
async def key_of(
    kube: KubeClient, url: str, tenant_name: str, *roles: Role
) -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    key = await add_key(kube, tenant_name, *roles)
    try:
        async with open_api(url, key) as api:
            await wait_key_known(api)
            yield api, key
    finally:
        await remove_key(kube, key)


async def wait_key_known(api: httpx.AsyncClient) -> None:
    async def is_known() -> bool | NotYet:
        try:
            answer = await api.get(UNITS)
        except httpx.RemoteProtocolError as error:
            # The API closed the kept connection while the request was on its way.
            return NotYet(str(error))
        # 429: of an address that has asked too often with keys that were not known yet.
        return answer.status_code not in (401, 429) or NotYet(answer.text)

    await eventually(is_known)
