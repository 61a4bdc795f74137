"""One salt per passphrase, made once and kept."""

from pathlib import Path

from stacks.runner.backend import ensure_salt, fits

BY_PULUMI = "v1:htZ6U9g/wIQ=:v1:T3mYfGOAQVbWaVof:KRi9F+z45ZQWcGs0xbXSs7HkUQ3MQg=="


def test_a_salt_that_pulumi_accepts_is_recognised_with_its_passphrase_only() -> None:
    assert fits(BY_PULUMI, "geheim")
    assert not fits(BY_PULUMI, "another")
    assert not fits("half a salt", "geheim")


def test_a_salt_is_made_once_and_anew_for_another_passphrase(tmp_path: Path) -> None:
    kept = tmp_path / "salt"

    first = ensure_salt(kept, "geheim")

    assert ensure_salt(kept, "geheim") == first
    assert ensure_salt(kept, "another") != first
    assert kept.stat().st_mode & 0o077 == 0
