"""Who follows which topic, and the passes that bring readers forward.

Owns: the fan-out. What changes in one turn of the event loop makes one pass; readers who stand at
the same place share one read, one encoding and one wait for the log, so a further reader costs a
few dictionary look-ups and one write. Must not know: HTTP, WebSockets, how frames look.

A pass takes each reader at most one batch forward and holds what it has read until the log has
reached it. While that is held, or while the client does not read, the reader is left alone; the
log is where it catches up from.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from logqueue.api import frames
from logqueue.api.frames import StreamEvent
from logqueue.api.record_texts import RecordTexts
from logqueue.core.reading import ReadPage, read
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError
from logqueue.server.auth import Key
from logqueue.server.engine.commit_barrier import CommitBarrier
from logqueue.server.engine.engine import Engine

REST_PER_READER_S = 0.00005
REST_MAX_S = 0.02
"""A topic that is written without a pause makes a pass per so many seconds for each reader, not
one per write: fewer and larger frames are what makes many readers affordable."""


PASS_MAX_S = 0.005
"""Reading in one turn of the event loop. Readers that are far behind are many when a server has
just started, and whoever writes or claims meanwhile must not wait for all of them."""


NODE_BYTES = 100


class ReadOptions(NamedTuple):
    """How a reader wants a topic. Equal ones share what is read for them.

    Attributes:
        nodes: JSON strings; records written by these nodes are passed over.
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


class Cursor:
    """The last seq a reader was given, or passed over. Streams of one session share theirs."""

    __slots__ = ("seq",)

    def __init__(self, seq: int) -> None:
        self.seq = seq


