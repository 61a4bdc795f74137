"""Shows the files below one directory, and nothing else: `python -m gpu_platform.file_browser ADDRESS PORT DIRECTORY`.

It is what a storage's accessor runs. Tenants write what lies there, so nothing of it is believed:

| there                                   | is answered                                                     |
| --------------------------------------- | --------------------------------------------------------------- |
| a file                                  | 200, its bytes; a browser runs nothing of it (`sandbox`)        |
| a directory                             | 200, a list of it, even where an `index.html` lies there        |
| a directory with very many names        | 200, the first of them, and how many more there are             |
| a directory, asked for without a slash  | 301 to itself, relative: who passes the call on has a prefix    |
| a link to something below the directory | as that                                                         |
| a link that leads elsewhere, or nowhere | 403, 404                                                        |
| a pipe, a socket, a device              | 403; it is not waited for                                       |
| nothing, or what cannot be read         | 404                                                             |

It imports nothing of ours, so that any image with Python can run it.
"""

import heapq
import html
import itertools
import mimetypes
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

CHUNK = 1 << 20
STALLED_SECONDS = 600
"""A connection on which nothing moves for so long is given up. As long as the API waits for one."""

LISTED_NAMES = 5_000
"""Of one directory. More take a browser seconds to show, and each may be a link that has to be looked at."""


class RefusedError(Exception):
    """It is there, and is not to be shown."""


class Content(NamedTuple):
    """Of a directory."""

    first: list[os.DirEntry[str]]
    """By name."""

    left_out: int


def parse_target(target: str) -> tuple[str, ...] | None:
    """The names on the way to a file; None for a way that no file has.

    | target               | names            |
    | -------------------- | ---------------- |
    | `/`, `/?q`           | none at all      |
    | `/a/b%20c/`          | `a`, `b c`       |
    | `/a/../b`, `/%2e%2e` | no way           |
    | `/a%00`              | no way           |
    """
    path = os.fsdecode(unquote_to_bytes(target.partition("?")[0].partition("#")[0]))
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    return None if ".." in names or "\0" in path else names


def resolve_below(root: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    """The way without its links, which may lead anywhere below `root`, a path without links itself."""
    try:
        real = root.joinpath(*names).resolve()
    except RuntimeError:
        raise RefusedError("is a link that leads to itself") from None
    if not real.is_relative_to(root):
        raise RefusedError("is a link that leads out of the storage")
    return real.relative_to(root).parts


def open_below(root: Path, names: tuple[str, ...]) -> int:
    """A descriptor of the file or directory. A link on the way is an OSError: one that was put there since the way was
    resolved is not followed. So we go name by name."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    opened = os.open(root, flags)
    try:
        for name in names:
            above, opened = opened, os.open(name, flags, dir_fd=opened)
            os.close(above)
        if not _is_shown(os.fstat(opened).st_mode):
            raise RefusedError("is neither a file nor a directory")
    except BaseException:
        os.close(opened)
        raise
    return opened


def read_content(opened: int) -> Content:
    """What lies in a directory: so much of it as is listed, however much there is."""
    count = itertools.count()
    with os.scandir(opened) as found:
        counted = (entry for entry, _ in zip(found, count, strict=False))
        first = heapq.nsmallest(LISTED_NAMES, counted, key=lambda entry: entry.name)
    return Content(first, next(count) - len(first))


def build_list(root: Path, names: tuple[str, ...], content: Content) -> bytes:
    title = html.escape("/" + "".join(f"{name}/" for name in names))
    rows = "".join(f"<li>{row}</li>\n" for row in _rows(root, names, content.first))
    more = f"<p>and {content.left_out} more, which can be asked for by name</p>\n" if content.left_out else ""
    page = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n'
        f"<body>\n<h1>{title}</h1>\n<ul>\n{rows}</ul>\n{more}</body>\n</html>\n"
    )
    return page.encode("utf-8", "replace")


def _is_shown(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _rows(root: Path, names: tuple[str, ...], entries: Iterable[os.DirEntry[str]]) -> Iterator[str]:
    for entry in entries:
        shown = html.escape(entry.name)
        kind = _kind_of(root, names, entry)
        if not _is_shown(kind):
            yield shown
            continue
        slash = "/" if stat.S_ISDIR(kind) else ""
        # With `./`, so that no name is taken for a scheme.
        yield f'<a href="./{quote(os.fsencode(entry.name))}{slash}">{shown}{slash}</a>'


def _kind_of(root: Path, names: tuple[str, ...], entry: os.DirEntry[str]) -> int:
    """As in a mode; 0 for what is not shown. A link alone costs a look of its own: there may be thousands of files."""
    try:
        if entry.is_symlink():
            return root.joinpath(*resolve_below(root, (*names, entry.name))).lstat().st_mode
        if entry.is_dir(follow_symlinks=False):
            return stat.S_IFDIR
        return stat.S_IFREG if entry.is_file(follow_symlinks=False) else 0
    except (OSError, RefusedError):
        return 0


class FileBrowser(ThreadingHTTPServer):
    def __init__(self, address: str, port: int, directory: Path) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.root = directory.resolve()
        super().__init__((address, port), _Request)


class _Request(BaseHTTPRequestHandler):
    server: FileBrowser
    timeout = STALLED_SECONDS

    def end_headers(self) -> None:
        # What lies here is the tenant's, and the origin is the platform's.
        self.send_header("Content-Security-Policy", "sandbox")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """The API has a line for every call, and a probe needs none."""

    def do_GET(self) -> None:
        names = parse_target(self.path)
        if names is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            opened = open_below(self.server.root, resolve_below(self.server.root, names))
        except RefusedError as error:
            self.send_error(HTTPStatus.FORBIDDEN, explain=f"This {error}.")
            return
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            self._show(opened, names)
        finally:
            os.close(opened)

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def _show(self, opened: int, names: tuple[str, ...]) -> None:
        path = self.path.partition("?")[0].partition("#")[0]
        seen = os.fstat(opened)
        if not stat.S_ISDIR(seen.st_mode):
            if path.endswith("/"):
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            self._begin(_type_of(names), seen.st_size, self.date_time_string(int(seen.st_mtime)))
            self._send_file(opened, seen.st_size)
        elif not path.endswith("/"):
            self.send_response(HTTPStatus.MOVED_PERMANENTLY)
            self.send_header("Location", f"./{path.rpartition('/')[2]}/")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            page = build_list(self.server.root, names, read_content(opened))
            self._begin("text/html; charset=utf-8", len(page))
            if self.command != "HEAD":
                self.wfile.write(page)

    def _begin(self, content_type: str, length: int, changed: str | None = None) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(length))
        if changed is not None:
            self.send_header("Last-Modified", changed)
        self.end_headers()

    def _send_file(self, opened: int, length: int) -> None:
        """As long as it was: it may grow meanwhile. One that shrinks breaks off."""
        left = 0 if self.command == "HEAD" else length
        while left > 0 and (data := os.read(opened, min(CHUNK, left))):
            self.wfile.write(data)
            left -= len(data)


def _type_of(names: tuple[str, ...]) -> str:
    guessed, encoding = mimetypes.guess_type(names[-1])
    return guessed if guessed and not encoding else "application/octet-stream"


def main(address: str, port: str, directory: str) -> None:
    # The first process of a container is not ended by a signal that it has no word about.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with FileBrowser(address, int(port), Path(directory)) as browser:
        browser.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
