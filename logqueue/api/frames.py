"""What is pushed to readers: records, losses and positions of topics, as events of a stream.

Owns: the members of each event, and how server-sent events and WebSocket messages carry them. Must
not know: sockets, cursors' owners, when something is sent.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from logqueue.core.reading import ReadPage, RemovedRange
from logqueue.errors import InvalidRequest
from logqueue.model.limits import U64_MAX

RETRY = b"retry: 2000\n\n"
HEARTBEAT = b": hb\n\n"

SHUTTING_DOWN = "server_shutting_down"

_encode = msgspec.json.Encoder().encode
_cursors = msgspec.json.Decoder(dict[str, int])


class StreamEvent(NamedTuple):
    """One thing to tell a reader of one topic.

    Attributes:
        kind: "record", "tombstone", "caught_up" or "topic_deleted".
        members: The members of its JSON object, without the braces.
        cursor: The reader's cursor after this frame.
    """

    kind: str
    members: bytes
    cursor: int


def record_event(topic: str, page: ReadPage, records: bytes, from_seq: int) -> StreamEvent:
    """The records of a page, encoded and separated by commas; `from_seq` is the cursor before."""
    members = b'"topic":"%b","records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d' % (
        topic.encode(),
        records,
        from_seq,
        page.next_from_seq,
        page.head_seq,
    )
    return StreamEvent("record", members, page.next_from_seq)


def tombstone_event(topic: str, tombstone: RemovedRange, reason: str, cursor: int) -> StreamEvent:
    """A loss."""
    members = (
        b'"topic":"%b","reason":"%b","gap_from":%d,"gap_to":%d,"earliest_seq":%d,"head_seq":%d'
        % (
            topic.encode(),
            reason.encode(),
            tombstone.gap_from,
            tombstone.gap_to,
            tombstone.earliest_seq,
            tombstone.head_seq,
        )
    )
    return StreamEvent("tombstone", members, cursor)


def caught_up_event(topic: str, head_seq: int) -> StreamEvent:
    """The reader is at the head."""
    return StreamEvent(
        "caught_up", b'"topic":"%b","head_seq":%d' % (topic.encode(), head_seq), head_seq
    )


def deleted_event(topic: str, cursor: int) -> StreamEvent:
    """The topic is gone. Its name may be one that no topic ever had."""
    members = b'"topic":%b,"head_seq":0,"reason":"deleted"' % _encode(topic)
    return StreamEvent("topic_deleted", members, cursor)


# -- server-sent events --------------------------------------------------------------------------

_SSE_NAMES = {
    "record": b"record",
    "tombstone": b"tombstone",
    "caught_up": b"caught-up",
    "topic_deleted": b"topic-deleted",
}


def encode_sse(event: StreamEvent, event_id: bytes) -> bytes:
    """One frame of an event stream."""
    name = _SSE_NAMES[event.kind]
    return b"id: %b\nevent: %b\ndata: {%b}\n\n" % (event_id, name, event.members)


def encode_sse_error(code: str, message: str, event_id: bytes) -> bytes:
    """The last frame before the server ends a stream."""
    data = _encode({"code": code, "message": message})
    return b"id: %b\nevent: error\ndata: %b\n\n" % (event_id, data)


def encode_cursors(cursors: Mapping[str, int]) -> bytes:
    """The id of a frame: the reader's cursor on every topic of its session."""
    return base64.urlsafe_b64encode(_encode(cursors)).rstrip(b"=")


def decode_cursors(event_id: bytes) -> dict[str, int]:
    """The cursors in an id that came back.

    Raises:
        InvalidRequest: It is none that a server gave out.
    """
    try:
        padded = event_id + b"=" * (-len(event_id) % 4)
        cursors = _cursors.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, msgspec.MsgspecError, RecursionError):
        cursors = {"": -1}
    if not all(0 <= cursor <= U64_MAX for cursor in cursors.values()):
        raise InvalidRequest("the id is none that this server gave out")
    return cursors


# -- WebSocket messages --------------------------------------------------------------------------


def encode_message(event: StreamEvent) -> bytes:
    """One message of a WebSocket."""
    return b'{"op":"%b",%b}' % (event.kind.encode(), event.members)