class Subscription:
    """One reader on one topic.

    Attributes:
        topic: The instance followed; None when there was none to begin with.
        is_behind: Whether a "caught up" is due once the head is reached.
        has_lost: Whether a loss was told before.
        is_over: Whether the end of the topic was told.
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


class _Before(NamedTuple):
    """What a subscription was like before a step that is not sent yet."""

    subscription: Subscription
    seq: int
    is_behind: bool
    has_lost: bool


class Subscriber:
    """One connection that follows topics. The HTTP layer subclasses it to encode and send.

    Attributes:
        subscriptions: By topic name.
        news: Those of them that have something to look at.
        held: What was read for it but waits for the log.
        is_closed: Whether the connection is gone.
        key: Who opened it; None on a server without authentication.
        masks_first_loss: Whether the first loss on a topic is reported as "from_seq_too_old".
    """

    masks_first_loss = False
    key: Key | None = None

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.news: set[Subscription] = set()
        self.held: list[_Before] = []
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


class _Step(NamedTuple):
    """One reader's way forward from one place.

    Attributes:
        cursor: Where it leads.
        is_at_head: Whether there is nothing more to look at.
        wires: The events encoded, by form.
    """

    cursor: int
    is_at_head: bool
    has_lost: bool
    events: list[StreamEvent]
    wires: dict[str, bytes]


class _Channel:
    """The readers of one topic instance."""

    __slots__ = ("is_changed", "rests_until", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[Subscription, None] = {}
        self.is_changed = False
        self.rests_until = 0.0


_Delivery = tuple[Subscriber, bytes]


class _Pass:
    """What is shared within one pass: nothing changes while it runs."""

    __slots__ = ("deliveries", "looked", "steps")

    def __init__(self) -> None:
        self.looked: set[int] = set()
        self.steps: dict[tuple[int, ReadOptions, int, bool, bool], _Step] = {}
        self.deliveries: dict[tuple[int, int], list[_Delivery]] = {}


class Subscriptions:
    """Everybody who follows a topic on one server."""

    def __init__(
        self,
        engine: Engine,
        barrier: CommitBarrier,
        loop: asyncio.AbstractEventLoop,
        texts: RecordTexts,
    ) -> None:
        self._engine = engine
        self._barrier = barrier
        self._loop = loop
        self._texts = texts
        self._channels: dict[int, _Channel] = {}
        self._subscribers: dict[Subscriber, None] = {}
        self._changed: list[_Channel] = []
        self._due: dict[Subscriber, None] = {}
        self._is_scheduled = False

    def __bool__(self) -> bool:
        """Whether anybody follows anything."""
        return bool(self._channels)

    # -- subscribe and unsubscribe ---------------------------------------------------------------

    def open(self, subscriber: Subscriber) -> None:
        """Take a connection in."""
        self._subscribers[subscriber] = None

    def close(self, subscriber: Subscriber) -> None:
        """A connection is gone; what was read for it but never sent counts as unread."""
        subscriber.is_closed = True
        self._put_back(subscriber)
        for subscription in [*subscriber.subscriptions.values()]:
            self.remove(subscription)
        self._subscribers.pop(subscriber, None)
        self._due.pop(subscriber, None)

    def add(self, subscription: Subscription) -> None:
        """Follow a topic from its cursor on, instead of what was followed under its name."""
        subscriber = subscription.subscriber
        earlier = subscriber.subscriptions.get(subscription.name)
        if earlier is not None:
            self.remove(earlier)
        subscriber.subscriptions[subscription.name] = subscription
        if subscription.topic is not None:
            channel = self._channels.setdefault(subscription.topic.number, _Channel())
            channel.subscriptions[subscription] = None
        subscriber.news.add(subscription)
        self.resume(subscriber)

    def remove(self, subscription: Subscription) -> None:
        """Follow a topic no longer."""
        subscriber, topic = subscription.subscriber, subscription.topic
        if subscriber.subscriptions.get(subscription.name) is subscription:
            del subscriber.subscriptions[subscription.name]
        subscriber.news.discard(subscription)
        channel = self._channels.get(topic.number) if topic is not None else None
        if channel is not None and topic is not None:
            channel.subscriptions.pop(subscription, None)
            if not channel.subscriptions:
                del self._channels[topic.number]

    def resume(self, subscriber: Subscriber) -> None:
        """A connection may have room again."""
        if subscriber.news:
            self._due[subscriber] = None
            self._schedule()

    def end(
        self, error: LogqueueError, is_meant: Callable[[Key | None], bool] = lambda key: True
    ) -> None:
        """End the connections of some keys, or all of them, and tell them why."""
        for subscriber in [*self._subscribers]:
            if is_meant(subscriber.key):
                subscriber.end(error)

    # -- changes ---------------------------------------------------------------------------------

    def changed(self, topic: Topic) -> None:
        """A topic has changed: its readers get their turn, soon."""
        channel = self._channels.get(topic.number)
        if channel is None or channel.is_changed:
            return
        channel.is_changed = True
        if self._loop.time() >= channel.rests_until:
            self._rested(channel)
        else:
            self._loop.call_at(channel.rests_until, self._rested, channel)

    def adopt(self, topics: dict[int, Topic]) -> None:
        """The state was built anew, by topic number: readers go on from what it says."""
        for number, channel in [*self._channels.items()]:
            for subscription in channel.subscriptions:
                subscription.topic = topics.get(number, subscription.topic)
                subscription.subscriber.news.add(subscription)
        for subscriber in self._subscribers:
            self.resume(subscriber)

    def _rested(self, channel: _Channel) -> None:
        self._changed.append(channel)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    # -- the pass --------------------------------------------------------------------------------

    def _run(self) -> None:
        """One pass over those who have something to look at; the rest comes in the next turn."""
        self._is_scheduled = False
        self._note_changes()
        due, self._due = [*self._due], {}
        turn = _Pass()
        ends_at = time.perf_counter() + PASS_MAX_S
        for place, subscriber in enumerate(due, 1):
            if not subscriber.held and subscriber.can_take:
                self._advance(subscriber, turn)
                if time.perf_counter() > ends_at and place < len(due):
                    self._due.update(dict.fromkeys(due[place:]))
                    self._schedule()
                    break
        for (written, durable), deliveries in turn.deliveries.items():
            self._barrier.when(written, durable, partial(self._release, deliveries))

    def _note_changes(self) -> None:
        now = self._loop.time()
        for channel in self._changed:
            channel.is_changed = False
            rest_s = min(REST_PER_READER_S * len(channel.subscriptions), REST_MAX_S)
            channel.rests_until = now + rest_s
            for subscription in channel.subscriptions:
                subscription.subscriber.news.add(subscription)
                self._due[subscription.subscriber] = None
        self._changed.clear()

    def _advance(self, subscriber: Subscriber, turn: _Pass) -> None:
        """Read for one subscriber: its topics in the order of their names, one batch in all."""
        news = subscriber.news
        wires: list[bytes] = []
        size = written = durable = 0
        for subscription in sorted(news, key=_name) if len(news) > 1 else [*news]:
            step = self._step(subscription, turn)
            if step is None:
                news.discard(subscription)
                continue
            if step.events:
                wires.append(_wire(subscriber, subscription, step))
                size += len(wires[-1])
            topic = subscription.topic
            if topic is not None:
                written = max(written, topic.mark_written)
                durable = max(durable, topic.mark_durable)
            if subscription.is_over:
                durable = max(durable, self._engine.control_mark)
            if step.is_at_head:
                news.discard(subscription)
            if not step.is_at_head or size >= subscription.options.bytes_max:
                break
        if wires:
            wire = wires[0] if len(wires) == 1 else b"".join(wires)
            subscriber.reserve()
            turn.deliveries.setdefault((written, durable), []).append((subscriber, wire))
        else:
            subscriber.held.clear()
            self.resume(subscriber)

    def _step(self, subscription: Subscription, turn: _Pass) -> _Step | None:
        """Bring one subscription forward; None when there is nothing to do."""
        topic, cursor = subscription.topic, subscription.cursor
        hides = subscription.subscriber.masks_first_loss and not subscription.has_lost
        if topic is None or self._engine.state.instances.get(topic.number) is not topic:
            gone = [frames.deleted_event(subscription.name, cursor.seq)]
            step = _Step(cursor.seq, True, False, gone, {})
            subscription.is_over = True
        else:
            if topic.number not in turn.looked:
                self._look(topic, turn)
            if cursor.seq == topic.head and not subscription.is_behind:
                return None
            options = subscription.options
            key = (topic.number, options, cursor.seq, subscription.is_behind, hides)
            found = turn.steps.get(key)
            if found is None:
                found = turn.steps[key] = self._look_ahead(topic, *key[1:])
            step = found
        subscription.subscriber.held.append(
            _Before(subscription, cursor.seq, subscription.is_behind, subscription.has_lost)
        )
        cursor.seq = step.cursor
        subscription.is_behind = not step.is_at_head
        subscription.has_lost = subscription.has_lost or step.has_lost
        return step

    def _look(self, topic: Topic, turn: _Pass) -> None:
        """Let time act on a topic, once per pass."""
        turn.looked.add(topic.number)
        now = self._engine.clock.now_ms()
        self._engine.topic_now(topic.name, now)
        topic.last_read_at = topic.touched_at = now

    def _look_ahead(
        self, topic: Topic, options: ReadOptions, from_seq: int, is_behind: bool, hides: bool
    ) -> _Step:
        page = read(
            topic,
            from_seq,
            self._engine.clock.now_ms(),
            records_max=options.records_max,
            bytes_max=options.bytes_max,
            nodes=options.nodes,
        )
        events: list[StreamEvent] = []
        if page.tombstone is not None:
            from_seq = _behind_the_gap(page)
            reason = "from_seq_too_old" if hides else page.tombstone.reason
            events.append(frames.tombstone_event(topic.name, page.tombstone, reason, from_seq))
        if page.runs:
            records = self._texts.join(topic.number, page.runs, options.show)
            events.append(frames.record_event(topic.name, page, records, from_seq))
        is_at_head = page.next_from_seq == page.head_seq
        if is_at_head and (is_behind or events):
            events.append(frames.caught_up_event(topic.name, page.head_seq))
        return _Step(page.next_from_seq, is_at_head, page.tombstone is not None, events, {})

    # -- behind the barrier ----------------------------------------------------------------------

    def _release(self, deliveries: Iterable[_Delivery], failure: LogqueueError | None) -> None:
        """Send what was held, or take it back: the log will never get there."""
        now = self._loop.time()
        for subscriber, wire in deliveries:
            if subscriber.is_closed:
                continue
            if failure is not None:
                self._put_back(subscriber)
                subscriber.discard()
                continue
            over = [before.subscription for before in subscriber.held]
            subscriber.held.clear()
            subscriber.deliver(wire, now)
            for subscription in over:
                if subscription.is_over:
                    self._finish(subscription)
            if subscriber.news:
                self._due[subscriber] = None
        if self._due:
            self._schedule()

    def _finish(self, subscription: Subscription) -> None:
        """The reader was told that the topic is gone."""
        subscriber = subscription.subscriber
        self.remove(subscription)
        if not subscriber.subscriptions and not subscriber.is_closed:
            subscriber.run_out()

    @staticmethod
    def _put_back(subscriber: Subscriber) -> None:
        for subscription, seq, is_behind, has_lost in reversed(subscriber.held):
            subscription.cursor.seq = min(subscription.cursor.seq, seq)
            subscription.is_behind = is_behind
            subscription.has_lost = has_lost
            subscription.is_over = False
            if subscriber.subscriptions.get(subscription.name) is subscription:
                subscriber.news.add(subscription)
        subscriber.held.clear()


def _name(subscription: Subscription) -> str:
    return subscription.name


def _wire(subscriber: Subscriber, subscription: Subscription, step: _Step) -> bytes:
    form = subscriber.shared_form
    if form is None:
        return subscriber.encode(subscription, step.events)
    wire = step.wires.get(form)
    if wire is None:
        wire = step.wires[form] = subscriber.encode(subscription, step.events)
    return wire


def _behind_the_gap(page: ReadPage) -> int:
    """The cursor of a reader who was told of a loss."""
    assert page.tombstone is not None
    return 0 if page.tombstone.reason == "recreated" else page.tombstone.gap_to
