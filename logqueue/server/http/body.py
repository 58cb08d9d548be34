"""The body of one HTTP/1.1 request while it arrives: its framing undone, kept or thrown away.

Owns: where a body ends, how much of it is kept, refusing what is longer than allowed. Must not
know: connections, what a body says. One call does a bounded amount of work, however small the
chunks are.
"""

from __future__ import annotations

import re
from typing import Final, cast

from logqueue.errors import InvalidRequest, PayloadTooLarge
from logqueue.server.http.head import CHUNKED

CHUNKS_PER_STEP: Final = 1000
COPIED_BYTES_MAX: Final = 1 << 20
CHUNK_LINE_BYTES_MAX: Final = 4096
TRAILER_BYTES_MAX: Final = 16 << 10

_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER: Final = re.compile(rb"[^\x00-\x20:\x7f]+:[\t\x20-\x7e\x80-\xff]*")
_DATA, _DATA_END, _SIZE, _TRAILERS = range(4)


class IncomingBody:
    """One body.

    Attributes:
        is_whole: All of it has come.
        received: Bytes of it that have come, framing excluded.
    """

    __slots__ = ("_bytes_max", "_content", "_left", "_line", "_state", "_trailers", "is_whole",
                 "received")  # fmt: skip

    def __init__(self, framing: int, bytes_max: int, *, is_kept: bool) -> None:
        """A body of which nothing has come.

        Args:
            framing: Its length, or `CHUNKED`.
            bytes_max: The longest body taken.
            is_kept: False throws the content away.
        """
        self.is_whole = False
        self.received = 0
        self._bytes_max = bytes_max
        self._content = bytearray() if is_kept else None
        self._line = b""
        self._trailers = 0
        self._state = _SIZE if framing == CHUNKED else _DATA
        # A body of a declared length is one piece with nothing behind it.
        self._left = 0 if framing == CHUNKED else framing
        if framing != CHUNKED:
            self._trailers = -1

    @property
    def is_kept(self) -> bool:
        """Whether the content is kept."""
        return self._content is not None

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return len(self._line) + (0 if self._content is None else len(self._content))

    def take(self) -> bytes:
        """The whole content; it is kept here no longer."""
        content, self._content = self._content, None
        if content is None:
            return b""
        # A copy of a large one would take longer than a step may; it is only read from here on.
        return bytes(content) if len(content) <= COPIED_BYTES_MAX else cast(bytes, content)

    def feed(self, data: bytes) -> bytes:
        """Take bytes.

        Returns:
            Those not taken: behind the end of the body, or, while it is not whole, to be given
            again in a later step.

        Raises:
            InvalidRequest: Malformed framing.
            PayloadTooLarge: The body is longer than allowed.
        """
        at = 0
        for _ in range(CHUNKS_PER_STEP):
            if at == len(data) or self.is_whole:
                break
            if self._state == _DATA:
                at = self._take_data(data, at)
            elif self._state == _DATA_END:
                at = self._take_data_end(data, at)
            else:
                at = self._take_line(data, at)
        return data[at:]

    def _take_data(self, data: bytes, at: int) -> int:
        stop = min(at + self._left, len(data))
        self._left -= stop - at
        self.received += stop - at
        if self.received > self._bytes_max:
            raise PayloadTooLarge(f"the body is over the limit of {self._bytes_max} bytes")
        if self._content is not None:
            self._content += data if stop - at == len(data) else data[at:stop]
        if not self._left:
            if self._trailers < 0:
                self.is_whole = True
            else:
                self._state = _DATA_END
        return stop

    def _take_data_end(self, data: bytes, at: int) -> int:
        end = self._line + data[at : at + 2 - len(self._line)]
        at += len(end) - len(self._line)
        if not b"\r\n".startswith(end):
            raise InvalidRequest("malformed chunk: it must end with CRLF")
        self._line = end if len(end) < 2 else b""
        if len(end) == 2:
            self._state = _SIZE
        return at

    def _take_line(self, data: bytes, at: int) -> int:
        """Take a line of the framing: the size of a chunk, or a trailer."""
        before = len(self._line)
        text = self._line + data[at : at + CHUNK_LINE_BYTES_MAX + 2 - before]
        end = text.find(b"\r\n", max(before - 1, 0))
        if end < 0:
            if len(text) > CHUNK_LINE_BYTES_MAX or b"\n" in text:
                raise InvalidRequest("malformed chunk: its size line has no end")
            self._line = text
            return at + len(text) - before
        self._line = b""
        if self._state == _SIZE:
            self._begin_chunk(text[:end])
        else:
            self._take_trailer(text[:end])
        return at + end + 2 - before

    def _begin_chunk(self, line: bytes) -> None:
        found = _CHUNK_LINE.fullmatch(line)
        if found is None:
            raise InvalidRequest("malformed chunk: its size must be up to 16 hex digits")
        size = int(found[1], 16)
        if self.received + size > self._bytes_max:
            raise PayloadTooLarge(f"the body is over the limit of {self._bytes_max} bytes")
        self._left = size
        self._state = _DATA if size else _TRAILERS

    def _take_trailer(self, line: bytes) -> None:
        """Pass over a trailer; no route uses one."""
        if not line:
            self.is_whole = True
            return
        self._trailers += len(line)
        if self._trailers > TRAILER_BYTES_MAX:
            raise InvalidRequest(f"the trailers are over {TRAILER_BYTES_MAX} bytes")
        if _TRAILER.fullmatch(line) is None:
            raise InvalidRequest("malformed trailer: send name: value lines behind the last chunk")
