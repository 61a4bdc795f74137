"""`gpu-platform keys create`: a key for its owner, and for the Secret only what cannot be turned back into it."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner, Result

from gpu_platform.cli.app import app
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import KeyRecord, Role, split_key
from platform_api.auth.keys import KeyRing, read_records


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["keys", "create", *words])


def opened_by(result: Result, now: datetime) -> tuple[str, frozenset[Role]] | None:
    """What the key opens in an API that has read what the patch puts into the Secret."""
    patch: Json = json.loads(result.stdout)
    data = {key_id: base64.b64encode(text.encode()).decode() for key_id, text in patch["stringData"].items()}
    ring = KeyRing(lambda: now)
    ring.take(read_records({"data": data}))
    caller = ring.find_caller(result.stderr.splitlines()[0])
    return (caller.tenant, caller.roles) if caller else None


def test_the_api_takes_the_key_once_the_patch_is_in_its_secret() -> None:
    result = run("acme", "--role", "editor", "--role", "operator", "--platform")

    assert opened_by(result, datetime.now(UTC)) == ("acme", frozenset({Role.EDITOR, Role.OPERATOR}))
    assert "kubectl patch secret -n runtime-system gpu-platform-api-keys" in result.stderr


def test_the_patch_does_not_hold_the_key() -> None:
    result = run("acme", "--role", "viewer")

    parts = split_key(result.stderr.splitlines()[0])
    assert parts is not None
    assert parts[1] not in result.stdout


def test_a_key_with_days_ends_after_them() -> None:
    result = run("acme", "--role", "viewer", "--days", "30")

    now = datetime.now(UTC)
    assert opened_by(result, now + timedelta(days=29)) is not None
    assert opened_by(result, now + timedelta(days=31)) is None


def test_no_two_keys_are_the_same() -> None:
    assert run("acme", "--role", "viewer").stderr != run("acme", "--role", "viewer").stderr


def test_a_machine_gets_key_and_record() -> None:
    made: Json = json.loads(run("default", "--role", "admin", "--platform", "--json").stdout)

    assert made["key"].startswith(f"gk_{made['id']}_")
    record = KeyRecord.model_validate(made["record"])
    assert (record.roles, record.platform) == ((Role.ADMIN,), True)


def test_a_tenants_key_says_that_it_is_no_platform_key() -> None:
    made: Json = json.loads(run("acme", "--role", "editor", "--json").stdout)

    assert made["record"]["platform"] is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("Acme", "--role", "viewer"), "lower-case letters"),
        (("acme",), "--role"),
        (("acme", "--role", "owner"), "'owner' is not one of"),
        (("acme", "--role", "viewer", "--days", "0"), "--days"),
        (("acme", "--role", "admin"), "--platform"),
        (("acme", "--role", "editor", "--role", "operator"), "--platform"),
    ],
)
def test_a_wrong_wish_says_what_is_wrong(words: tuple[str, ...], said: str) -> None:
    result = run(*words)

    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""
