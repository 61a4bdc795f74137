"""HTTP/1.1 framing, stricter than h11's: what two servers could read in two ways is refused.

| in a request's head or trailers                  | h11 alone            | here |
| ------------------------------------------------ | -------------------- | ---- |
| a line that ends with LF, not CRLF               | accepted             | 400  |
| a line that continues the one before (obs-fold)  | joined               | 400  |
| more than 16 KiB                                 | accepted in one read | 400  |
| both Content-Length and Transfer-Encoding        | the latter counts    | 400  |
| Transfer-Encoding in HTTP/1.0                    | accepted             | 400  |
| a body in more chunks than `may_have_chunks`     | accepted             | 400  |
"""

import time

import h11
from h11._receivebuffer import ReceiveBuffer

HEAD_LIMIT = 16_384
FREE_CHUNKS = 512
BYTES_PER_CHUNK = 128
CHUNKS_PER_SECOND = 100
"""Parsing a chunk takes the event loop about 10 µs, however few bytes it has. Live uploads to units send small ones."""

FOLDS = (b" ", b"\t")
NOT_HTTP = "the request is not valid HTTP/1.1"


def find_lines_fault(data: bytes | bytearray) -> str | None:
    """Returns what is wrong with a head or with trailers, of which this has arrived so far; a body may follow.

    It runs once for each read from the socket, so that it uses the methods of bytes: with a regular expression a
    head in single bytes costs seconds.
    """
    blank_line = data.find(b"\r\n\r\n")
    end = 2 if data.startswith(b"\r\n") else blank_line + 4 if blank_line >= 0 else len(data)
    if end > HEAD_LIMIT:
        return f"the head has more than {HEAD_LIMIT} bytes; send fewer or shorter headers"
    lines = data[:end]
    if lines.count(b"\n") != lines.count(b"\r\n"):
        return "a line of the head ends with LF alone; end every line with CRLF"
    if lines.startswith(FOLDS) or any(b"\n" + fold in lines for fold in FOLDS):
        return "a header is folded over two lines; send it on one line"
    return None


def find_body_fault(request: h11.Request) -> str | None:
    """Returns why servers could disagree on where this request's body ends."""
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" not in names:
        return None
    if b"content-length" in names:
        return "the request has both Content-Length and Transfer-Encoding; send one of them"
    if request.http_version < b"1.1":
        return "Transfer-Encoding needs HTTP/1.1; send Content-Length, or speak HTTP/1.1"
    return None


def may_have_chunks(chunks: int, size: int, seconds: float) -> bool:
    """Whether a body of so many bytes may have so many chunks, so many seconds after its head.

    | chunks | bytes | seconds | acceptable |
    | ------ | ----- | ------- | ---------- |
    | 512    | 512   | 0       | yes        |
    | 517    | 513   | 0       | no         |
    | 8192   | 1 MiB | 0       | yes        |
    | 3600   | 3600  | 3600    | yes        |
    """
    return chunks <= FREE_CHUNKS + size // BYTES_PER_CHUNK + seconds * CHUNKS_PER_SECOND


class StrictConnection(h11.Connection):
    """The server's side of a connection. `fault` says why the last request was refused."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEAD_LIMIT)
        # h11 takes heads and trailers, and nothing else, out of its buffer by lines.
        self._receive_buffer = _StrictBuffer()
        self.fault = NOT_HTTP
        self._chunks = 0
        self._size = 0
        self._began_at = 0.0

    @property
    def has_data(self) -> bool:
        """Whether bytes have arrived that are not parsed yet."""
        return bool(self._receive_buffer)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                self._chunks, self._size, self._began_at = 0, 0, time.monotonic()
                _refuse(find_body_fault(event))
            elif isinstance(event, h11.Data):
                _refuse(self._count(event))
        except _FaultError as error:
            self.fault = str(error)
            raise h11.RemoteProtocolError(self.fault) from None
        return event

    def _count(self, data: h11.Data) -> str | None:
        self._size += len(data.data)
        self._chunks += data.chunk_end
        if may_have_chunks(self._chunks, self._size, time.monotonic() - self._began_at):
            return None
        return f"the body has {self._chunks} chunks for {self._size} bytes; send larger chunks"


class _FaultError(Exception):
    """A request that this module refuses."""


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise _FaultError(fault)


class _StrictBuffer(ReceiveBuffer):
    def maybe_extract_lines(self) -> list[bytearray] | None:
        _refuse(find_lines_fault(self._data))
        return super().maybe_extract_lines()
