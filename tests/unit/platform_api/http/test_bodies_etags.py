"""ETags and If-Match."""

import pytest

from platform_api.http.bodies import is_matched


@pytest.mark.parametrize(
    ("if_match", "matches"),
    [
        (None, True),
        ('"u.1"', True),
        ("*", True),
        ('"x.1", "u.1"', True),
        ('"u.2"', False),
        ("u.1", False),
        ('W/"u.1"', False),
    ],
)
def test_if_match_names_the_etag(if_match: str | None, matches: bool) -> None:
    assert is_matched(if_match, {"metadata": {"uid": "u", "generation": 1}}) is matches
