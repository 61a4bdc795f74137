"""Creating an object that a quota counts, while others change the counts."""

from typing import Any

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import ConflictError, KubeClient, KubeError, QuotaBusyError
from gpu_platform.kube.client import QUOTA_PAUSES
from gpu_platform.kube.errors import error_from_status

BUSY = {
    "reason": "Conflict",
    "message": 'Operation cannot be fulfilled on resourcequotas "platform-object-counts": the object has been modified',
    "details": {"name": "platform-object-counts", "kind": "resourcequotas"},
}


class Answers(KubeClient):
    """Answers each request with the next error, and then with the body."""

    def __init__(self, *errors: KubeError) -> None:
        self.errors = list(errors)

    async def _json(self, method: str, path: str, params: Any = None, body: Any = None, *_: Any, **__: Any) -> Json:
        assert (method, path, params) == ("POST", "/x", None)
        if self.errors:
            raise self.errors.pop(0)
        return dict(body)


async def test_a_creation_that_could_not_be_counted_is_tried_again() -> None:
    client = Answers(*(error_from_status(409, BUSY) for _ in QUOTA_PAUSES))
    assert await client.create("/x", {"kind": "Operation"}) == {"kind": "Operation"}


async def test_a_creation_that_is_never_counted_ends() -> None:
    client = Answers(*(error_from_status(409, BUSY) for _ in range(100)))
    with pytest.raises(QuotaBusyError):
        await client.create("/x", {})
    assert len(client.errors) == 100 - len(QUOTA_PAUSES) - 1


async def test_any_other_conflict_is_not_tried_again() -> None:
    client = Answers(error_from_status(409, {"reason": "Conflict", "details": {"kind": "operations"}}))
    with pytest.raises(ConflictError):
        await client.create("/x", {})


async def test_a_creation_is_not_tried_again_beyond_its_timeout() -> None:
    client = Answers(*(error_from_status(409, BUSY) for _ in range(100)))
    with pytest.raises(QuotaBusyError):
        await client.create("/x", {}, timeout=QUOTA_PAUSES[0] / 2)
    assert len(client.errors) == 99
