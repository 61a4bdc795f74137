"""SSH into a unit: asked for with options, and the command printed."""

from pathlib import Path
from typing import Any

import pytest

from tests.ssh_blocks import make_key
from tests.unit.cli import views
from tests.unit.cli.api_server import ApiServer, data
from tests.unit.cli.shell import Shell

CREATE = ("units", "create", "demo", "--spec", "host.1", "--image", "python:3.12")
STATUS = {"phase": "Ready", "accessCommand": "ssh runtime@demo.example.com"}


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
    result = shell.run(*CREATE, "--ssh-key", str(tmp_path / "missing"))

    assert result.exit_code == 2
    assert "missing" in result.stderr


def test_the_command_is_printed_and_nothing_else(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units/demo", data(views.unit(ssh={"enabled": True}, sshStatus=STATUS)))

    assert shell.run("units", "ssh", "demo").stdout == "ssh runtime@demo.example.com\n"
    assert "ssh runtime@demo" in shell.run("units", "get", "demo").stdout


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "rented without SSH"),
        ({"ssh": {"enabled": True}}, "its SSH is Pending"),
        ({"ssh": {"enabled": True}, "sshStatus": {"phase": "Failed"}}, "its SSH is Failed"),
    ],
)
def test_why_nobody_can_log_in_is_told(api: ApiServer, shell: Shell, fields: dict[str, Any], words: str) -> None:
    api.on("GET", "/gpu-units/demo", data(views.unit(**fields)))

    result = shell.run("units", "ssh", "demo")

    assert result.exit_code == 1
    assert words in result.stderr
