"""What becomes of a program's event loop, which the SDK runs in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable

from stacks.runner.programs import ProgramLoop

Loop = asyncio.AbstractEventLoop


class SdkThread:
    """Runs a program in its loop, and then does with the loop what the SDK would do."""

    def __init__(self, then: Callable[[Loop], None]) -> None:
        self.loop = asyncio.new_event_loop()
        self.program: ProgramLoop
        self._then = then
        self._is_made = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "SdkThread":
        self._thread.start()
        assert self._is_made.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        async def program() -> None:
            self.program = ProgramLoop()
            self._is_made.set()

        self.loop.run_until_complete(program())
        self._then(self.loop)


def test_a_loop_that_the_sdk_closes_is_left_to_it() -> None:
    with SdkThread(lambda loop: loop.close()) as sdk:
        sdk.program.close()
        assert sdk.loop.is_closed()


def test_a_loop_that_the_sdk_forgets_is_closed() -> None:
    with SdkThread(lambda _: None) as sdk:
        sdk.program.close()
        assert sdk.loop.is_closed()


def test_a_loop_that_is_run_again_to_cancel_tasks_and_then_forgotten_is_closed() -> None:
    def cancel_tasks(loop: Loop) -> None:
        for _ in range(3):
            loop.run_until_complete(asyncio.sleep(0.05))

    with SdkThread(cancel_tasks) as sdk:
        sdk.program.close()
        assert sdk.loop.is_closed()


def test_two_threads_may_close_a_loop_at_once() -> None:
    for _ in range(50):
        both = threading.Barrier(2)

        def close(loop: Loop, both: threading.Barrier = both) -> None:
            both.wait(10)
            loop.close()

        with SdkThread(close) as sdk:
            both.wait(10)
            sdk.loop.close()
            assert sdk.loop.is_closed()
