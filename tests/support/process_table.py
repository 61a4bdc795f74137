"""What the kernel says of a process."""

from pathlib import Path


def is_running(pid: int) -> bool:
    """A zombie has ended, and only waits to be collected. One that is collected between the opening of the file and
    the reading of it is gone as well."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
