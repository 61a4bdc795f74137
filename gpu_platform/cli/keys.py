"""`gpu-platform keys`: keys of the API. Talks to nobody: whoever may write their Secret puts them there."""

import json
import secrets
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from gpu_platform.cli.output import print_json, print_remark
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.tenants import (
    KEYS_SECRET,
    PLATFORM_ROLES,
    TENANT_NAME,
    KeyRecord,
    Role,
    build_key,
    draw_key_parts,
    hash_secret,
)

app = typer.Typer(help="Keys of the API.", no_args_is_help=True)


def _check_tenant(text: str) -> str:
    if TENANT_NAME.fullmatch(text) is None:
        raise typer.BadParameter("should have at most 40 lower-case letters, digits and inner hyphens")
    return text


Tenant = Annotated[str, typer.Argument(help="Whose key it is; `default` is a tenant too.", callback=_check_tenant)]
Roles = Annotated[list[Role], typer.Option("--role", help="What its owner may do; repeat it.")]
Days = Annotated[int | None, typer.Option("--days", min=1, max=3_650, help="It ends by itself after so many days.")]
Platform = Annotated[
    bool, typer.Option("--platform", help="Create a platform key: it may have the roles operator and admin.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print key, id and record, for machines.")]


@app.callback()
def keys() -> None:
    """Without this, `keys` would be its one command."""


@app.command()
def create(tenant: Tenant, role: Roles, platform: Platform = False, days: Days = None, as_json: AsJson = False) -> None:
    """Make a key: print it beside, and the patch that lets the API know it."""
    _check_roles(role, is_platform=platform)
    key_id, secret = draw_key_parts(secrets.token_bytes)
    expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days) if days else None
    roles = tuple(dict.fromkeys(role))
    record = KeyRecord(sha256=hash_secret(secret), tenant=tenant, roles=roles, expires_at=expires_at, platform=platform)
    key = build_key(key_id, secret)
    if as_json:
        print_json({"key": key, "id": key_id, "record": record.to_json()})
        return
    print_remark(key)
    print_remark(
        "is the key, for its owner: stored nowhere, shown only now. To let the API know it, pipe the patch into"
    )
    print_remark(f"  kubectl patch secret -n {SYSTEM_NAMESPACE} {KEYS_SECRET} --type merge --patch-file /dev/stdin")
    typer.echo(json.dumps({"stringData": {key_id: json.dumps(record.to_json())}}))


def _check_roles(roles: list[Role], *, is_platform: bool) -> None:
    if not is_platform and (refused := PLATFORM_ROLES.intersection(roles)):
        names = " and ".join(sorted(refused))
        raise typer.BadParameter(
            f"{names}: only a platform key acts on the whole platform; add --platform, or choose among "
            f"{', '.join(each for each in Role if each not in PLATFORM_ROLES)}",
            param_hint="--role",
        )
