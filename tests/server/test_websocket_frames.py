"""Frames of WebSocket clients: what becomes whole, and how much of it in one step of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import CloseCode, Frame, Opcode

from logqueue.server.client_memory import ClientMemory, MemoryShare
from logqueue.server.http import websocket
from logqueue.server.http.websocket import WebSocket
from logqueue.server.http.websocket_frames import (
    FRAMES_PER_STEP,
    MESSAGES_PER_STEP,
    ControlFrame,
    Event,
    IncomingFrames,
    Malformed,
    WebSocketMessage,
)

BYTES_MAX = 1000


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


def events_of(pieces: list[bytes], bytes_max: int = BYTES_MAX) -> list[Event]:
    incoming = IncomingFrames(bytes_max)
    events: list[Event] = []
    for piece in pieces:
        rest = piece
        while rest:
            found, rest = incoming.feed(rest)
            events += found
    return events


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[begin:end] for begin, end in pairwise(edges)]


@given(
    st.lists(st.tuples(st.text(max_size=300), st.lists(st.integers(0), max_size=3)), max_size=6),
    st.lists(st.integers(0), max_size=10),
)
def test_messages_come_whole_however_they_are_cut(
    messages: list[tuple[str, list[int]]], places: list[int]
) -> None:
    wire = bytearray()
    expected: list[Event] = []
    for text, fragments in messages:
        parts = cut(text.encode(), fragments) or [b""]
        for at, part in enumerate(parts):
            opcode = Opcode.CONT if at else Opcode.TEXT
            wire += frame(opcode, part, fin=at == len(parts) - 1)
            ping = frame(Opcode.PING, b"!")
            wire += ping
            expected.append(ControlFrame(ping))
        expected.insert(len(expected) - 1, WebSocketMessage(text.encode()))
    found = events_of(cut(bytes(wire), places), bytes_max=10_000)
    assert [e for e in found if isinstance(e, WebSocketMessage)] == [
        e for e in expected if isinstance(e, WebSocketMessage)
    ]
    pings = sum(isinstance(e, ControlFrame) for e in expected)
    assert sum(isinstance(e, ControlFrame) for e in found) == pings
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (frame(Opcode.CONT, b"x"), CloseCode.PROTOCOL_ERROR),
        (frame(Opcode.TEXT, b"x", fin=False) + frame(Opcode.TEXT), CloseCode.PROTOCOL_ERROR),
        (Frame(Opcode.TEXT, b"x").serialize(mask=False), CloseCode.PROTOCOL_ERROR),
        (b"\xc1\x80\0\0\0\0", CloseCode.PROTOCOL_ERROR),
        (b"\x83\x80\0\0\0\0", CloseCode.PROTOCOL_ERROR),
        (b"\x09\x80\0\0\0\0", CloseCode.PROTOCOL_ERROR),
        (b"\x89\xfe\0\x7e\0\0\0\0", CloseCode.PROTOCOL_ERROR),
        (b"\x81\xff" + b"\xff" * 8 + b"\0\0\0\0", CloseCode.MESSAGE_TOO_BIG),
        (frame(Opcode.TEXT, b"x" * (BYTES_MAX + 1)), CloseCode.MESSAGE_TOO_BIG),
        (
            frame(Opcode.TEXT, b"x" * BYTES_MAX, fin=False) + frame(Opcode.CONT, b"x"),
            CloseCode.MESSAGE_TOO_BIG,
        ),
        (frame(Opcode.TEXT, b"\xff"), CloseCode.INVALID_DATA),
        (frame(Opcode.TEXT, "ä".encode()[:1]), CloseCode.INVALID_DATA),
        (frame(Opcode.TEXT, "ä".encode()[:1], fin=False) + frame(Opcode.CONT),
         CloseCode.INVALID_DATA),
    ],
)  # fmt: skip
@pytest.mark.parametrize("one_by_one", [False, True])
def test_what_is_refused(wire: bytes, code: CloseCode, one_by_one: bool) -> None:
    pieces = [bytes([byte]) for byte in wire] if one_by_one else [wire]
    refusals = [e for e in events_of(pieces) if isinstance(e, Malformed)]
    assert [refusal.code for refusal in refusals] == [code]


def test_a_message_of_the_longest_length_is_taken() -> None:
    text = b"x" * BYTES_MAX
    assert events_of([frame(Opcode.TEXT, text)]) == [WebSocketMessage(text)]
    halves = frame(Opcode.TEXT, text[:1], fin=False) + frame(Opcode.CONT, text[1:])
    assert events_of([halves + halves]) == [WebSocketMessage(text)] * 2


def test_nothing_is_kept_behind_the_end() -> None:
    incoming = IncomingFrames(BYTES_MAX)
    incoming.discard()
    incoming.feed(frame(Opcode.TEXT, b"x" * 900, fin=False))
    assert incoming.held == 0
    found, _ = incoming.feed(frame(Opcode.CONT, b"\xff") + frame(Opcode.CLOSE))
    assert isinstance(found[-1], ControlFrame)
    assert incoming.feed(frame(Opcode.TEXT, b"x")) == ([], b"")


class Loop:
    """An event loop that is turned by hand."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def call_later(self, delay: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        return cast(asyncio.TimerHandle, _Timer())

    def time(self) -> float:
        return 0.0

    def turn(self) -> bool:
        due, self.due = self.due, []
        for callback in due:
            callback()
        return bool(due)


