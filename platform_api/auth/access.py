"""The lock on every route: a caller of it is a `Viewer`, an `Editor` or another one with a role that it requires. A
route without one is open; a test knows which are."""

import time
from typing import Annotated

from fastapi import Depends, Request

from gpu_platform.domain.tenants import Role, may
from platform_api.auth.keys import EVERYBODY, Caller
from platform_api.auth.rate_limit import Allowance, Rate, build_headers
from platform_api.deps import Deps, deps_of
from platform_api.http.errors import ApiError, forbidden, too_many, unauthenticated, unavailable
from platform_api.http.middleware import STATE as RATE_LIMIT_HEADERS

TENANT_BURST_SECONDS = 2
"""After a pause, a tenant may send the requests of as many seconds at once."""

WRITE_BURST_SECONDS = 32
"""After a pause, a tenant may write the bytes of as many seconds at once: a thousand ordinary units are created so."""


class Requires:
    """Lets callers pass who have one of these roles."""

    def __init__(self, *roles: Role) -> None:
        self.roles = frozenset(roles)

    async def __call__(self, request: Request) -> Caller:
        caller = admit(request)
        if not may(caller.roles, self.roles):
            needed = " or ".join(sorted(self.roles))
            raise forbidden(f"this needs the role {needed}; the key has {', '.join(sorted(caller.roles)) or 'none'}")
        return caller


class Writes(Requires):
    """Lets callers pass whose request makes Kubernetes store something, unless their tenant has written too much. For
    deletions there is `Requires`: with them a tenant gets out."""

    async def __call__(self, request: Request) -> Caller:
        caller = await super().__call__(request)
        deps = deps_of(request)
        per_second = deps.limits.of(caller.tenant).write_bytes_per_second
        rate = Rate(per_second, WRITE_BURST_SECONDS * per_second)
        allowance = deps.write_limit.look(caller.namespace, rate, time.monotonic())
        _show_allowances(request, allowance)
        if allowance.tokens < 1:
            raise too_many("this tenant writes more bytes than its limit; slow down", max(1, allowance.retry_seconds))
        return caller


async def find_caller(request: Request) -> Caller | None:
    """Returns the caller of an open route. A key that is sent has to be valid.

    | key                                       | →                          |
    | ----------------------------------------- | -------------------------- |
    | none                                      | None                       |
    | any, before the API has read its keys     | None: it cannot be checked |
    | valid                                     | its caller                 |
    | wrong                                     | 401 or 429                 |
    """
    deps = deps_of(request)
    is_checkable = bool(request.headers.get("authorization")) and deps.key_ring.is_read
    return admit(request) if is_checkable or deps.settings.auth == "none" else None


def admit(request: Request) -> Caller:
    """Returns the caller, whose key is valid and who does not ask too fast; 401 or 429 for all others."""
    deps = deps_of(request)
    caller = _authenticate(request)
    request.state.caller = caller
    per_second = deps.limits.of(caller.tenant).requests_per_second
    rate = Rate(per_second, TENANT_BURST_SECONDS * per_second)
    verdict = deps.rate_limit.take(caller.key_id, caller.tenant, rate, time.monotonic())
    _show_allowances(request, *verdict.allowances)
    if not verdict.is_let_in:
        raise too_many(f"this {verdict.exhausted} asks faster than its limit; slow down", verdict.retry_seconds)
    return caller


def _show_allowances(request: Request, *allowances: Allowance) -> None:
    """Adds them to what the answer says about limits."""
    shown = (*getattr(request.state, "allowances", ()), *allowances)
    request.state.allowances = shown
    setattr(request.state, RATE_LIMIT_HEADERS, build_headers(shown))


def _authenticate(request: Request) -> Caller:
    deps = deps_of(request)
    if deps.settings.auth == "none":
        return EVERYBODY
    key = _find_key(request.headers.get("authorization", ""))
    if not key:
        raise _refuse(request, "send an API key: `Authorization: Bearer gk_…`")
    if not deps.key_ring.is_read:
        raise unavailable("the API keys could not be read yet")
    # Also of a source that failed too often: others may share its address. This is a look-up and one SHA-256.
    caller = deps.key_ring.find_caller(key)
    if caller is None:
        raise _refuse(request, "this API key is not known, or is no longer valid")
    return caller


def _refuse(request: Request, message: str) -> ApiError:
    """401, or 429 with its rate for a source that fails too often."""
    address = request.client.host if request.client else ""
    verdict = deps_of(request).failed_logins.note(address, time.monotonic())
    if verdict.is_let_in:
        return unauthenticated(message)
    setattr(request.state, RATE_LIMIT_HEADERS, build_headers(verdict.allowances))
    return too_many(
        f"too many requests without a valid API key come from {address}; check the key", verdict.retry_seconds
    )


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
WritingEditor = Annotated[Caller, Depends(Writes(Role.EDITOR))]
Invoker = Annotated[Caller, Depends(Requires(Role.INVOKER))]
Operator = Annotated[Caller, Depends(Requires(Role.OPERATOR))]
AnyCaller = Annotated[Caller | None, Depends(find_caller)]
