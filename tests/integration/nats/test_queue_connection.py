"""Who comes to a real nats-server, with what: credentials, certificates, and servers that forget."""

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpu_platform.clock import now_utc
from gpu_platform.devcluster.credentials import ensure_certificates, key_pair
from gpu_platform.nats import connection
from gpu_platform.nats.connection import QueueAccess, open_client, open_queue
from gpu_platform.nats.credentials import Credentials, Keyring, build_user, public_key_of
from gpu_platform.nats.durability import NotDurableError, check_durability
from gpu_platform.nats.errors import QueueAccessError, QueueUnavailableError
from gpu_platform.nats.permissions import QueueUser, inbox_prefix_of, permissions_of
from tests.support.nats_server import QueueServer, queue_server
from tests.support.ports import free_port
from tests.support.waiting import eventually


@pytest.fixture
def keyring() -> Keyring:
    return Keyring.new(secrets.token_bytes)


@pytest.fixture
async def server(tmp_path: Path, keyring: Keyring) -> AsyncIterator[QueueServer]:
    async with queue_server(tmp_path, keyring=keyring) as server:
        yield server


def credentials_for(keyring: Keyring, lifetime: timedelta) -> str:
    seed = keyring.users[QueueUser.API]
    permissions = permissions_of(QueueUser.API)
    token = build_user(keyring.account, public_key_of(seed), "api", permissions, now_utc(), lifetime)
    return Credentials(token, seed).render()


async def refusal_of(access: QueueAccess) -> str:
    with pytest.raises(QueueAccessError) as caught:
        async with asyncio.timeout(60), open_queue(access, "test"):
            pass
    return str(caught.value)


@pytest.mark.parametrize("turns", range(40))
async def test_who_waits_for_a_server_can_be_cancelled_at_every_turn_of_the_loop(turns: int) -> None:
    """Also in the one in which the server refuses."""
    nobody = QueueAccess(f"nats://127.0.0.1:{free_port()}")

    async def stay() -> None:
        async with open_queue(nobody, "test"):
            raise AssertionError("somebody is there")

    waiting = asyncio.create_task(stay())
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting}, timeout=60)
    assert waiting.cancelled()


async def test_without_credentials_nobody_comes_in(server: QueueServer) -> None:
    assert await refusal_of(QueueAccess(server.url)) == f"{server.url} refuses us; we showed no credentials"


async def test_credentials_of_another_installation_are_refused(server: QueueServer) -> None:
    stranger = Keyring.new(secrets.token_bytes).credentials_of(QueueUser.API, now_utc())
    access = server.access_with("stranger", stranger.render())
    assert await refusal_of(access) == f"{server.url} refuses us; we showed {access.credentials}"


async def test_credentials_whose_time_is_over_are_refused(server: QueueServer, keyring: Keyring) -> None:
    access = server.access_with("old", credentials_for(keyring, timedelta(seconds=-1)))
    assert "refuses us" in await refusal_of(access)


async def test_missing_and_broken_credentials_are_named(server: QueueServer, tmp_path: Path) -> None:
    missing = QueueAccess(server.url, tmp_path / "missing.creds")
    assert await refusal_of(missing) == f"{missing.credentials} cannot be read: No such file or directory"
    broken = server.access_with("broken", "nothing")
    assert (await refusal_of(broken)).startswith(f"{broken.credentials} is not a credentials file of NATS: should hold")


@pytest.mark.parametrize("url", ["127.0.0.1:4222", "http://127.0.0.1:4222", "nats://"])
async def test_an_address_that_is_none_is_named(url: str) -> None:
    assert await refusal_of(QueueAccess(url)) == f"{url} should be tls://host:port or nats://host:port"


async def test_a_server_without_tls_is_told_nothing_where_tls_was_asked_for(server: QueueServer) -> None:
    access = server.access_of(QueueUser.API)
    secure = QueueAccess(server.url.replace("nats://", "tls://"), access.credentials)
    assert "speaks no TLS" in await refusal_of(secure)


async def test_tls_is_spoken_with_a_server_of_our_authority_only(tmp_path: Path, keyring: Keyring) -> None:
    ensure_certificates(tmp_path, now_utc())
    pair = key_pair(tmp_path, "server")
    tls = f'tls {{ cert_file: "{pair.certificate}", key_file: "{pair.key}" }}'
    async with queue_server(tmp_path, keyring=keyring, more=tls) as server:
        access = server.access_of(QueueUser.API)
        url = server.url.replace("nats://", "tls://")
        authority = key_pair(tmp_path, "ca").certificate
        async with open_client(QueueAccess(url, access.credentials, authority), "test") as client:
            assert client.is_connected
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
            assert "certificate that is not believed" in await refusal_of(QueueAccess(url, access.credentials))
    missing = tmp_path / "missing.crt"
    assert await refusal_of(QueueAccess(url, None, missing)) == (
        f"{missing} cannot be read as certificates: No such file or directory"
    )
    assert ssl.TLSVersion.TLSv1_2 is connection._build_trust(QueueAccess(url)).minimum_version  # type: ignore[union-attr]


async def test_new_credentials_are_shown_before_the_old_ones_end(
    server: QueueServer, keyring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RENEWAL_SECONDS", 0.2)
    access = server.access_with("api", credentials_for(keyring, timedelta(minutes=30)))
    prefix = inbox_prefix_of(QueueUser.API)
    async with open_client(access, "test", inbox_prefix=prefix) as client:
        renewed = credentials_for(keyring, timedelta(hours=1))
        server.access_with("api", renewed)

        async def is_shown_anew() -> bool:
            return client.is_connected and client.stats["reconnects"] == 1

        await eventually(is_shown_anew)
        assert client._user_jwt_cb is not None
        assert client._user_jwt_cb().decode() in renewed
        assert (await client.request("$JS.API.INFO", timeout=60)).data


async def test_credentials_that_break_later_count_as_they_were(server: QueueServer) -> None:
    access = server.access_of(QueueUser.API)
    assert access.credentials is not None
    async with open_client(access, "test", inbox_prefix=inbox_prefix_of(QueueUser.API)) as client:
        access.credentials.write_text("broken")
        server.kill()
        await server.start()

        async def is_back() -> bool:
            return client.is_connected and client.stats["reconnects"] == 1

        await eventually(is_back)


async def test_a_server_that_syncs_always_is_durable(server: QueueServer) -> None:
    await check_durability(server.access_of(QueueUser.SYSTEM), replicas=1)


async def test_a_server_that_syncs_now_and_then_is_not_unless_others_have_it_too(
    tmp_path: Path, keyring: Keyring
) -> None:
    async with queue_server(tmp_path, keyring=keyring, sync='"2m"') as server:
        access = server.access_of(QueueUser.SYSTEM)
        with pytest.raises(NotDurableError, match="set `sync_interval: always`"):
            await check_durability(access, replicas=1)
        await check_durability(access, replicas=3)


async def test_only_the_system_user_can_ask_for_durability(server: QueueServer) -> None:
    with pytest.raises(QueueUnavailableError, match="credentials of `system`"):
        await check_durability(server.access_of(QueueUser.PLATFORM), replicas=1)
