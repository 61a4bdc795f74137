"""`gpu-platform drift`: what differs, and news of it."""

import json
from typing import Any

import pytest

from gpu_platform.api_models.stacks import DriftReport
from gpu_platform.cli.drift import find_news
from tests.unit.cli.shell import Shell
from tests.unit.client.api_server import ApiServer, data, refusal

DRIFT = "/operator/drift"
WEB: dict[str, Any] = {
    "stack": "gpu-unit/default.web",
    "kind": "gpu-unit",
    "tenant": "default",
    "name": "web",
    "since": "2026-11-16T12:00:00Z",
    "action": "revert",
    "doing": "the reconciler puts the accepted spec back",
    "differences": [{"field": "spec.image", "accepted": "a:1", "found": "b:[red]2"}],
    "failures": 0,
}
CORRECTED: dict[str, Any] = {
    "stack": "gpu-unit/default.web",
    "since": "2026-11-16T12:00:00Z",
    "correctedAt": "2026-11-16T12:00:01.500000Z",
    "differences": [{"field": "spec.gpu", "found": 2}],
}


def report(*items: Any, corrected: tuple[Any, ...] = (), total: int | None = None) -> Any:
    return {"items": list(items), "total": len(items) if total is None else total, "corrected": list(corrected)}


def news(known: Any, found: Any) -> list[tuple[str, str]]:
    before = DriftReport.model_validate(known) if known else None
    return [(event, item.stack) for event, item in find_news(before, DriftReport.model_validate(found))]


def test_what_differs_is_shown_with_both_values_and_who_does_what(api: ApiServer, shell: Shell) -> None:
    api.on("GET", DRIFT, data(report(WEB, total=3)))

    shown = shell.run("drift").stdout

    assert "gpu-unit/default.web" in shown
    assert 'spec.image: accepted "a:1", found "b:[red]2"' in " ".join(shown.split())
    assert "the reconciler puts the accepted spec back" in " ".join(shown.split())
    assert "and 2 more" in shown


def test_what_was_corrected_is_shown_with_how_long_it_took(api: ApiServer, shell: Shell) -> None:
    api.on("GET", DRIFT, data(report(corrected=(CORRECTED,))))

    result = shell.run("drift")

    assert "everything is as it was accepted" in result.stderr
    shown = " ".join(result.stdout.split())
    assert "1.5 s" in shown
    assert "spec.gpu: removed again (was 2)" in shown


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        ({"accepted": "example/web", "found": "example/other"}, 'put back to "example/web" (was "example/other")'),
        ({"accepted": ["a", "b"]}, 'put back to ["a", "b"] (was not set)'),
        ({"accepted": 0, "found": 2}, "put back to 0 (was 2)"),
        ({"accepted": False, "found": True}, "put back to false (was true)"),
    ],
)
def test_a_correction_says_which_value_is_there_again(
    api: ApiServer, shell: Shell, difference: dict[str, Any], words: str
) -> None:
    corrected = {**CORRECTED, "differences": [{"field": "spec.x", **difference}]}
    api.on("GET", DRIFT, data(report(corrected=(corrected,))))

    assert f"spec.x: {words}" in " ".join(shell.run("drift").stdout.split())


def test_machines_get_the_whole_report(api: ApiServer, shell: Shell) -> None:
    api.on("GET", DRIFT, data(report(WEB)))

    assert json.loads(shell.run("drift", "--json").stdout) == report(WEB)


def test_a_watch_tells_each_piece_of_news_once(api: ApiServer, shell: Shell) -> None:
    end = refusal(401, "unauthenticated", "the key was withdrawn")
    api.on("GET", DRIFT, data(report(WEB)), data(report(WEB)), data(report(corrected=(CORRECTED,))), end)

    result = shell.run("drift", "--watch", "--json")

    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["event"] for each in told] == ["differs", "corrected"]
    assert result.exit_code == 1


def test_news_are_what_is_new() -> None:
    """
    | before    | now                  | told      |
    | --------- | -------------------- | --------- |
    | –         | differs              | differs   |
    | differs   | the same             | –         |
    | differs   | treated otherwise    | differs   |
    | differs   | not any more         | settled   |
    | differs   | corrected            | corrected |
    | unseen    | corrected            | corrected |
    | –         | corrected long ago   | –         |
    """
    name = WEB["stack"]
    assert news(None, report(WEB)) == [("differs", name)]
    assert news(report(WEB), report(WEB)) == []
    assert news(report(WEB), report(WEB | {"action": "record"})) == [("differs", name)]
    assert news(report(WEB), report(WEB | {"error": "the backend is away"})) == [("differs", name)]
    assert news(report(WEB), report()) == [("settled", name)]
    assert news(report(WEB), report(corrected=(CORRECTED,))) == [("corrected", name)]
    assert news(report(), report(corrected=(CORRECTED,))) == [("corrected", name)]
    assert news(None, report(corrected=(CORRECTED,))) == []
    assert news(report(corrected=(CORRECTED,)), report(corrected=(CORRECTED,))) == []
