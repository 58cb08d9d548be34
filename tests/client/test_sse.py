"""The reading of event streams: known streams, and any stream cut anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from itertools import pairwise
from typing import NamedTuple

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logqueue.client.sse import RETRY_MS_MAX, async_events_of, events_of, retry_ms_of


class Told(NamedTuple):
    """One event that has data."""

    event: str
    data: str
    id: str


class Parts(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a reply, in parts."""

    def __init__(self, parts: tuple[bytes, ...]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part


def reply(*parts: bytes) -> httpx.Response:
    """A reply whose charset is a lie."""
    headers = {"content-type": "text/event-stream; charset=latin-1"}
    return httpx.Response(200, headers=headers, stream=Parts(parts))


def read(*parts: bytes) -> list[Told]:
    """The events with data, as both clients read them."""
    events = [Told(one.event, one.data, one.id) for one in events_of(reply(*parts)) if one.data]

    async def awaited() -> list[Told]:
        async with aclosing(async_events_of(reply(*parts))) as found:
            return [Told(one.event, one.data, one.id) async for one in found if one.data]

    awaiting = awaited()
    with asyncio.Runner() as runner:
        assert runner.run(awaiting) == events
    return events


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [Told("message", "a", "")]),
        (b"id: 7\nevent: job\ndata: {}\n\n", [Told("job", "{}", "7")]),
        (b"data:a\n\n", [Told("message", "a", "")]),
        (b"data:  a\n\n", [Told("message", " a", "")]),
        (b"data: a\ndata: b\n\n", [Told("message", "a\nb", "")]),
        (b"data\n\n", []),
        (
            b"data: a\r\n\r\ndata: b\r\rdata: c\n\n",
            [Told("message", c, "") for c in "abc"],
        ),
        (b": hb\n\nretry: 2000\n\nevent: x\n\n", []),
        (b"event: x\n\ndata: a\n\n", [Told("message", "a", "")]),
        (
            b"id: 1\ndata: a\n\ndata: b\n\n",
            [Told("message", "a", "1"), Told("message", "b", "1")],
        ),
        (b"id: 1\n\ndata: b\n\n", [Told("message", "b", "1")]),
        (b"id: 1\nid\ndata: a\n\n", [Told("message", "a", "")]),
        (b"id: 1\nid: 2\0\ndata: a\n\n", [Told("message", "a", "1")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Told("message", "a", "")]),
        (b"data: \xc3\xa4\xff\n\n", [Told("message", "ä\ufffd", "")]),
        (b"whatever: a\ndata: b\n\n", [Told("message", "b", "")]),
        (b"data: a:b: c\n\n", [Told("message", "a:b: c", "")]),
        (b"data: unfinished\n", []),
        (b"", []),
    ],
)
def test_known_streams(stream: bytes, events: list[Told]) -> None:
    assert read(stream) == events
    assert read(*[stream[at : at + 1] for at in range(len(stream))]) == events


@pytest.mark.parametrize(
    ("said", "retry_ms"),
    [(b"soon", 7), (b"-1", 7), (b"", 7), (b"1500", 1500), (b"9" * 30, RETRY_MS_MAX)],
)
def test_a_time_to_reconnect_after_is_taken_where_it_is_one(said: bytes, retry_ms: int) -> None:
    seen: int | None = 7
    for event in events_of(reply(b"retry: " + said + b"\n\ndata: a\n\n")):
        seen = retry_ms_of(event, seen)
    assert seen == retry_ms


def simple_read(stream: str) -> list[Told]:
    """The format's rules over the whole text at once."""
    events, event, data, last_id = [], "", list[str](), ""
    lines = stream.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for line in lines[:-1]:
        name, _, value = line.partition(":")
        value = value[1:] if value[:1] == " " else value
        if not line:
            if any(data) or len(data) > 1:
                events.append(Told(event or "message", "\n".join(data), last_id))
            event, data = "", []
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)
        elif name == "id" and "\0" not in value:
            last_id = value
    return events


FIELDS = ["data: ", "data:", "data", "event: ", "id: ", "retry: 5", ": hb"]
ENDS = ["\n", "\n\n", "\r\n", "\r"]
TEXTS = ["a", "{}", " ", ":", "\0", "ä€😀"]
pieces = st.sampled_from([*FIELDS, *ENDS, *TEXTS])
streams = st.lists(pieces, max_size=30).map("".join)


@given(streams, st.lists(st.integers(0, 80), max_size=8))
def test_any_stream_cut_anywhere(text: str, cuts: list[int]) -> None:
    stream = text.encode()
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    parts = [stream[a:b] for a, b in pairwise(edges)]
    assert read(*parts) == simple_read(text)


def test_a_long_line_in_many_parts_is_read_once() -> None:
    part = b"x" * 1024
    events = read(b"data: ", *[part] * 4096, b"\n\n")
    assert len(events) == 1 and len(events[0].data) == 4096 * 1024
