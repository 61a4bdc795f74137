"""Answers of the API server that are nested too deeply for the parser."""

import json

import pytest

from gpu_platform.kube.client import ANSWER_DEPTH, cut_deep, parse_answer


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ('{"a": [1]}', '{"a": null}'),
        ('[1, "[", {"b": {}}]', '[1, "[", null]'),
        ('{"a": 1}', '{"a": 1}'),
        ('{"a": [[], {}], "b": "\\"]"}', '{"a": null, "b": "\\"]"}'),
        ("7", "7"),
    ],
)
def test_what_is_deeper_than_the_limit_is_null(text: str, cut: str) -> None:
    assert cut_deep(text, 1) == cut


@pytest.mark.parametrize("is_encoded", [False, True])
def test_one_deep_object_does_not_hide_the_others_of_a_list(is_encoded: bool) -> None:
    deep = '{"a":' * 5_000 + "1" + "}" * 5_000
    text = f'{{"items": [{{"name": "one", "request": {deep}}}, {{"name": "two"}}]}}'
    with pytest.raises(RecursionError):
        json.loads(text)
    answer = parse_answer(text.encode() if is_encoded else text)
    assert [item["name"] for item in answer["items"]] == ["one", "two"]
    assert len(json.dumps(answer)) < 20 * ANSWER_DEPTH
