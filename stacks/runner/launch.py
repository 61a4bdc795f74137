"""Becomes the Pulumi CLI: started as a program of its own, because code between fork and exec is unsafe among threads.

Arguments: the pid of the process that asks, the command, its arguments. Imports nothing of ours: it runs isolated.
"""

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

NICENESS = 10
"""Recording is never urgent: requests and reconciling come first on a busy machine."""

PID_FILES = "GPU_PLATFORM_PID_FILES"
"""Names the directory for this process's pid file; not passed on to the CLI."""


def main(parent: str, *command: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        # The parent was gone before the request: nobody will send the signal any more.
        sys.exit(1)
    if directory := os.environ.pop(PID_FILES, None):
        hold_pid_file(directory)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.nice(NICENESS)
    os.execvp(command[0], command)  # noqa: S606 -- becoming another program is the purpose


def hold_pid_file(directory: str) -> None:
    """Hold the kernel's lock on a file with this process's host and pid in its name until the process ends, also as
    another program. Waits for one that has the same name and works on the same stack: of two containers with one host
    name, which share the directory.

    Without the file, on a full disk for example, pid and start time have to do as proof."""
    try:
        # Not with pathlib: to import it would take longer than all the rest.
        os.makedirs(directory, exist_ok=True)  # noqa: PTH103
        path = f"{directory}/{os.uname().nodename}.{os.getpid()}"
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.set_inheritable(handle, True)
    except OSError:
        return


if __name__ == "__main__":
    main(*sys.argv[1:])
