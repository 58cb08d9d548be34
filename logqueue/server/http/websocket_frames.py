"""The frames of one WebSocket client while they come: taken apart, unmasked, put together.

Owns: the grammar of frames (RFC 6455) as a server sees them, where a message ends, refusing what is
malformed or too long. Must not know: connections, what messages say, what ends a connection. One
call does a bounded amount of work, however small the frames or large the messages are.
"""

from __future__ import annotations

import codecs
from typing import Final, NamedTuple, cast

from websockets.frames import CloseCode

try:
    from websockets.speedups import apply_mask
except ImportError:  # a build without its C part
    from websockets.utils import apply_mask

FRAMES_PER_STEP: Final = 256
MESSAGES_PER_STEP: Final = 32
COPIED_BYTES_MAX: Final = 1 << 20

_CONT, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_OPCODES: Final = frozenset((_CONT, _TEXT, _BINARY, _CLOSE, _PING, _PONG))
_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class WebSocketMessage(NamedTuple):
    """A whole message: its text, which is UTF-8; None for a binary one."""

    text: bytes | None


class ControlFrame(NamedTuple):
    """A whole ping, pong or close, as it came."""

    data: bytes


class Malformed(NamedTuple):
    """Nothing behind this can be understood."""

    code: CloseCode
    reason: str


Event = WebSocketMessage | ControlFrame | Malformed


class IncomingFrames:
    """What one client sends after the upgrade.

    Attributes:
        is_over: A close or malformed frame has come; whatever follows is thrown away.
    """

    __slots__ = (
        "_bytes_max", "_decoder", "_events", "_head", "_is_inside", "_is_kept", "_is_last",
        "_is_text", "_left", "_mask", "_message", "_messages", "_size", "is_over",
    )  # fmt: skip

    def __init__(self, bytes_max: int) -> None:
        """Nothing has come.

        Args:
            bytes_max: The longest message that is taken, in bytes.
        """
        self.is_over = False
        self._bytes_max = bytes_max
        self._is_kept = True
        self._head = b""
        self._mask = b""
        self._left = 0
        self._is_last = self._is_text = self._is_inside = False
        self._message = bytearray()
        self._size = 0
        self._decoder: codecs.IncrementalDecoder | None = None
        self._events: list[Event] = []
        self._messages = 0

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return len(self._head) + len(self._message)

    @property
    def is_between(self) -> bool:
        """Whether there is no incomplete frame or message."""
        return not (self._is_inside or self._head)

    def discard(self) -> None:
        """Drop further messages; a close frame is still found."""
        self._is_kept = False
        self._decoder = None
        self._message = bytearray()

    def feed(self, data: bytes) -> tuple[list[Event], bytes]:
        """Take bytes.

        Returns:
            What became whole, in order, and the bytes to be given again in a later step.
        """
        events = self._events = []
        self._messages = 0
        if self._head:
            data = self._head + data
            self._head = b""
        at = 0
        for _ in range(FRAMES_PER_STEP):
            if self.is_over:
                return events, b""
            if at == len(data) or self._messages >= MESSAGES_PER_STEP:
                break
            before = at
            at = self._take_payload(data, at) if self._left else self._take_head(data, at)
            if at == before and not self.is_over:
                self._head = data[at:]
                return events, b""
        return events, data[at:]

    def _take_head(self, data: bytes, at: int) -> int:
        """Take the head of a frame, or a whole control frame.

        Returns:
            The place behind it; `at` when it is not whole yet, or malformed.
        """
        if len(data) - at < 2:
            return at
        first, second = data[at], data[at + 1]
        opcode, length = first & 15, second & 127
        problem = self._problem(opcode, first, second)
        if problem is not None:
            self._refuse(CloseCode.PROTOCOL_ERROR, problem)
            return at
        if opcode >= _CLOSE:
            stop = at + 6 + length
            if stop > len(data):
                return at
            self._events.append(ControlFrame(data[at:stop]))
            self.is_over = opcode == _CLOSE
            return stop
        stop = at + 6 + (0 if length < 126 else 2 if length == 126 else 8)
        if stop > len(data):
            return at
        if length >= 126:
            length = int.from_bytes(data[at + 2 : stop - 4])
        if self._size + length > self._bytes_max:
            reason = f"the message is over the limit of {self._bytes_max} bytes"
            self._refuse(CloseCode.MESSAGE_TOO_BIG, reason)
            return at
        if opcode != _CONT:
            self._is_text = opcode == _TEXT
        self._is_inside = True
        self._is_last = first >= 128
        self._size += length
        self._left = length
        self._mask = data[stop - 4 : stop]
        if not length:
            self._end_frame(b"")
        return stop

    def _problem(self, opcode: int, first: int, second: int) -> str | None:
        if first & 0x70:
            return "reserved bits must be 0"
        if opcode not in _OPCODES:
            return "invalid opcode"
        if not second & 128:
            return "incorrect masking"
        if opcode >= _CLOSE:
            if second & 127 > 125:
                return "control frame too long"
            return None if first & 128 else "fragmented control frame"
        if opcode == _CONT and not self._is_inside:
            return "unexpected continuation frame"
        if opcode != _CONT and self._is_inside:
            return "expected a continuation frame"
        return None

    def _take_payload(self, data: bytes, at: int) -> int:
        stop = min(at + self._left, len(data))
        taken = stop - at
        self._left -= taken
        piece = b""
        if self._is_kept:
            piece = apply_mask(data[at:stop], self._mask)
            if self._left:
                turn = taken % 4
                self._mask = self._mask[turn:] + self._mask[:turn]
            if self._is_text and not self._is_utf8(piece):
                self._refuse(CloseCode.INVALID_DATA, "text messages are UTF-8")
        if not self._is_kept:
            piece = b""
        if self._left:
            self._message += piece
        else:
            self._end_frame(piece)
        return stop

    def _is_utf8(self, piece: bytes, *, is_last: bool = False) -> bool:
        if self._decoder is None:
            if piece.isascii():
                return True
            self._decoder = _utf8_decoder()
        try:
            self._decoder.decode(piece, is_last)
        except UnicodeDecodeError:
            return False
        return True

    def _end_frame(self, piece: bytes) -> None:
        """A frame is whole; `piece` is what of its message is not kept yet."""
        if not self._is_last:
            self._message += piece
            return
        if self._message:
            self._message += piece
            whole, self._message = self._message, bytearray()
            # See IncomingBody.take.
            piece = bytes(whole) if len(whole) <= COPIED_BYTES_MAX else cast(bytes, whole)
        self._is_inside = False
        self._size = 0
        if self._is_text and self._decoder is not None:
            if not self._is_utf8(b"", is_last=True):
                self._refuse(CloseCode.INVALID_DATA, "text messages are UTF-8")
                return
            self._decoder = None
        self._messages += 1
        self._events.append(WebSocketMessage(piece if self._is_text else None))

    def _refuse(self, code: CloseCode, reason: str) -> None:
        self._events.append(Malformed(code, reason))
        self.is_over = code is not CloseCode.INVALID_DATA
        self.discard()
