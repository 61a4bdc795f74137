"""The fixtures of the functions' tests."""

import secrets
from collections.abc import AsyncIterator

import pytest

from tests.support.clusters import RunningCluster
from tests.support.functions import Calls, open_calls


@pytest.fixture(scope="module")
async def calls(cluster: RunningCluster) -> AsyncIterator[Calls]:
    async with open_calls(cluster) as found:
        yield found


@pytest.fixture
def function() -> str:
    """A name that no other function has."""
    return f"fn-{secrets.token_hex(4)}"
