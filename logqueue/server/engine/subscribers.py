"""Readers that follow topics, and how far each has come.

Owns: what a reader wants, its cursors, what was read for it and waits for the log, with which
others it goes along. Must not know: HTTP, WebSockets, how frames look, when anything is read, who
joins or leaves a group and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from logqueue.api.frames import StreamEvent
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError
from logqueue.server.auth import Key

NODE_BYTES = 100


class ReadOptions(NamedTuple):
    """How a reader wants a topic. Readers with equal options share what is read for them.

    Attributes:
        nodes: JSON strings; records written by these nodes are skipped.
        show: What of each record, see `record_texts.shown`.
    """

    records_max: int
    bytes_max: int
    nodes: frozenset[bytes]
    show: int

    @property
    def cost(self) -> int:
        """What the filter costs in memory, in bytes."""
        return sum(len(node) + NODE_BYTES for node in self.nodes)


ReaderKind = tuple[str, frozenset[tuple[int, ReadOptions]]]
"""The form of what readers get, and which topic instances they read with which options."""


class Cursor:
    """The last seq a reader was given, or that was skipped for it.

    Attributes:
        readers: The subscriptions that move it: those of all streams of one session.
    """

    __slots__ = ("readers", "seq")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.readers: tuple[Subscription, ...] = ()


class Subscription:
    """One reader on one topic.

    Attributes:
        topic: The instance followed; None when there was none to begin with.
        is_behind: Whether a "caught up" is due once the head is reached.
        has_lost: Whether a loss was reported before.
        is_over: Whether the end of the topic was reported.
    """

    __slots__ = (
        "cursor", "has_lost", "is_behind", "is_over", "name", "options", "subscriber", "topic",
    )  # fmt: skip

    def __init__(
        self,
        subscriber: Subscriber,
        name: str,
        topic: Topic | None,
        cursor: Cursor,
        options: ReadOptions,
    ) -> None:
        self.subscriber = subscriber
        self.name = name
        self.topic = topic
        self.cursor = cursor
        self.options = options
        self.is_behind = True
        self.has_lost = False
        self.is_over = False


class Before(NamedTuple):
    """What a subscription was like before a step that is not sent yet."""

    subscription: Subscription
    seq: int
    is_behind: bool
    has_lost: bool


class Subscriber:
    """One connection that follows topics. The HTTP layer subclasses it to encode and send.

    Attributes:
        subscriptions: By topic name.
        news: Those of them that have something to read. A reader that goes along with another one
            has none.
        held: What was read for it but waits for the log.
        group: The readers it is read for together with; None for one that is read for alone.
        is_closed: Whether the connection is gone.
        key: Who opened it; None on a server without authentication.
        masks_first_loss: Whether the first loss on a topic is reported as "from_seq_too_old".
    """

    masks_first_loss = False
    key: Key | None = None

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.news: set[Subscription] = set()
        self.held: Sequence[Before] = ()
        self.group: ReaderGroup | None = None
        self.is_closed = False

    @property
    def can_take(self) -> bool:
        """Whether there is room for one more batch, apart from what is held."""
        raise NotImplementedError

    @property
    def shared_form(self) -> str | None:
        """Subscribers of one form get the very same bytes for the same events; None: never."""
        raise NotImplementedError

    def encode(self, subscription: Subscription, events: list[StreamEvent]) -> bytes:
        """Events as they go over the wire."""
        raise NotImplementedError

    def reserve(self) -> None:
        """Something was read and will be delivered, or discarded, later. Must not raise."""

    def deliver(self, wire: bytes, at: float) -> None:
        """Send what was read; `at` is the loop's time. Must not block or raise."""
        raise NotImplementedError

    def discard(self) -> None:
        """What was reserved for never comes."""

    def run_out(self) -> None:
        """The last topic has gone. Must not block or raise."""

    def end(self, error: LogqueueError) -> None:
        """The server ends the connection. Must not block or raise."""
        raise NotImplementedError

    def put_back(self) -> None:
        """What was read but not sent counts as unread."""
        for subscription, seq, is_behind, has_lost in reversed(self.held):
            subscription.cursor.seq = min(subscription.cursor.seq, seq)
            subscription.is_behind = is_behind
            subscription.has_lost = has_lost
            subscription.is_over = False
            if self.subscriptions.get(subscription.name) is subscription:
                self.news.add(subscription)
        self.held = ()


class ReaderGroup:
    """Readers in the same state.

    Attributes:
        leader: One of the members.
        is_on_way: Something was read for the group that some members do not have yet.
    """

    __slots__ = ("is_on_way", "kind", "leader", "members")

    def __init__(self, kind: ReaderKind, leader: Subscriber) -> None:
        self.kind = kind
        self.leader = leader
        self.members = {leader: None}
        self.is_on_way = False
