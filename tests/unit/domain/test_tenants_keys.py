"""API keys: their form, and what opens a record."""

from datetime import UTC, datetime, timedelta

import pytest

from gpu_platform.domain.tenants import KeyRecord, Role, build_key, draw_key_parts, hash_secret, opens, split_key

SECRET = "s" * 43
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(expires_at: datetime | None = None) -> KeyRecord:
    return KeyRecord(sha256=hash_secret(SECRET), tenant="acme", roles=(Role.EDITOR,), expires_at=expires_at)


def test_a_key_falls_into_its_id_and_its_secret_again() -> None:
    assert split_key(build_key("abcd1234", SECRET)) == ("abcd1234", SECRET)
    assert split_key(build_key("abcd1234", "_-" * 21 + "_")) == ("abcd1234", "_-" * 21 + "_")


@pytest.mark.parametrize("byte", [b"\x00", b"\x7f", b"\xff"])
def test_whatever_is_drawn_becomes_a_key(byte: bytes) -> None:
    parts = draw_key_parts(lambda size: byte * size)

    assert split_key(build_key(*parts)) == parts


def test_a_secret_is_drawn_of_256_bits() -> None:
    drawn: list[int] = []

    def draw(size: int) -> bytes:
        drawn.append(size)
        return bytes(range(size))

    draw_key_parts(draw)

    assert drawn == [4, 32]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gk_",
        f"gk_abcd1234_{SECRET}x",
        f"gk_abcd1234_{SECRET[1:]}",
        f"gk_abcd123_{SECRET}",
        f"gk_ABCD1234_{SECRET}",
        f"GK_abcd1234_{SECRET}",
        f" gk_abcd1234_{SECRET}",
        f"gk_abcd1234_{SECRET}\n",
        f"gk_abcd1234_{'é' * 43}",
    ],
)
def test_what_is_no_key(text: str) -> None:
    assert split_key(text) is None


def test_only_the_right_secret_opens() -> None:
    assert opens(record(), SECRET, NOW)
    assert not opens(record(), "t" * 43, NOW)
    assert not opens(record(), "", NOW)


def test_a_key_opens_until_it_expires() -> None:
    assert opens(record(NOW + timedelta(seconds=1)), SECRET, NOW)
    assert not opens(record(NOW), SECRET, NOW)
    assert not opens(record(NOW - timedelta(days=1)), SECRET, NOW)


def test_the_record_does_not_hold_the_secret() -> None:
    assert SECRET not in str(record().to_json())
    assert set(record(NOW).to_json()) == {"sha256", "tenant", "roles", "expiresAt"}
