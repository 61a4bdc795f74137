"""CI runs what people run, ends in bounded time, and holds no more rights than it needs."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture.repository import ROOT
from tests.architecture.test_make_targets import list_needs, read_makefile

WORKFLOWS = ROOT / ".github" / "workflows"
NAMES = ("ci.yml", "nightly.yml", "preview.yml", "release.yml")

# A commit: a branch or a tag can be moved by anyone with write access to the action's repository.
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
USES = re.compile(r"(?m)^\s*-?\s*uses:.*$")
USES_WITH_VERSION = re.compile(r"\s*-?\s*uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
CHECKOUT = f"actions/checkout@{'0123456789' * 4}"

Workflow = dict[Any, Any]


def read_workflow(name: str) -> Workflow:
    workflow = yaml.safe_load((WORKFLOWS / name).read_text())
    assert isinstance(workflow, dict)
    return workflow


def list_triggers(workflow: Workflow) -> Any:
    return workflow[True]  # YAML 1.1 reads the key `on` as a truth value


def list_commands(workflow: Workflow) -> tuple[str, ...]:
    return tuple(step["run"].strip() for job in workflow["jobs"].values() for step in job["steps"] if "run" in step)


def find_faults(workflow: Workflow) -> tuple[str, ...]:
    faults: list[str] = []
    for name, job in workflow["jobs"].items():
        rights = job.get("permissions", workflow.get("permissions"))
        if not isinstance(job.get("timeout-minutes"), int):
            faults.append(f"{name} has no timeout")
        if not isinstance(rights, dict):
            faults.append(f"{name} does not list its permissions")
        uses = [step["uses"] for step in job["steps"] if "uses" in step]
        faults += [f"{name} uses {action}, which is not pinned" for action in uses if not PINNED.fullmatch(action)]
    return tuple(faults)


def find_unversioned(text: str) -> tuple[str, ...]:
    """The lines with an action that does not name its release beside the commit."""
    return tuple(line.strip() for line in USES.findall(text) if not USES_WITH_VERSION.fullmatch(line))


def find_writes(workflow: Workflow) -> dict[str, list[str]]:
    """Which jobs may write, and what."""
    rights = {name: job.get("permissions", workflow["permissions"]) for name, job in workflow["jobs"].items()}
    return {name: writes for name, of in rights.items() if (writes := [what for what in of if of[what] == "write"])}


def test_these_are_all_workflows() -> None:
    assert sorted(path.name for path in WORKFLOWS.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_job_is_bounded_in_time_and_rights_and_uses_pinned_actions(name: str) -> None:
    assert find_faults(read_workflow(name)) == ()


@pytest.mark.parametrize("name", NAMES)
def test_every_action_names_its_release_beside_the_commit(name: str) -> None:
    text = (WORKFLOWS / name).read_text()

    assert USES.search(text)
    assert find_unversioned(text) == ()


def test_one_release_of_an_action_is_one_commit_everywhere() -> None:
    lines = {line.split("uses: ")[1] for name in NAMES for line in USES.findall((WORKFLOWS / name).read_text())}

    assert len({line.split("@")[0] for line in lines}) == len(lines)


@pytest.mark.parametrize(
    "line",
    ["uses: actions/checkout@v5", f"uses: {CHECKOUT}", f"uses: {CHECKOUT} # v5", f"uses: {CHECKOUT[:-1]} # v5.1.0"],
)
def test_an_action_without_commit_or_release_is_seen(line: str) -> None:
    assert find_unversioned(f"      - {line}\n") == (f"- {line}",)
    assert find_unversioned(f"      - uses: {CHECKOUT} # v5.1.0\n") == ()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"timeout-minutes": None}, "test has no timeout"),
        ({"permissions": None}, "test does not list its permissions"),
        ({"permissions": "write-all"}, "test does not list its permissions"),
        (
            {"steps": [{"uses": "actions/checkout@main"}]},
            "test uses actions/checkout@main, which is not pinned",
        ),
        (
            {"steps": [{"uses": "actions/checkout@v5.1.0"}]},
            "test uses actions/checkout@v5.1.0, which is not pinned",
        ),
        ({"steps": [{"uses": "actions/checkout"}]}, "test uses actions/checkout, which is not pinned"),
    ],
)
def test_a_fault_is_seen(change: dict[str, Any], fault: str) -> None:
    job = {
        "timeout-minutes": 5,
        "permissions": {"contents": "read"},
        "steps": [{"uses": CHECKOUT}],
    }

    assert find_faults({"jobs": {"test": job}}) == ()
    assert find_faults({"jobs": {"test": job | change}}) == (fault,)


def test_ci_runs_the_parts_of_make_test_side_by_side_on_every_push_and_pull_request() -> None:
    workflow = read_workflow("ci.yml")
    commands = list_commands(workflow)

    assert commands == tuple(f"make {need}" for need in list_needs(read_makefile(), "test"))
    assert len(workflow["jobs"]) == len(commands)
    assert not any("needs" in job for job in workflow["jobs"].values())
    assert {"push", "pull_request"} <= set(list_triggers(workflow))


def test_every_night_the_audit_the_faults_and_the_benchmarks_run() -> None:
    workflow = read_workflow("nightly.yml")

    assert list_commands(workflow) == ("make audit", "make faults", "make bench")
    assert "schedule" in list_triggers(workflow)


def test_the_script_of_ci_is_make_test_and_nothing_else() -> None:
    script = ROOT / ".ci" / "run"
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]

    assert os.access(script, os.X_OK)
    assert lines == ["set -euo pipefail", 'cd "$(dirname "${BASH_SOURCE[0]}")/.."', "exec make test"]


def test_the_code_of_a_pull_request_runs_without_any_right_to_write() -> None:
    workflow = read_workflow("preview.yml")

    assert list(list_triggers(workflow)) == ["pull_request"]
    stacks = {each["stack"]: each for each in workflow["jobs"]["preview"]["strategy"]["matrix"]["include"]}
    assert {name: (each["up"], each["preview"]) for name, each in stacks.items()} == {
        "dev": ("make up", "make preview"),
        "prod": ("make prod-up", "make prod-preview"),
    }
    assert {"${{ matrix.up }}", "${{ matrix.preview }}"} <= set(list_commands(workflow))
    assert any("$GITHUB_STEP_SUMMARY" in command for command in list_commands(workflow))
    assert find_writes(workflow) == {"comment": ["pull-requests"]}


def test_a_preview_compares_with_the_first_parent_of_the_merge_commit() -> None:
    job = read_workflow("preview.yml")["jobs"]["preview"]
    first, *_ = job["steps"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    places = [commands.index(each) for each in commands if "git checkout" in each or "matrix.up }}" in each]

    assert first["with"] == {"fetch-depth": 2, "persist-credentials": False}
    assert [commands[place].split("\n")[-2 if place == 0 else -1] for place in places] == [
        "git checkout --detach HEAD^1",
        "${{ matrix.up }}",
        'git checkout --force --detach "$MERGED"',
    ]


def test_the_job_that_comments_runs_nothing_of_the_pull_request() -> None:
    """It holds a token that can write, so it neither checks out nor builds."""
    job = read_workflow("preview.yml")["jobs"]["comment"]
    steps = [step.get("uses", "").partition("@")[0] or step["run"] for step in job["steps"]]

    assert job["permissions"] == {"pull-requests": "write"}
    assert steps[0] == "actions/download-artifact"
    assert len(steps) == 2
    assert "make" not in steps[1]
    assert ".venv" not in steps[1]


def test_releases_come_from_version_tags_after_the_tests() -> None:
    workflow = read_workflow("release.yml")

    assert list_triggers(workflow) == {"push": {"tags": ["v*"]}}
    assert {"make test", "make faults"} <= set(list_commands(workflow))
    assert workflow["jobs"]["publish"]["needs"] == ["build", "faults", "image"]


def test_a_release_carries_the_list_of_its_packages() -> None:
    steps = read_workflow("release.yml")["jobs"]["build"]["steps"]
    [listed] = [place for place, step in enumerate(steps) if step.get("run") == "make sbom"]
    [uploaded] = [place for place, step in enumerate(steps) if "upload-artifact" in step.get("uses", "")]

    assert listed < uploaded
    assert steps[uploaded]["with"]["path"] == "dist/*"
    assert "--output-file dist/sbom.cdx.json" in read_makefile()


def test_a_release_is_built_on_base_images_named_by_digest() -> None:
    [step] = [step for step in read_workflow("release.yml")["jobs"]["image"]["steps"] if "run" in step]

    assert step["run"] == "make image"
    assert step["env"] == {name: f"${{{{ vars.{name} }}}}" for name in ("BASE_IMAGE", "PULUMI_IMAGE")}


def test_the_audit_asks_about_every_pinned_package_and_fails_for_one_that_it_cannot_find() -> None:
    audit = read_makefile().partition("\naudit:")[2].partition(".PHONY")[0]

    assert "pip-audit --strict" in audit
    assert "--require-hashes" in audit
    assert "$(wildcard requirements/*.txt)" in audit


def test_only_the_jobs_that_publish_and_comment_may_write() -> None:
    writes = {name: find_writes(read_workflow(name)) for name in NAMES}

    assert writes == {
        "ci.yml": {},
        "nightly.yml": {},
        "preview.yml": {"comment": ["pull-requests"]},
        "release.yml": {"publish": ["contents"]},
    }


def test_every_workflow_caches_the_built_parts_under_the_same_key() -> None:
    keys = {
        step["with"]["key"]
        for name in NAMES
        for job in read_workflow(name)["jobs"].values()
        for step in job["steps"]
        if step.get("uses", "").startswith("actions/cache@")
    }

    assert len(keys) == 1
    assert "hashFiles('tools/**/go.*', 'requirements/go.txt')" in keys.pop()


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A small repository at version 1.2.0."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "release-notes", tmp_path / ".ci")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n- later\n\n"
        "## [1.2.0] - 2026-01-02\n\n### Added\n\n- now\n\n## [1.1.0]\n\n- before\n"
    )
    return tmp_path


def run_release_notes(repository: Path, tag: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([repository / ".ci" / "release-notes", tag], capture_output=True, text=True, check=False)


def test_release_notes_are_the_section_of_that_version(release: Path) -> None:
    shown = run_release_notes(release, "v1.2.0")

    assert shown.returncode == 0
    assert shown.stdout.strip() == "### Added\n\n- now"


def test_a_tag_that_is_not_the_version_stops_the_release(release: Path) -> None:
    shown = run_release_notes(release, "v1.1.0")

    assert shown.returncode == 1
    assert "not the version of pyproject.toml (1.2.0)" in shown.stderr


def test_a_version_that_the_changelog_does_not_describe_stops_the_release(release: Path) -> None:
    (release / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n- later\n")
    shown = run_release_notes(release, "v1.2.0")

    assert shown.returncode == 1
    assert "no section for 1.2.0" in shown.stderr
