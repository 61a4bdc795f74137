"""Which outputs have the shape that a page shows: the table of `console_shapes`."""

import pytest

from tests.support.console import has_shape, normalise


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ("since 2026-11-16T11:45:44.085383Z", "since 2031-01-01T00:00:00Z"),
        ("uid=b4660058-d4d5-459b-9d2b-e6725b5009a9", "uid=00000000-aaaa-bbbb-cccc-0123456789ab"),
        ("Pod/unit-broken-644d4d68f5-dblmj is", "Pod/unit-broken-5b9c7d-x2x4z is"),
        ("accepted 4e40ab7a7135", "accepted 0123456789abcdef"),
        ("http://127.28.0.3:8000", "http://127.3.1.200:8000"),
        ("ready at http://127.0.0.1:22850", "ready at http://127.0.0.1:1"),
        ("ready after 1.7 s", "ready after 20 s"),
        ("answered 20 ms", "answered 3,096 ms"),
        ("3s ago", "1h5m ago"),
        ('{"name":"web",…', '{"name":"web","spec":{}}'),
        ('"hash": "8c1f…"', '"hash": "8c1fd"'),
        ("NAME  AGE\nweb   3s", "NAME      AGE\nweb       3s\n"),
        ("one\n\ntwo", "one\ntwo\n"),
        ("a long line that\nthe page breaks", "a long line that the page breaks\n"),
        ('{"a":1,\n "b":2}', '{"a":1,"b":2}'),
        ("web is Ready after 1.7 s", "web: Pending after 0s\nweb is Ready after 2.1 s\n"),
        ("…\nlast", "first\nsecond\nlast\n"),
        ("first\n…\nlast", "first\nlast\n"),
        ("first\n…", "first\nsecond\nthird\n"),
        ("", ""),
    ],
)
def test_what_differs_from_run_to_run_agrees(shown: str, seen: str) -> None:
    assert has_shape(shown.split("\n"), seen)


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ("web is Ready after 1.7 s", "web is Failed after 1.7 s"),
        ("accepted 4e40ab7a7135", "accepted none"),
        ("http://127.28.0.3:8000", "http://127.28.0.3:9000"),
        ("0 create, 1 update", "1 create, 1 update"),
        ("NAME AGE\nweb 3s", "NAME PHASE AGE\nweb Ready 3s"),
        ("web 3s", "web 3s\napi 4s"),
        ("web 3s\napi 4s", "web 3s"),
        ("one two", "one\ntwo"),
        ("first\n…\nlast", "first\nsecond"),
        ('{"name":"web",…', '{"name":"other","spec":{}}'),
        ("", "a warning"),
        ("{}", "{}{}"),
    ],
)
def test_what_a_reader_would_stumble_over_does_not_agree(shown: str, seen: str) -> None:
    assert not has_shape(shown.split("\n"), seen)


def test_words_stay_as_they_are() -> None:
    text = "pool host is ready: 4 nodes with 8 GPUs, 53 same, 1Gi, g1.1, unit-web.runtime-instance.svc:8000"
    assert normalise(text) == f"{text}\n"
