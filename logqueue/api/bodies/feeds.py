"""The shapes of what readers ask for: bodies of watch sessions, messages of WebSockets.

Owns: which members there are, their types and bounds. Must not know: sessions, sockets, replies.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Literal

import msgspec

from logqueue.api.bodies.reader import U32, BodyReader, note_unknown
from logqueue.api.bodies.records import AppendBody, JobBody, StrictJobBody
from logqueue.api.bodies.unknown_members import Ignore, strict
from logqueue.errors import InvalidRequest
from logqueue.events.block import write_string
from logqueue.model import limits
from logqueue.model.config import U64

Nodes = str | list[str] | None


class StartBody(msgspec.Struct):
    """Where a reader begins on one topic."""

    from_seq: U64 = 0
    tail: bool = False


class WatchBody(msgspec.Struct):
    """`POST /v0/watch`.

    Attributes:
        consistency: Checked, and nothing more: the API has it, every watch of one server is strong.
    """

    topics: dict[str, StartBody]
    node: Nodes = None
    limit: U32 = 0
    max_batch_bytes: U64 = limits.WATCH_BYTES_DEFAULT
    heartbeat_ms: U64 = limits.HEARTBEAT_MS_DEFAULT
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    consistency: Literal["eventual", "strong"] = "eventual"


_read_watch_body = BodyReader(WatchBody).read


def read_watch_body(body: bytes, ignore: Ignore | None = None) -> WatchBody:
    """Decode the body of a new session.

    Raises:
        InvalidRequest: A wrong type, a number out of range, no topic or too many of them.
    """
    decoded: WatchBody = _read_watch_body(body)
    require_named(decoded.topics)
    if ignore is not None:
        note_unknown(WatchBody, body, ignore)
    for start in decoded.topics.values():
        require_u64("from_seq", start.from_seq)
    return decoded


def node_filter(nodes: Nodes) -> frozenset[bytes]:
    """The nodes to leave out, as JSON strings; those that no record can have are dropped.

    Raises:
        InvalidRequest: There are too many.
    """
    given = [nodes] if isinstance(nodes, str) else nodes or []
    if len(given) > limits.NODES_PER_FILTER_MAX:
        raise InvalidRequest(
            f"`node` lists {len(given)} nodes; name at most {limits.NODES_PER_FILTER_MAX}"
        )
    # A character takes at least one byte.
    fitting = [node for node in given if len(node) <= limits.NODE_BYTES_MAX]
    return frozenset(write_string(node) for node in fitting)


# -- WebSocket messages --------------------------------------------------------------------------


class Subscribe(msgspec.Struct, tag="subscribe", tag_field="op"):
    """Follow topics."""

    topic: str | None = None
    topics: dict[str, StartBody] = {}
    from_seq: U64 = 0
    tail: bool = False
    node: Nodes = None
    limit: U32 = limits.DIFF_RECORDS_MAX
    max_batch_bytes: U64 = limits.DIFF_BYTES_DEFAULT
    include_data: bool = True
    include_tags: bool = False
    include_meta: bool = True
    lenient: bool = False
    request_id: msgspec.Raw = msgspec.Raw(b"null")

    def starts(self) -> dict[str, StartBody]:
        """All topics asked for.

        Raises:
            InvalidRequest: None, or too many.
        """
        starts = dict(self.topics)
        if self.topic is not None:
            starts.setdefault(self.topic, StartBody(self.from_seq, self.tail))
        require_named(starts)
        return starts


class Unsubscribe(msgspec.Struct, tag="unsubscribe", tag_field="op"):
    """Follow topics no longer."""

    topic: str | None = None
    topics: list[str] = []
    request_id: msgspec.Raw = msgspec.Raw(b"null")

    def names(self) -> list[str]:
        """All topics named, each once, in the order given.

        Raises:
            InvalidRequest: None, or too many.
        """
        names = [self.topic] if self.topic is not None else []
        names = [*dict.fromkeys([*names, *self.topics])]
        require_named(names)
        return names


class Publish(AppendBody, tag="publish", tag_field="op", kw_only=True):
    """Write records, as most do."""

    topic: str
    return_seqs: bool = True
    request_id: msgspec.Raw = msgspec.Raw(b"null")


class Ping(msgspec.Struct, tag="ping", tag_field="op"):
    """Ask for a `pong`."""

    request_id: msgspec.Raw = msgspec.Raw(b"null")


class PublishJobs(Publish, tag="publish", tag_field="op", kw_only=True):
    """Write records that say more than most, or have unknown members."""

    are_jobs: ClassVar[bool] = True

    records: Sequence[JobBody]


Message = Subscribe | Unsubscribe | Publish | Ping


class _PlainPublish(
    Publish, tag="publish", tag_field="op", kw_only=True, forbid_unknown_fields=True
):
    """The write of most producers."""


class _StrictPublish(
    PublishJobs, tag="publish", tag_field="op", kw_only=True, forbid_unknown_fields=True
):
    """Every write without unknown members."""

    records: Sequence[StrictJobBody]


def _is_open(message: Message) -> bool:
    """Whether a message has structs inside it that allow unknown members."""
    if isinstance(message, Publish):
        return message.config is not None
    return isinstance(message, Subscribe)


_read_message = BodyReader(
    Subscribe | Unsubscribe | PublishJobs | Ping,
    Subscribe | strict(Unsubscribe) | _PlainPublish | strict(Ping),
    Subscribe | strict(Unsubscribe) | _StrictPublish | strict(Ping),
    strips_blanks=True,
    is_open=_is_open,
    what="message",
).read


def read_message(text: bytes, ignore: Ignore | None = None) -> Message:
    """Decode a message.

    Args:
        text: The message.
        ignore: Called with the unknown members, if there are any.

    Raises:
        InvalidRequest: Not JSON, an unknown `op`, a missing member, a wrong type, or a number out
            of range.
    """
    message: Message = _read_message(text, ignore)
    if isinstance(message, Subscribe):
        require_u64("max_batch_bytes", message.max_batch_bytes)
        require_u64("from_seq", message.from_seq)
        for start in message.topics.values():
            require_u64("from_seq", start.from_seq)
    return message


def require_u64(name: str, number: int) -> None:
    """Check the upper bound of a number.

    Raises:
        InvalidRequest: It is above.
    """
    if number > limits.U64_MAX:
        raise InvalidRequest(f"`{name}` must be at most {limits.U64_MAX}")


def require_named(names: Collection[str]) -> None:
    """Check how many topics are named.

    Raises:
        InvalidRequest: None, or too many.
    """
    if not names:
        raise InvalidRequest("name at least one topic to follow")
    if len(names) > limits.WATCHED_TOPICS_MAX:
        raise InvalidRequest(
            f"{len(names)} topics at once; name at most {limits.WATCHED_TOPICS_MAX}"
        )
