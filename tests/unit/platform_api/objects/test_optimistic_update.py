"""Changing an object as it was seen, while others write it, too."""

from collections.abc import Iterator

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import ConflictError, NotFoundError
from platform_api.http.errors import ApiError, not_found
from platform_api.objects.optimistic_update import TRIES, change_as_seen
from tests.support.builders import make_unit


class Server:
    """Holds one unit; answers writes as the test says, the last way for ever."""

    def __init__(self, unit: Json | None, *answers: Exception | None) -> None:
        self.unit = unit
        self.writes = 0
        self._answers: Iterator[Exception | None] = iter(answers)
        self._last = answers[-1] if answers else None

    async def look(self) -> Json:
        if self.unit is None:
            raise not_found("gpuunit_not_found", "there is no unit 'u'")
        return self.unit

    async def write(self, seen: Json) -> Json:
        self.writes += 1
        if (answer := next(self._answers, self._last)) is None:
            return {**seen, "changed": True}
        if isinstance(answer, NotFoundError):
            self.unit = None
        raise answer


async def change(server: Server, if_match: str | None = None) -> Json:
    return await change_as_seen("unit", "u", if_match, server.look, server.write)


CONFLICT = ConflictError(409, "Conflict", "somebody was faster")


async def test_a_write_of_somebody_else_is_no_reason_to_refuse() -> None:
    server = Server(make_unit("u"), CONFLICT, CONFLICT, None)

    assert (await change(server))["changed"]
    assert server.writes == 3


async def test_whoever_always_comes_second_is_told_to_try_again() -> None:
    server = Server(make_unit("u"), CONFLICT)

    with pytest.raises(ApiError, match="the unit 'u' is being changed by somebody else; try again") as caught:
        await change(server)

    assert (caught.value.status, caught.value.code) == (503, "operation_in_progress")
    assert server.writes == TRIES


async def test_what_goes_meanwhile_is_not_there() -> None:
    server = Server(make_unit("u"), NotFoundError(404, "NotFound", "u"))

    with pytest.raises(ApiError) as caught:
        await change(server)

    assert (caught.value.status, caught.value.code) == (404, "gpuunit_not_found")
    assert server.writes == 1


async def test_what_is_another_one_than_the_caller_saw_is_not_written() -> None:
    server = Server(make_unit("u"))

    with pytest.raises(ApiError, match="the unit 'u' has changed since; its ETag is") as caught:
        await change(server, '"another.1"')

    assert (caught.value.status, server.writes) == (412, 0)


async def test_what_is_on_its_way_out_is_not_written() -> None:
    unit = make_unit("u")
    unit["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    server = Server(unit)

    with pytest.raises(ApiError, match="the unit 'u' is being deleted") as caught:
        await change(server)

    assert (caught.value.status, server.writes) == (409, 0)
