"""`python -m serverless.framework MODULE:FUNCTION`: serves a handler until it is told to end."""

import argparse
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from serverless.framework.calls import DEFAULT_SOCKET, SOCKET_VARIABLE
from serverless.framework.functions import LoadError, load_function
from serverless.framework.server import served

MISUSED = 2


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="serverless.framework", description="Serves a function to its sidecar.")
    parser.add_argument("place", metavar="MODULE:FUNCTION")
    path = Path(os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET)
    parser.add_argument("--socket", type=Path, default=path, help=f"by default as ${SOCKET_VARIABLE} says")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    is_told_to_end = _heed_signals()
    try:
        with served(load_function(chosen.place), chosen.socket) as calls:
            _wait_for_signals(is_told_to_end)
            # The sidecar has finished them by now. Whoever sends a signal by hand has them finished too.
            calls.drain()
    except LoadError as error:
        sys.stderr.write(f"error: {error}\n")
        return MISUSED
    return 0


def _heed_signals() -> Callable[[], bool]:
    """Whether one has come."""
    is_told = False

    def end(number: int, _: object) -> None:
        nonlocal is_told
        # The second time it is meant: nothing is waited for any more.
        signal.signal(number, signal.SIG_DFL)
        is_told = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return lambda: is_told


def _wait_for_signals(are_enough: Callable[[], bool]) -> None:
    """The kernel may hand a signal to any thread, and only the first one runs what Python has for it: who slept on a
    lock would sleep on. What is written here wakes it, whichever thread was chosen."""
    woken, waking = socket.socketpair()
    with woken, waking:
        waking.setblocking(False)
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        while not are_enough():
            woken.recv(1)
        signal.set_wakeup_fd(-1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
