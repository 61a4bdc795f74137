"""Becomes the Pulumi CLI: started as a program of its own, because code between fork and exec is unsafe among threads.

Arguments: the pid of the process that asks, the command, its arguments.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

NICENESS = 10
"""Recording is never urgent: requests and reconciling come first on a busy machine."""


def main(parent: str, *command: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        # The parent was gone before the request: nobody will send the signal any more.
        sys.exit(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.nice(NICENESS)
    os.execvp(command[0], command)  # noqa: S606 -- becoming another program is the purpose


if __name__ == "__main__":
    main(*sys.argv[1:])
