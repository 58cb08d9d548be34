"""Passes over the readers of topics that have changed, and what they send.

Owns: the fan-out. What changes in one turn of the event loop makes one pass. A pass reads once for
each group of readers, and once for each reader without one, at most one batch; readers in the same
place share the read and the bytes. Must not know: HTTP, WebSockets, how frames look.

What a pass has read is held until the log has reached it, and then sent to so many readers per turn
of the event loop. While it is on its way, or while the client does not read, nothing more is read
for that reader: the log is where it catches up from.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from logqueue.api import frames
from logqueue.api.frames import StreamEvent
from logqueue.api.record_texts import RecordTexts
from logqueue.core.reading import ReadPage, read
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError, StorageUnreadable
from logqueue.server.auth import Key
from logqueue.server.engine.commit_barrier import CommitBarrier
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.reader_groups import Channel, ReaderGroups
from logqueue.server.engine.subscribers import (
    Before,
    ReaderGroup,
    ReadOptions,
    Subscriber,
    Subscription,
)

DELIVERIES_PER_TURN = 32
"""Readers that are written to in one turn of the event loop."""

REST_MAX_S = 0.01
"""A topic that is written without a pause rests as long after each delivery as that took, so that
its readers cost half of the time at most; but not longer than this, which bounds the latency. The
busier the server is, the longer a delivery takes, and the fewer and larger frames become."""

PASS_MAX_S = 0.005
"""Reading in one turn of the event loop. Many readers are far behind when a server has just
started, and writes and claims meanwhile must not wait for all of them."""


class _Step(NamedTuple):
    """The way forward from one place.

    Attributes:
        cursor: Where it leads.
        is_at_head: Whether there is nothing more to read.
        wires: The events encoded, by form.
    """

    cursor: int
    is_at_head: bool
    has_lost: bool
    events: list[StreamEvent]
    wires: dict[str, bytes]


class _Delivery:
    """What one pass has read and one position of the log releases.

    Attributes:
        batches: Readers, and what they get.
        groups: Those whose members are among the readers.
        channels: Topics that rest once all readers have it.
        left: Readers that do not have it yet, with what they get.
    """

    __slots__ = ("batches", "began", "channels", "failure", "groups", "left")

    def __init__(self) -> None:
        self.batches: list[tuple[Sequence[Subscriber], bytes]] = []
        self.groups: list[ReaderGroup] = []
        self.channels: set[Channel] = set()
        self.failure: LogqueueError | None = None
        self.began = 0.0
        self.left = self._each()

    def _each(self) -> Iterator[tuple[Subscriber, bytes]]:
        for readers, wire in self.batches:
            for reader in readers:
                yield reader, wire


class _Pass:
    """What is shared within one pass: nothing changes while it runs."""

    __slots__ = ("changed", "deliveries", "looked", "steps")

    def __init__(self, changed: set[Channel]) -> None:
        self.changed = changed
        self.looked: set[int] = set()
        self.steps: dict[tuple[int, ReadOptions, int, bool, bool], _Step] = {}
        self.deliveries: dict[tuple[int, int], _Delivery] = {}


class Subscriptions:
    """Every reader that follows a topic on one server.

    Attributes:
        channels: The topics that are followed, by number.
    """

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
        self._groups = ReaderGroups()
        self.channels = self._groups.channels
        self._subscribers: dict[Subscriber, None] = {}
        self._changed: set[Channel] = set()
        self._due: dict[Subscriber, None] = {}
        self._is_scheduled = False
        self._sending: deque[_Delivery] = deque()
        # Those that the last turn has completed.
        self._sent: list[_Delivery] = []
        self._is_sending = False

    # -- subscribe and unsubscribe ---------------------------------------------------------------

    def open(self, subscriber: Subscriber) -> None:
        """Take a connection in."""
        self._subscribers[subscriber] = None

    def close(self, subscriber: Subscriber) -> None:
        """A connection is gone; what was read for it but never sent counts as unread."""
        subscriber.is_closed = True
        self._leave(subscriber)
        subscriber.put_back()
        for subscription in [*subscriber.subscriptions.values()]:
            self.remove(subscription)
        self._subscribers.pop(subscriber, None)
        self._due.pop(subscriber, None)

    def add(self, subscription: Subscription) -> None:
        """Follow a topic from its cursor on, instead of what was followed under its name."""
        subscriber, cursor = subscription.subscriber, subscription.cursor
        self._leave(subscriber)
        for other in cursor.readers:
            self._leave(other.subscriber)
        earlier = subscriber.subscriptions.get(subscription.name)
        if earlier is not None:
            self.remove(earlier)
        cursor.readers = (*cursor.readers, subscription)
        subscriber.subscriptions[subscription.name] = subscription
        self._groups.mark(subscription)
        subscriber.news.add(subscription)
        self.resume(subscriber)

    def remove(self, subscription: Subscription) -> None:
        """Follow a topic no longer."""
        subscriber, cursor = subscription.subscriber, subscription.cursor
        self._leave(subscriber)
        cursor.readers = tuple([other for other in cursor.readers if other is not subscription])
        if subscriber.subscriptions.get(subscription.name) is subscription:
            del subscriber.subscriptions[subscription.name]
        subscriber.news.discard(subscription)
        self._groups.unmark(subscription)

    def resume(self, subscriber: Subscriber) -> None:
        """A connection may have room again."""
        if subscriber.news:
            self._due[subscriber] = None
            self._schedule()

    def end(
        self, error: LogqueueError, affected: Callable[[Key | None], bool] = lambda key: True
    ) -> None:
        """End the connections of some keys, or all of them, and tell them why."""
        for subscriber in [*self._subscribers]:
            if affected(subscriber.key):
                subscriber.end(error)

    def _leave(self, subscriber: Subscriber) -> None:
        """Read for a subscriber alone from now on."""
        group = subscriber.group
        if group is not None:
            self._groups.leave(subscriber)
            self.resume(subscriber)
            if group.members:
                self.resume(group.leader)

    # -- changes ---------------------------------------------------------------------------------

    def changed(self, topic: Topic) -> None:
        """A topic has changed: its readers get their turn, soon."""
        channel = self.channels.get(topic.number)
        if channel is None or channel.is_changed:
            return
        channel.is_changed = True
        channel.changed_at = max(topic.mark_written, topic.mark_durable)
        if not channel.on_way:
            self._rouse(channel)

    def adopt(self, topics: dict[int, Topic]) -> None:
        """The state was rebuilt, by topic number: readers go on from what it says."""
        for subscriber in self._subscribers:
            self._leave(subscriber)
        for number, channel in [*self.channels.items()]:
            for subscription in channel.subscriptions:
                subscription.topic = topics.get(number, subscription.topic)
                subscription.subscriber.news.add(subscription)
        for subscriber in self._subscribers:
            self.resume(subscriber)

    def _rouse(self, channel: Channel) -> None:
        """Make a pass for a topic that has changed, once it has rested."""
        if self._loop.time() < channel.rests_until:
            self._loop.call_at(channel.rests_until, self._rested, channel)
        else:
            self._rested(channel)

    def _rested(self, channel: Channel) -> None:
        """Make a pass once the change is written: the log does not wait for the pass, and syncs
        during it."""
        if self._barrier.reached(channel.changed_at, 0):
            self._is_written(channel, None)
        else:
            self._barrier.when(channel.changed_at, 0, partial(self._is_written, channel))

    def _is_written(self, channel: Channel, failure: LogqueueError | None) -> None:
        """What is read of a log that has failed is taken back: see `_release`."""
        self._changed.add(channel)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    # -- the pass --------------------------------------------------------------------------------

    def _run(self) -> None:
        """One pass over those who have something to read; the rest comes in the next turn."""
        self._is_scheduled = False
        turn = _Pass(self._note_changes())
        due, self._due = [*self._due], {}
        ends_at = time.perf_counter() + PASS_MAX_S
        for place, subscriber in enumerate(due, 1):
            if self._serve(subscriber, turn) and time.perf_counter() > ends_at and place < len(due):
                self._due.update(dict.fromkeys(due[place:]))
                self._schedule()
                break
        for (written, durable), delivery in turn.deliveries.items():
            # Frames are ready when the log is, acks are still to be made: these come second.
            self._barrier.when(written, durable, partial(self._release, delivery), is_ahead=True)

    def _note_changes(self) -> set[Channel]:
        changed, self._changed = self._changed, set()
        for channel in changed:
            channel.is_changed = False
            for subscription in channel.subscriptions:
                subscription.subscriber.news.add(subscription)
                self._due[subscription.subscriber] = None
        return changed

    def _serve(self, subscriber: Subscriber, turn: _Pass) -> bool:
        """Read for a subscriber and those that go along; False when there was nothing to do."""
        group = subscriber.group
        if group is not None:
            if group.is_on_way or subscriber is not group.leader:
                return False
            is_over = any(self._is_gone(subscription) for subscription in subscriber.news)
            for member in [m for m in group.members if is_over or not m.can_take]:
                # Slow ones must not hold up the others; and the end of a topic is each one's own.
                self._leave(member)
            if subscriber.group is None:
                # It comes in the next turn, and the leader of the others in its place.
                return True
        if subscriber.held or not subscriber.can_take:
            return False
        self._advance(subscriber, turn)
        return True

    def _is_gone(self, subscription: Subscription) -> bool:
        topic = subscription.topic
        return topic is None or self._engine.state.instances.get(topic.number) is not topic

    def _advance(self, subscriber: Subscriber, turn: _Pass) -> None:
        """Read for one subscriber: its topics in the order of their names, one batch in all."""
        news = subscriber.news
        held: list[Before] = []
        wires: list[bytes] = []
        size = written = durable = 0
        for subscription in sorted(news, key=_name) if len(news) > 1 else [*news]:
            try:
                step = self._step(subscription, turn, held)
            except StorageUnreadable as error:
                if held:
                    # What was read of other topics goes first.
                    break
                for reader in [*subscriber.group.members] if subscriber.group else [subscriber]:
                    reader.end(error)
                return
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
        readers = self._take_along(subscriber, held)
        if not wires:
            self.resume(subscriber)
            return
        for reader in readers:
            reader.held = held
            reader.reserve()
        delivery = turn.deliveries.setdefault((written, durable), _Delivery())
        delivery.batches.append((readers, b"".join(wires)))
        self._note_on_way(delivery, subscriber, turn)

    @staticmethod
    def _take_along(subscriber: Subscriber, held: list[Before]) -> Sequence[Subscriber]:
        """Move all who are read for together as far as their leader; returns them."""
        group = subscriber.group
        if group is None:
            return (subscriber,)
        for before in held:
            name, seq = before.subscription.name, before.subscription.cursor.seq
            for member in group.members:
                member.subscriptions[name].cursor.seq = seq
        return [*group.members]

    def _note_on_way(self, delivery: _Delivery, subscriber: Subscriber, turn: _Pass) -> None:
        """Have topics and groups wait until a delivery is complete."""
        if subscriber.group is not None:
            subscriber.group.is_on_way = True
            delivery.groups.append(subscriber.group)
        for before in subscriber.held:
            topic = before.subscription.topic
            channel = self.channels.get(topic.number) if topic is not None else None
            if channel is not None and channel in turn.changed and channel not in delivery.channels:
                channel.on_way += 1
                delivery.channels.add(channel)

    def _step(self, subscription: Subscription, turn: _Pass, held: list[Before]) -> _Step | None:
        """Bring one subscription forward; None when there is nothing to do."""
        topic, cursor = subscription.topic, subscription.cursor
        hides = subscription.subscriber.masks_first_loss and not subscription.has_lost
        if topic is None or self._is_gone(subscription):
            gone = [frames.deleted_event(subscription.name, cursor.seq)]
            step = _Step(cursor.seq, True, False, gone, {})
            subscription.is_over = True
        else:
            if topic.number not in turn.looked:
                self._advance_time(topic, turn)
            if cursor.seq == topic.head and not subscription.is_behind:
                return None
            options = subscription.options
            key = (topic.number, options, cursor.seq, subscription.is_behind, hides)
            found = turn.steps.get(key)
            if found is None:
                found = turn.steps[key] = self._look_ahead(topic, *key[1:])
            step = found
        held.append(Before(subscription, cursor.seq, subscription.is_behind, subscription.has_lost))
        cursor.seq = step.cursor
        subscription.is_behind = not step.is_at_head
        subscription.has_lost = subscription.has_lost or step.has_lost
        return step

    def _advance_time(self, topic: Topic, turn: _Pass) -> None:
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
        page, records = self._texts.of_page(topic, page, options.show)
        events: list[StreamEvent] = []
        if page.tombstone is not None:
            from_seq = _behind_the_gap(page)
            reason = "from_seq_too_old" if hides else page.tombstone.reason
            events.append(frames.tombstone_event(topic.name, page.tombstone, reason, from_seq))
        if page.runs:
            events.append(frames.record_event(topic.name, page, records, from_seq))
        is_at_head = page.next_from_seq == page.head_seq
        if is_at_head and (is_behind or events):
            events.append(frames.caught_up_event(topic.name, page.head_seq))
        return _Step(page.next_from_seq, is_at_head, page.tombstone is not None, events, {})

    # -- behind the barrier ----------------------------------------------------------------------

    def _release(self, delivery: _Delivery, failure: LogqueueError | None) -> None:
        """The log has reached what was read, or never will: send it, or take it back."""
        delivery.failure = failure
        delivery.began = self._loop.time()
        self._sending.append(delivery)
        if not self._is_sending:
            self._send()

    def _send(self) -> None:
        """Send to so many readers; to the others in the next turns, where deliveries alternate."""
        self._is_sending = True
        sent, self._sent = self._sent, []
        for delivery in sent:
            # Only now have the transports written what they were given in the last turn.
            self._complete(delivery)
        room = DELIVERIES_PER_TURN
        while room and self._sending:
            delivery = self._sending.popleft()
            room -= self._send_some(delivery, room)
            (self._sending if room == 0 else self._sent).append(delivery)
        self._is_sending = bool(self._sending or self._sent)
        if self._is_sending:
            self._loop.call_soon(self._send)
        if self._due:
            self._schedule()

    def _send_some(self, delivery: _Delivery, most: int) -> int:
        """Send to so many readers of one delivery; less than `most` when these were the last."""
        now, count = self._loop.time(), 0
        for subscriber, wire in islice(delivery.left, most):
            count += 1
            if subscriber.is_closed:
                continue
            if delivery.failure is not None:
                self._leave(subscriber)
                subscriber.put_back()
                subscriber.discard()
                continue
            held, subscriber.held = subscriber.held, ()
            subscriber.deliver(wire, now)
            for before in held:
                if before.subscription.is_over:
                    self._finish(before.subscription)
            if subscriber.news and subscriber.group is None:
                self._due[subscriber] = None
        return count

    def _complete(self, delivery: _Delivery) -> None:
        """Every reader has it: topics rest, groups may go on."""
        now = self._loop.time()
        rests_until = now + min(now - delivery.began, REST_MAX_S)
        for channel in delivery.channels:
            channel.on_way -= 1
            channel.rests_until = rests_until
            if channel.is_changed and not channel.on_way:
                self._rouse(channel)
        for group in delivery.groups:
            group.is_on_way = False
            if group.members:
                self.resume(group.leader)
        alone = [readers[0] for readers, _ in delivery.batches if len(readers) == 1]
        self._gather(iter(alone))

    def _gather(self, alone: Iterator[Subscriber]) -> None:
        """Let readers that have caught up with others go along with them."""
        readers = [*islice(alone, DELIVERIES_PER_TURN)]
        for subscriber in readers:
            if not subscriber.is_closed:
                self._groups.join(subscriber)
        if len(readers) == DELIVERIES_PER_TURN:
            self._loop.call_soon(self._gather, alone)

    def _finish(self, subscription: Subscription) -> None:
        """The end of the topic was reported to the reader."""
        subscriber = subscription.subscriber
        self.remove(subscription)
        if not subscriber.subscriptions and not subscriber.is_closed:
            subscriber.run_out()


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
    """The cursor of a reader to which a loss was reported."""
    assert page.tombstone is not None
    return 0 if page.tombstone.reason == "recreated" else page.tombstone.gap_to
