"""`gpu-platform queue keys`: the content of an installation's Secrets, and nothing written over."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpu_platform.cli.app import app
from gpu_platform.nats.credentials import parse_credentials, parse_keyring, read_claims


def run(*words: str) -> Result:
    result = CliRunner().invoke(app, ["queue", "keys", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def made(tmp_path: Path) -> Path:
    directory = tmp_path / "nats"
    result = run(str(directory))
    assert result.exit_code == 0, result.output
    for secret in ("nats-users", "nats-api", "nats-reconciler"):
        assert f"secret generic {secret} -n runtime-system --from-file={directory / secret}" in result.output
    return directory


def read_all(directory: Path) -> dict[str, str]:
    return {str(file.relative_to(directory)): file.read_text() for file in directory.rglob("*") if file.is_file()}


def test_everybody_gets_credentials_and_all_of_it_is_private(made: Path) -> None:
    files = read_all(made)
    names = {
        name: read_claims(parse_credentials(text).token)["name"] for name, text in files.items() if "creds" in name
    }
    assert names == {
        "nats-api/nats.creds": "api",
        "nats-reconciler/nats.creds": "functions",
        "nats-reconciler/system.creds": "system",
        "platform.creds": "platform",
    }
    assert files["nats-reconciler/signing.key"].strip() == parse_keyring(files["keys.json"]).workers
    assert not [path for path in (made, *made.rglob("*")) if path.stat().st_mode & 0o077]


def test_no_process_gets_the_keys_that_make_all_the_rest(made: Path) -> None:
    files = read_all(made)
    keyring = parse_keyring(files.pop("keys.json"))
    assert not [name for name, text in files.items() if keyring.operator in text or keyring.account in text]


def test_what_is_there_is_never_written_over(made: Path) -> None:
    before = read_all(made)
    result = run(str(made))
    assert result.exit_code == 2
    assert "is not empty, and keys are never written over" in " ".join(result.output.split())
    assert read_all(made) == before


def test_renewed_credentials_are_of_the_same_keys(made: Path) -> None:
    before = read_all(made)
    (made / "nats-api" / "nats.creds").unlink()
    assert run(str(made), "--renew").exit_code == 0
    after = read_all(made)
    assert after.keys() == before.keys()
    assert after["keys.json"] == before["keys.json"]
    api = "nats-api/nats.creds"
    assert parse_credentials(after[api]).seed == parse_credentials(before[api]).seed


def test_without_keys_there_is_nothing_to_renew(tmp_path: Path) -> None:
    result = run(str(tmp_path), "--renew")
    assert result.exit_code == 2
    assert "keys.json cannot be read" in " ".join(result.output.split())
    (tmp_path / "keys.json").write_text("{}")
    assert "keys.json cannot be used" in " ".join(run(str(tmp_path), "--renew").output.split())
