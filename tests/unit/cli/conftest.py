import socket
from collections.abc import Iterator

import pytest

from tests.unit.cli.shell import Shell
from tests.unit.client.api_server import ApiServer, running_server


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nothing answers: the port is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def shell(api: ApiServer) -> Shell:
    return Shell(api.url)
