"""SSH into a unit: asked for with options, and the command printed."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.ssh_blocks import make_key
from tests.unit.cli.shell import Shell, unwrapped
from tests.unit.client import views
from tests.unit.client.api_server import ApiServer, data

CREATE = ("units", "create", "demo", "--spec", "host.1", "--image", "python:3.12")
PLACE = {"username": "runtime", "targetHost": "demo", "connectHost": "frp.example.com", "connectPort": 7_000}
STATUS = {"phase": "Ready", **PLACE, "accessCommand": "ssh runtime@demo.example.com"}


def test_ssh_is_asked_for_with_the_keys_of_files(api: ApiServer, shell: Shell, tmp_path: Path) -> None:
    api.on("POST", "/gpu-units", data(views.unit(), 201))
    keys, token = tmp_path / "keys.pub", tmp_path / "token"
    keys.write_text(f"# mine\n{make_key(1)}\n\n{make_key(2)}\n")
    token.write_text("open-sesame\n")

    options = ("--ssh-key", str(keys), "--ssh-server", "frp.example.com", "--ssh-domain", "ssh.example.com")
    shell.run(*CREATE, *options, "--ssh-token-file", str(token))

    assert api.questions[0].body["ssh"] == {
        "enabled": True,
        "authorizedKeys": [make_key(1), make_key(2)],
        "serverAddr": "frp.example.com",
        "domainSuffix": "ssh.example.com",
        "token": "open-sesame",
    }


def test_without_an_option_nothing_is_said_of_ssh(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(views.unit(), 201))

    shell.run(*CREATE)

    assert "ssh" not in api.questions[0].body


def test_a_file_that_cannot_be_read_is_named(shell: Shell, tmp_path: Path) -> None:
    result = shell.run(*CREATE, "--ssh-key", str(tmp_path / "missing"), COLUMNS="300")

    assert result.exit_code == 2
    assert "missing" in result.stderr


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----\n",
        "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\nAAAA\n",
    ],
)
def test_a_private_key_is_never_sent(api: ApiServer, shell: Shell, tmp_path: Path, text: str) -> None:
    file = tmp_path / "id"
    file.write_text(text)

    result = shell.run(*CREATE, "--ssh-key", str(file), COLUMNS="300")

    assert result.exit_code == 2
    assert "is a private key, and was not sent" in unwrapped(result.stderr)
    assert "id.pub" in result.stderr
    assert api.questions == []


@pytest.mark.parametrize(
    ("text", "words"), [("", "holds no key"), (f"# mine\n{make_key()}\nnonsense\n", "should begin with the type")]
)
def test_a_file_of_anything_else_is_not_sent(
    api: ApiServer, shell: Shell, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "id.pub"
    file.write_text(text)

    result = shell.run(*CREATE, "--ssh-key", str(file), COLUMNS="300")

    assert result.exit_code == 2
    assert words in unwrapped(result.stderr)
    assert api.questions == []


def test_the_command_is_printed_and_nothing_else(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units/demo", data(views.unit(ssh={"enabled": True}, sshStatus=STATUS)))

    assert shell.run("units", "ssh", "demo").stdout == "ssh runtime@demo.example.com\n"
    assert "ssh runtime@demo" in shell.run("units", "get", "demo").stdout
    assert json.loads(shell.run("units", "ssh", "demo", "--json").stdout) == STATUS


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "it was rented without SSH"),
        ({"ssh": {"enabled": True}}, "its SSH is Pending"),
        ({"ssh": {"enabled": True}, "sshStatus": {"phase": "Failed", **PLACE}}, "its SSH is Failed"),
    ],
)
def test_why_nobody_can_log_in_is_told(api: ApiServer, shell: Shell, fields: dict[str, Any], words: str) -> None:
    api.on("GET", "/gpu-units/demo", data(views.unit(**fields)))

    result, for_machines = shell.run("units", "ssh", "demo"), shell.run("units", "ssh", "demo", "--json")

    assert (result.exit_code, for_machines.exit_code) == (1, 1)
    assert words in result.stderr
    assert json.loads(for_machines.stdout) == {**fields.get("sshStatus", {}), "message": words}
