"""Who is let in: only those whose key is known, right and still valid; and no faster than their limit."""

import asyncio
import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import KeyRecord, Role, build_key, hash_secret
from gpu_platform.kube import KubeClient
from platform_api.auth.keys import KeyRing, read_records
from tests.support.virtual_time import run_in_virtual_time

SECRET = "s" * 43
KEY = build_key("abcd1234", SECRET)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(**fields: Any) -> Json:
    return {"sha256": hash_secret(SECRET), "tenant": "acme", "roles": ["editor"], **fields}


def secret(**entries: Any) -> Json:
    """The Secret as Kubernetes shows it; an entry that is no text is a record."""
    texts = {key: entry if isinstance(entry, str) else json.dumps(entry) for key, entry in entries.items()}
    return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}}


def key_ring(**entries: Any) -> KeyRing:
    ring = KeyRing(lambda: NOW)
    ring.take(read_records(secret(**entries)))
    return ring


def test_a_key_says_who_calls_and_what_they_may() -> None:
    caller = key_ring(abcd1234=record(roles=["viewer", "operator"])).find_caller(KEY)
    assert caller is not None
    assert (caller.tenant, caller.key_id, caller.namespace) == ("acme", "abcd1234", "runtime-instance-acme")
    assert caller.roles == {Role.VIEWER, Role.OPERATOR}


OLD_RECORD = f'{{"roles": ["admin"], "sha256": "{hash_secret(SECRET)}", "tenant": "default"}}'
"""As an earlier release wrote it: without `platform`."""


@pytest.mark.parametrize(
    ("platform", "granted", "warned"),
    [(True, {Role.EDITOR, Role.OPERATOR}, []), (False, {Role.EDITOR}, []), (None, {Role.EDITOR, Role.OPERATOR}, [KEY])],
    ids=["platform", "tenant", "undeclared"],
)
def test_platform_roles_are_of_platform_keys_and_of_undeclared_ones_with_a_warning(
    platform: bool | None, granted: set[Role], warned: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    said = {} if platform is None else {"platform": platform}
    ring = key_ring(abcd1234=record(roles=["editor", "operator"], **said))
    caller = ring.find_caller(KEY)
    assert caller is not None
    assert caller.roles == granted
    ring.take(read_records(secret(abcd1234=record(roles=["editor", "operator"], **said))))
    assert [vars(entry)["keys"] for entry in caplog.records] == [["abcd1234"] for _ in warned]


def test_an_earlier_releases_record_is_read_and_written_as_it_was() -> None:
    [read] = read_records(secret(abcd1234=OLD_RECORD)).values()
    assert json.dumps(read.to_json(), sort_keys=True) == OLD_RECORD


@pytest.mark.parametrize(
    "key",
    [
        build_key("abcd1234", "t" * 43),
        build_key("unknown1", SECRET),
        build_key("abcd1234", SECRET[:-1]),
        KEY.upper(),
        f"{KEY} ",
        "",
        "abcd1234",
        SECRET,
    ],
    ids=[
        "wrong secret",
        "unknown id",
        "short secret",
        "upper case",
        "with a space",
        "nothing",
        "only id",
        "only secret",
    ],
)
def test_any_other_key_is_nobodys(key: str) -> None:
    assert key_ring(abcd1234=record()).find_caller(key) is None


def test_a_key_is_valid_until_it_expires() -> None:
    later, before = (NOW + timedelta(seconds=1)).isoformat(), NOW.isoformat()
    assert key_ring(abcd1234=record(expiresAt=later)).find_caller(KEY) is not None
    assert key_ring(abcd1234=record(expiresAt=before)).find_caller(KEY) is None


def test_a_revoked_key_is_nobodys() -> None:
    ring = key_ring(abcd1234=record())
    ring.take({})
    assert ring.find_caller(KEY) is None
    assert ring.is_read


class Secrets(KubeClient):
    def __init__(self) -> None:
        self.kept = secret(abcd1234=record())

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 10.0) -> Json:
        del path, params, timeout
        return self.kept


def test_a_new_and_a_revoked_key_are_known_within_five_seconds() -> None:
    async def main() -> None:
        ring, secrets = KeyRing(lambda: NOW), Secrets()
        following = asyncio.create_task(ring.follow(secrets))
        await asyncio.sleep(5)
        caller = ring.find_caller(KEY)
        assert caller is not None
        assert ring.knows(caller)
        secrets.kept = secret(other123=record())
        await asyncio.sleep(5)
        assert ring.find_caller(KEY) is None
        assert not ring.knows(caller)
        assert ring.find_caller(build_key("other123", SECRET)) is not None
        following.cancel()
        await asyncio.wait({following})

    run_in_virtual_time(main())


def test_a_ring_that_was_never_read_knows_nobody_and_says_so() -> None:
    ring = KeyRing(lambda: NOW)
    assert not ring.is_read
    assert ring.find_caller(KEY) is None


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "not JSON",
        "[]",
        "null",
        "{}",
        json.dumps(record(roles=["king"])),
        json.dumps(record(roles="editor")),
        json.dumps(record(sha256="short")),
        json.dumps(record(expiresAt="tomorrow")),
        json.dumps(record(expiresAt="2027-01-01T00:00:00")),
        json.dumps(record(tenant="../other")),
        json.dumps(record(tenant="")),
    ],
)
def test_an_entry_that_cannot_be_read_opens_nothing_and_takes_no_other_key_along(entry: str) -> None:
    ring = key_ring(broken12=entry, abcd1234=record())
    assert ring.find_caller(build_key("broken12", SECRET)) is None
    assert ring.find_caller(KEY) is not None


def test_an_entry_that_is_not_even_base64_takes_no_other_key_along() -> None:
    whole = secret(abcd1234=record())
    whole["data"]["broken12"] = "no base64"
    assert set(read_records(whole)) == {"abcd1234"}


def test_a_secret_without_entries_has_no_keys() -> None:
    assert read_records({}) == {}
    assert read_records({"data": None}) == {}


def test_a_record_is_read_as_it_was_written() -> None:
    written = KeyRecord(sha256=hash_secret(SECRET), tenant="acme", roles=(Role.ADMIN,), expires_at=NOW)
    assert read_records(secret(abcd1234=written.to_json())) == {"abcd1234": written}
