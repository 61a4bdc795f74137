"""What a preview tells of the engine's events."""

from typing import Any

import pytest
from pulumi.automation import EngineEvent

from gpu_platform.domain.stacks import PreviewStep, PropertyChange
from stacks.runner.results import build_preview, build_run, find_value, read_event_log

SECRET = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "[secret]"}
TYPE = "gpuplatform:index:GpuUnit"
URN = f"urn:pulumi:acme.one::gpu-unit::{TYPE}::one"
STACK = "urn:pulumi:acme.one::gpu-unit::pulumi:pulumi:Stack::gpu-unit-acme.one"


def step(op: str, urn: str = URN, **fields: Any) -> dict[str, Any]:
    return {"op": op, "urn": urn, "type": urn.split("::")[2], "logical": True, "provider": "", **fields}


def state(**inputs: Any) -> dict[str, Any]:
    return {"type": TYPE, "urn": URN, "inputs": inputs, "outputs": inputs}


def begun(metadata: dict[str, Any]) -> EngineEvent:
    return EngineEvent.from_json({"sequence": 1, "timestamp": 1, "resourcePreEvent": {"metadata": metadata}})


def ended(metadata: dict[str, Any]) -> EngineEvent:
    return EngineEvent.from_json({"sequence": 1, "timestamp": 1, "resOutputsEvent": {"metadata": metadata}})


def test_a_preview_names_each_change_with_its_old_and_new_value() -> None:
    change = step(
        "update",
        old=state(image="old", envs=[{"value": SECRET}]),
        new=state(image="new", envs=[{"value": SECRET}]),
        detailedDiff={
            "image": {"diffKind": "update", "inputDiff": True},
            "envs[0].value": {"diffKind": "update", "inputDiff": True},
        },
    )

    preview = build_preview([begun(step("same", STACK)), begun(change)])

    assert preview.changes == {"update": 1}
    assert preview.steps == (
        PreviewStep(
            op="update",
            resource="one",
            type=TYPE,
            properties=(
                PropertyChange(path="envs[0].value", kind="update", old="[secret]", new="[secret]"),
                PropertyChange(path="image", kind="update", old="old", new="new"),
            ),
        ),
    )


def test_what_stays_the_same_is_counted_and_not_listed() -> None:
    preview = build_preview([begun(step("same", old=state(), new=state()))])

    assert preview.changes == {"same": 1}
    assert preview.steps == ()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("image", "busybox"),
        ("template.ports[1]", 81),
        ("template.ports[7]", None),
        ('labels["a.b/c"]', "x"),
        ("secret.inside", "[secret]"),
        ("nothing.here", None),
    ],
)
def test_a_property_is_found_by_its_path(path: str, expected: Any) -> None:
    tree = {"image": "busybox", "template": {"ports": [80, 81]}, "labels": {"a.b/c": "x"}, "secret": SECRET}

    assert find_value(tree, path) == expected


def test_resources_are_those_there_at_the_end_without_the_engines_own() -> None:
    gone = URN.replace("::one", "::two")
    run = build_run(
        [
            ended(step("refresh", gone, new=state(), logical=None)),
            ended(step("create", STACK, new=state())),
            ended(step("create", new=state())),
            ended(step("delete", gone, new=None)),
        ]
    )

    assert run.resources == 1


def test_the_log_of_a_killed_cli_is_read_as_far_as_it_goes(tmp_path: Any) -> None:
    log = tmp_path / "events.json"
    assert read_event_log(log) == ()
    log.write_text('{"sequence":0,"timestamp":1,"preludeEvent":{"config":{}}}\n{"sequence":1,"times')

    assert [event.sequence for event in read_event_log(log)] == [0]
