"""The lock on every route: a caller of it is a `Viewer`, an `Editor`, or whoever else has a role that it requires. A
route without one is open; a test knows which are."""

import time
from typing import Annotated

from fastapi import Depends, Request

from gpu_platform.domain.tenants import Role, may
from platform_api.deps import Deps, deps_of
from platform_api.http.errors import forbidden, too_many, unauthenticated, unavailable
from platform_api.keys.key_ring import EVERYBODY, Caller


class Requires:
    """Lets pass whoever has one of these roles, and says who it is."""

    def __init__(self, *roles: Role) -> None:
        self.roles = frozenset(roles)

    async def __call__(self, request: Request) -> Caller:
        caller = self._authenticate(request)
        request.state.caller = caller
        if not deps_of(request).rate_limit.take(caller.key_id, time.monotonic()):
            raise too_many("this key asks faster than its limit; slow down")
        if not may(caller.roles, self.roles):
            needed = " or ".join(sorted(self.roles))
            raise forbidden(f"this needs the role {needed}; the key has {', '.join(sorted(caller.roles)) or 'none'}")
        return caller

    def _authenticate(self, request: Request) -> Caller:
        deps = deps_of(request)
        if deps.settings.auth == "none":
            return EVERYBODY
        key = _find_key(request.headers.get("authorization", ""))
        if not key:
            raise unauthenticated("send an API key: `Authorization: Bearer gk_…`")
        if not deps.key_ring.is_read:
            raise unavailable("the API keys could not be read yet")
        caller = deps.key_ring.find_caller(key)
        if caller is None:
            raise unauthenticated("this API key is not known, or is no longer valid")
        return caller


def find_tenant(deps: Deps, authorization: str) -> str | None:
    """Returns the tenant whose request slot a request with this header takes; None without a valid key."""
    if deps.settings.auth == "none":
        return EVERYBODY.tenant
    caller = deps.key_ring.find_caller(_find_key(authorization))
    return caller.tenant if caller else None


def _find_key(authorization: str) -> str:
    """Returns the API key of an Authorization header; empty without one."""
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


Viewer = Annotated[Caller, Depends(Requires(Role.VIEWER))]
Editor = Annotated[Caller, Depends(Requires(Role.EDITOR))]
Invoker = Annotated[Caller, Depends(Requires(Role.INVOKER))]
Operator = Annotated[Caller, Depends(Requires(Role.OPERATOR))]
