"""`python -m serverless.framework MODULE:FUNCTION`: serves a handler until it is told to end."""

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

from serverless.framework.calls import DEFAULT_SOCKET
from serverless.framework.functions import LoadError, load_function
from serverless.framework.server import served

MISUSED = 2


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="serverless.framework", description="Serves a function to its sidecar.")
    parser.add_argument("place", metavar="MODULE:FUNCTION")
    parser.add_argument("--socket", type=Path, default=DEFAULT_SOCKET)
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    try:
        with served(load_function(chosen.place), chosen.socket):
            ending.wait()
    except LoadError as error:
        sys.stderr.write(f"error: {error}\n")
        return MISUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
