"""`gpu-platform preview` over prepared plans: its output is what a reviewer reads, so it is compared as a whole."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpu_platform.cli.app import app
from tests.unit.cli.plans.prepared_plans import GOLDEN, PREPARED

PLANS = ("stock-pool-edited", "tenant-added", "image-replaced", "rules-broken")


def run(*options: str, stdin: str | None = None, path: str | None = None) -> Result:
    environment = {} if path is None else {"PATH": path}
    return CliRunner().invoke(app, ["preview", *options], input=stdin, env=environment)


def stand_in(directory: Path, script: str) -> str:
    """A PATH on which `pulumi` is this script."""
    executable = directory / "pulumi"
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("name", PLANS)
def test_the_markdown_is_the_golden_file(name: str) -> None:
    shown = run("--markdown", "--file", str(PREPARED / f"{name}.json"))

    assert shown.stdout == (GOLDEN / f"{name}.md").read_text()


def test_every_golden_file_has_its_plan() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(path.stem for path in PREPARED.iterdir())
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(PLANS)


@pytest.mark.parametrize("name", PLANS)
def test_only_a_broken_rule_fails_the_command(name: str) -> None:
    assert run("--file", str(PREPARED / f"{name}.json")).exit_code == (1 if name == "rules-broken" else 0)


@pytest.mark.parametrize("options", [(), ("--markdown",), ("--json",)])
def test_a_rule_breaking_change_fails_with_the_rules_name_in_every_form(options: tuple[str, ...]) -> None:
    shown = run(*options, "--file", str(PREPARED / "rules-broken.json"))

    assert shown.exit_code == 1
    for rule in ("container-without-limits", "wildcard-rbac", "privileged-pod", "latest-image"):
        assert rule in shown.stdout


@pytest.mark.parametrize("options", [(), ("--markdown",), ("--json",)])
def test_no_form_shows_a_secret(options: tuple[str, ...]) -> None:
    shown = run(*options, "--file", str(PREPARED / "image-replaced.json"))

    assert "[secret]" in shown.stdout
    assert "cHJlcGFyZWQt" not in shown.output
    assert "v1:prepared-old" not in shown.output


def test_people_get_a_table() -> None:
    shown = run("--file", str(PREPARED / "stock-pool-edited.json"))

    assert shown.stdout.splitlines()[0] == "0 create, 1 update, 0 replace, 0 delete, 41 same"
    assert shown.stdout.splitlines()[2].split("  ")[-1].strip() == "spec.replicas: 8 → 12"


def test_machines_get_the_same_as_json() -> None:
    answer = json.loads(run("--json", "--file", str(PREPARED / "stock-pool-edited.json")).stdout)

    assert answer["counts"] == {"create": 0, "update": 1, "replace": 0, "delete": 0, "same": 41}
    (change,) = answer["changes"]
    assert (change["operation"], change["kind"], change["name"]) == ("update", "StockPool", "runtime-stock/h100")
    assert change["properties"] == [{"path": "spec.replicas", "old": 8, "new": 12, "replaces": False}]
    assert answer["brokenRules"] == []


def test_a_plan_may_come_on_stdin() -> None:
    text = (PREPARED / "tenant-added.json").read_text()

    assert run("--markdown", "--file", "-", stdin=text).stdout == (GOLDEN / "tenant-added.md").read_text()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Previewing update (dev)", "it is not one JSON document"),
        ("", "it is not one JSON document"),
        ("{}{}", "it is not one JSON document"),
        ("[" * 100_000, "it is not one JSON document"),
        ("[]", "it is not an object"),
        ("{}", "it has no steps"),
        ('{"steps": [1]}', "steps[0] is not an object"),
        ('{"steps": [{"op": "create"}]}', "steps[0] has no operation (op) or no name (urn)"),
        ('{"steps": [{"op": "create", "urn": "u", "newState": []}]}', "steps[0].newState is not an object"),
        ('{"steps": [{"op": "update", "urn": "u", "replaceReasons": [1]}]}', "replaceReasons is not a list of texts"),
        ('{"steps": [{"op": "update", "urn": "u", "detailedDiff": {"a": 1}}]}', "'a' has no kind"),
        (
            '{"steps": [], "diagnostics": [{"severity": "error", "message": "error: the key\\nis wrong\\n"}]}',
            "is not a whole plan: the key is wrong",
        ),
    ],
)
def test_what_is_no_plan_is_told_in_one_sentence(text: str, sentence: str) -> None:
    shown = run("--file", "-", stdin=text)

    assert shown.exit_code == 2
    assert shown.stdout == ""
    assert sentence in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


def test_a_file_that_is_not_there_is_told_in_one_sentence(tmp_path: Path) -> None:
    shown = run("--file", str(tmp_path / "absent.json"))

    assert shown.exit_code == 2
    assert "absent.json cannot be read: No such file or directory" in shown.stderr


@pytest.mark.parametrize("options", [("--markdown", "--json"), ("--file", "-", "--stack", "dev")])
def test_options_that_exclude_each_other_are_refused(options: tuple[str, ...]) -> None:
    assert run(*options, stdin="{}").exit_code == 2


def test_without_a_file_pulumi_is_asked_for_one_plan_of_that_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_ENABLE_STREAMING_JSON_PREVIEW", "true")
    plan = PREPARED / "stock-pool-edited.json"
    script = (
        f'echo "$@" > "{tmp_path}/arguments"; test -z "$PULUMI_ENABLE_STREAMING_JSON_PREVIEW" || exit 9; cat "{plan}"'
    )

    shown = run("--markdown", "--stack", "dev", path=stand_in(tmp_path, script))

    assert shown.stdout == (GOLDEN / "stock-pool-edited.md").read_text()
    assert (tmp_path / "arguments").read_text() == "preview --json --non-interactive --stack dev\n"


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo 'error: no stack selected' >&2; exit 255", "pulumi preview failed: no stack selected"),
        (
            """echo '{"diagnostics": [{"severity": "error", "message": "stockPool is no setting"}]}'; exit 1""",
            "pulumi preview failed: stockPool is no setting",
        ),
        ("exit 3", "pulumi preview failed: it ended with 3 and said nothing"),
        ("echo done", "what pulumi preview printed is no plan"),
    ],
)
def test_a_failed_preview_is_told_in_one_sentence(tmp_path: Path, script: str, sentence: str) -> None:
    shown = run(path=stand_in(tmp_path, script))

    assert shown.exit_code == 2
    assert sentence in shown.stderr


def test_without_pulumi_the_way_to_it_is_told(tmp_path: Path) -> None:
    shown = run(path=str(tmp_path))

    assert shown.exit_code == 2
    assert "there is no pulumi on PATH" in shown.stderr
