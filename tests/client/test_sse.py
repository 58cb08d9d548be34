"""The reader of event streams: known streams, and any stream cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logqueue.client.sse import ServerSentEvent, SseParser


def read(*parts: bytes) -> list[ServerSentEvent]:
    parser = SseParser()
    return [event for part in parts for event in parser.feed(part)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [ServerSentEvent("message", "a", "")]),
        (b"id: 7\nevent: job\ndata: {}\n\n", [ServerSentEvent("job", "{}", "7")]),
        (b"data:a\n\n", [ServerSentEvent("message", "a", "")]),
        (b"data:  a\n\n", [ServerSentEvent("message", " a", "")]),
        (b"data: a\ndata: b\n\n", [ServerSentEvent("message", "a\nb", "")]),
        (b"data\n\n", [ServerSentEvent("message", "", "")]),
        (
            b"data: a\r\n\r\ndata: b\r\rdata: c\n\n",
            [ServerSentEvent("message", c, "") for c in "abc"],
        ),
        (b": hb\n\nretry: 2000\n\nevent: x\n\n", []),
        (b"event: x\n\ndata: a\n\n", [ServerSentEvent("message", "a", "")]),
        (
            b"id: 1\ndata: a\n\ndata: b\n\n",
            [ServerSentEvent("message", "a", "1"), ServerSentEvent("message", "b", "1")],
        ),
        (b"id: 1\n\ndata: b\n\n", [ServerSentEvent("message", "b", "1")]),
        (b"id: 1\nid\ndata: a\n\n", [ServerSentEvent("message", "a", "")]),
        (b"id: 1\nid: 2\0\ndata: a\n\n", [ServerSentEvent("message", "a", "1")]),
        (b"\xef\xbb\xbfdata: a\n\n", [ServerSentEvent("message", "a", "")]),
        (b"data: \xc3\xa4\xff\n\n", [ServerSentEvent("message", "ä\ufffd", "")]),
        (b"whatever: a\ndata: b\n\n", [ServerSentEvent("message", "b", "")]),
        (b"data: a:b: c\n\n", [ServerSentEvent("message", "a:b: c", "")]),
        (b"data: unfinished\n", []),
        (b"", []),
    ],
)
def test_known_streams(stream: bytes, events: list[ServerSentEvent]) -> None:
    assert read(stream) == events
    assert read(*[stream[at : at + 1] for at in range(len(stream))]) == events


def test_retry_takes_digits_only() -> None:
    parser = SseParser()
    parser.feed(b"retry: soon\nretry: -1\nretry: \n")
    assert parser.retry_ms is None
    parser.feed(b"retry: 1500\n\n")
    assert parser.retry_ms == 1500


def simple_read(stream: str) -> list[ServerSentEvent]:
    """The format's rules over the whole text at once."""
    events, event, data, last_id = [], "", list[str](), ""
    lines = stream.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for line in lines[:-1]:
        name, _, value = line.partition(":")
        value = value[1:] if value[:1] == " " else value
        if not line:
            if data:
                events.append(ServerSentEvent(event or "message", "\n".join(data), last_id))
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
    # A carriage return at the very end may still become half of a line end.
    whole = text if not text.endswith("\r") else text[:-1]
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    parts = [stream[a:b] for a, b in pairwise(edges)]
    assert read(*parts) == simple_read(whole)


def test_a_long_line_in_many_parts_is_read_once() -> None:
    part = b"x" * 1024
    events = read(b"data: ", *[part] * 4096, b"\n\n")
    assert len(events) == 1 and len(events[0].data) == 4096 * 1024