class _Timer:
    def cancel(self) -> None:
        pass


class Transport:
    """A connection that notes what is written, and whether it is read from."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_read = True

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class Listener:
    """Notes the messages of a socket."""

    def __init__(self) -> None:
        self.received: list[bytes | None] = []

    def message_received(self, text: bytes | None) -> None:
        self.received.append(text)

    def socket_drained(self) -> None:
        pass

    def socket_lost(self) -> None:
        pass


def connected() -> tuple[WebSocket, Transport, Loop, Listener]:
    loop, transport, listener = Loop(), Transport(), Listener()
    socket = WebSocket(
        cast(asyncio.Transport, transport),
        cast(asyncio.AbstractEventLoop, loop),
        BYTES_MAX,
        MemoryShare(ClientMemory(0, 0)),
        lambda: None,
    )
    socket.listener = listener
    return socket, transport, loop, listener


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.PONG, Opcode.CONT])
def test_a_packet_of_tiny_frames_is_taken_in_steps(opcode: Opcode) -> None:
    socket, transport, loop, _ = connected()
    ping = frame(Opcode.PING, b"last")
    many = 10 * FRAMES_PER_STEP
    tiny = frame(opcode, fin=opcode is not Opcode.CONT)
    socket.data_received(frame(Opcode.TEXT, b"{", fin=False) + tiny * many + ping)
    turns = 0
    before = len(transport.written)
    assert before <= FRAMES_PER_STEP
    while loop.turn():
        assert len(transport.written) - before <= FRAMES_PER_STEP
        before = len(transport.written)
        turns += 1
    assert 10 <= turns <= 11
    assert transport.written[-1].endswith(b"last")
    assert transport.is_read


def test_a_packet_of_messages_is_taken_in_steps_and_in_order() -> None:
    socket, transport, loop, listener = connected()
    texts = [b"%d" % number for number in range(10 * MESSAGES_PER_STEP)]
    socket.data_received(b"".join(frame(Opcode.TEXT, text) for text in texts))
    assert len(listener.received) == MESSAGES_PER_STEP
    assert not transport.is_read, "the client is not read from while bytes wait"
    # What still comes waits its turn.
    socket.data_received(frame(Opcode.TEXT, b"behind"))
    while loop.turn():
        pass
    assert listener.received == [*texts, b"behind"]
    assert transport.is_read


def test_what_has_come_waits_while_the_listener_does_not_read() -> None:
    socket, transport, loop, listener = connected()
    socket.data_received(frame(Opcode.TEXT, b"x") * (2 * MESSAGES_PER_STEP))
    socket.read(False)
    while loop.turn():
        pass
    assert len(listener.received) == MESSAGES_PER_STEP
    socket.read(True)
    while loop.turn():
        pass
    assert len(listener.received) == 2 * MESSAGES_PER_STEP
    assert transport.is_read


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 1 << 20])
def test_a_text_message_is_one_frame(size: int) -> None:
    text = b"x" * size
    assert websocket.frame(text) == Frame(Opcode.TEXT, text).serialize(mask=False)
