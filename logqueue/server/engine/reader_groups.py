"""Readers in the same place: one of them is read for, and the others go along.

Owns: which readers are marked when a topic changes, and groups of readers that have read the same
of the same topics with the same options. Must not know: reading, encoding, the log, when passes are
made.

A group has a leader. Only leaders, and readers without a group, are marked and read for; what was
read for a leader goes to all members as it is, and moves the cursors of all. So a member is in
exactly its leader's state at any time, and needs none of its own until it leaves: because its
client is slow, its cursors are shared with another stream or moved by one, or it follows other
topics than before.
"""

from __future__ import annotations

from logqueue.server.engine.subscribers import ReaderGroup, ReaderKind, Subscriber, Subscription

READERS_PER_GROUP_MAX = 1000
"""What one turn of the event loop takes along. More readers of one kind are several groups."""


class Channel:
    """One topic instance as its readers see it.

    Attributes:
        subscriptions: Those that are marked when it changes.
        is_changed: It has changed, and they are not marked yet.
        changed_at: The position of the jobs log that has the first of these changes.
        on_way: Deliveries that its last change caused and that are not complete.
        rests_until: They are not marked again before, by the loop's time.
    """

    __slots__ = ("changed_at", "is_changed", "on_way", "rests_until", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[Subscription, None] = {}
        self.is_changed = False
        self.changed_at = 0
        self.on_way = 0
        self.rests_until = 0.0


class ReaderGroups:
    """The channels and groups of one server.

    Attributes:
        channels: By the number of the topic instance.
    """

    def __init__(self) -> None:
        self.channels: dict[int, Channel] = {}
        # Groups that take more members.
        self._open: dict[ReaderKind, ReaderGroup] = {}

    def mark(self, subscription: Subscription) -> None:
        """Have a subscription marked when its topic changes."""
        topic = subscription.topic
        if topic is not None:
            channel = self.channels.get(topic.number)
            if channel is None:
                channel = self.channels[topic.number] = Channel()
            channel.subscriptions[subscription] = None

    def unmark(self, subscription: Subscription) -> None:
        """The opposite of `mark`."""
        topic = subscription.topic
        channel = self.channels.get(topic.number) if topic is not None else None
        if channel is not None and topic is not None:
            channel.subscriptions.pop(subscription, None)
            if not channel.subscriptions:
                del self.channels[topic.number]

    def join(self, reader: Subscriber) -> None:
        """Let a reader go along with those in the same state, or become their first."""
        kind = None if reader.group is not None or reader.held else _kind(reader)
        if kind is None:
            return
        group = self._open.get(kind)
        if group is None or len(group.members) >= READERS_PER_GROUP_MAX:
            reader.group = self._open[kind] = ReaderGroup(kind, reader)
        elif _is_in_state_of(reader, group.leader):
            reader.news.clear()
            for subscription in reader.subscriptions.values():
                self.unmark(subscription)
            group.members[reader] = None
            reader.group = group

    def leave(self, reader: Subscriber) -> None:
        """Read for a reader alone from now on, if it was not before."""
        group = reader.group
        if group is None:
            return
        reader.group = None
        del group.members[reader]
        if group.leader is not reader:
            self._be_as(group.leader, reader)
            return
        successor = next(iter(group.members), None)
        if successor is not None:
            self._be_as(reader, successor)
            group.leader = successor
        elif self._open.get(group.kind) is group:
            del self._open[group.kind]

    def _be_as(self, leader: Subscriber, member: Subscriber) -> None:
        """Give a member the state that its leader had for it."""
        for subscription in member.subscriptions.values():
            model = leader.subscriptions[subscription.name]
            subscription.is_behind = model.is_behind
            subscription.has_lost = model.has_lost
            self.mark(subscription)
            if model in leader.news:
                member.news.add(subscription)
        member.held = [
            before._replace(subscription=member.subscriptions[before.subscription.name])
            for before in member.held
        ]


def _kind(reader: Subscriber) -> ReaderKind | None:
    """Equal for readers that may be in the same state; None for one that must be read for alone."""
    form = reader.shared_form
    if form is None or not reader.subscriptions:
        return None
    wanted = []
    for subscription in reader.subscriptions.values():
        topic = subscription.topic
        if topic is None or subscription.is_over or len(subscription.cursor.readers) != 1:
            return None
        wanted.append((topic.number, subscription.options))
    return form, frozenset(wanted)


def _is_in_state_of(reader: Subscriber, leader: Subscriber) -> bool:
    for subscription in reader.subscriptions.values():
        model = leader.subscriptions[subscription.name]
        if (
            subscription.cursor.seq != model.cursor.seq
            or subscription.is_behind != model.is_behind
            or subscription.has_lost != model.has_lost
        ):
            return False
    return not leader.held
