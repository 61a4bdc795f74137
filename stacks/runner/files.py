"""Small files that are either old or new, never half."""

import os
import tempfile
from pathlib import Path


def write_file(path: Path, text: str) -> None:
    """Does nothing when the file says so already."""
    if not path.exists() or path.read_text() != text:
        write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(name).replace(path)
