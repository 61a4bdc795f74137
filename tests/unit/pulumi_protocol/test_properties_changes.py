"""What is different, place by place."""

from typing import Any

import pytest

from gpu_platform.pulumi_protocol.properties import UNKNOWN, Change, Path, find_changes

ADD, DELETE, UPDATE = Change.ADD, Change.DELETE, Change.UPDATE


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 1}}, {}),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, {("a", "b"): UPDATE}),
        ({"a": {}}, {"a": {"b": 1}}, {("a", "b"): ADD}),
        ({"a": {"b": 1}}, {"a": {}}, {("a", "b"): DELETE}),
        ({"a": {"b": 1}}, {"a": UNKNOWN}, {("a",): UPDATE}),
        ({}, {"a": UNKNOWN}, {("a",): ADD}),
        ({"a": [1, 2]}, {"a": [1, 3, 4]}, {("a", 1): UPDATE, ("a", 2): ADD}),
        ({"a": [1, 2]}, {"a": [1]}, {("a", 1): DELETE}),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, {("a", 0, "b"): UPDATE}),
        ({"a": "1"}, {"a": 1}, {("a",): UPDATE}),
        ({"a": True}, {"a": 1}, {("a",): UPDATE}),
        ({"a": {"b": 1}}, {"a": [1]}, {("a",): UPDATE}),
    ],
)
def test_changes(old: Any, new: Any, changes: dict[Path, Change]) -> None:
    assert find_changes(old, new) == changes
