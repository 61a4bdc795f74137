"""Which hosts are this very machine."""

import pytest

from gpu_platform.domain.network import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("gpu.example.com", False),
        ("", False),
    ],
)
def test_a_host_is_this_machine_by_its_address_or_as_localhost(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
