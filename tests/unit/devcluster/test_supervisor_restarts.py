"""When a server that cannot write is restarted."""

import pytest

from gpu_platform.devcluster.supervisor import ROOM_BYTES, plan_restart

FULL = "JetStream stream '$G > KV_invocations' write error: write 1.blk: no space left on device"
OFF = "JetStream not enabled"
RECOVERING = "JetStream stream '$G > KV_invocations' could not be found"


@pytest.mark.parametrize(
    ("health", "free_bytes", "is_restarted"),
    [
        (None, ROOM_BYTES, False),
        (RECOVERING, ROOM_BYTES, False),
        (FULL, 0, False),
        (FULL, ROOM_BYTES - 1, False),
        (FULL, ROOM_BYTES, True),
        (OFF, 0, False),
        (OFF, ROOM_BYTES, True),
    ],
)
def test_a_write_error_is_mended_by_a_restart_once_there_is_room(
    health: str | None, free_bytes: int, *, is_restarted: bool
) -> None:
    assert plan_restart(health, free_bytes) == (health if is_restarted else None)
