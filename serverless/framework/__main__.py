"""`python -m serverless.framework MODULE:FUNCTION`: serves a handler until it is told to end."""

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from serverless.framework.calls import DEFAULT_SOCKET, SOCKET_VARIABLE
from serverless.framework.functions import LoadError, load_function
from serverless.framework.server import served

MISUSED = 2


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="serverless.framework", description="Serves a function to its sidecar.")
    parser.add_argument("place", metavar="MODULE:FUNCTION")
    socket = Path(os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET)
    parser.add_argument("--socket", type=Path, default=socket, help=f"by default as ${SOCKET_VARIABLE} says")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    ending = threading.Event()

    def end(number: int, _: object) -> None:
        # The second time it is meant: nothing is waited for any more.
        signal.signal(number, signal.SIG_DFL)
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        with served(load_function(chosen.place), chosen.socket) as calls:
            ending.wait()
            # The sidecar has finished them by now. Whoever sends a signal by hand has them finished too.
            calls.drain()
    except LoadError as error:
        sys.stderr.write(f"error: {error}\n")
        return MISUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
