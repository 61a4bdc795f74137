"""Small files that are either old or new, never half."""

import os
import tempfile
from pathlib import Path


def write_file(path: Path, text: str) -> None:
    """Does nothing when the file says so already."""
    if path.exists() and path.read_text() == text:
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(name).replace(path)
