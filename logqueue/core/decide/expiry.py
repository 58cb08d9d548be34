"""Deciding what time does to records: those past their time to live, and superseded jobs.

Owns: which go, in bounded portions. Nothing here changes the state. Leases and delays are another
matter: see `Queue.elapse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.decide.appends import cap_floor
from logqueue.core.decide.copies import as_many_as_fit, removable
from logqueue.core.decide.dead_letters import dead_letter
from logqueue.core.decide.decision import Decision
from logqueue.core.decide.endings import archive, finish
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import (
    TopicFull,
    quoted,
)
from logqueue.model import limits
from logqueue.model.config import TopicOptions


def copies_expired(topic: Topic, config: TopicOptions) -> bool:
    """Whether expired records leave a copy somewhere."""
    return isinstance(topic, QueueTopic) and (
        config.on_expire == "dead_letter" or config.archive is not None
    )


def expire(state: State, command: cmd.Expire, now: int) -> Decision[cmd.Done]:
    """Take out what is due, a portion of it.

    Raises:
        RecordTooLarge, TopicFull, Throttled: Not one of the copies finds room.
    """
    topic = state.topic(command.topic)
    if isinstance(topic, QueueTopic):
        keys = topic.queue.keys
        if keys is not None and keys.superseded:
            seqs = sorted(islice(keys.superseded, topic.removed_max))
            return Decision(_copied(state, topic, seqs, "superseded", now), cmd.Done())
    before = topic.expired_before(now)
    own: list[int] = []
    if topic.attributes is not None:
        own = topic.attributes.expired(now, topic.removed_max)
    events: list[ev.Event] = []
    if not isinstance(topic, QueueTopic) or not copies_expired(topic, topic.config):
        events = _silently(topic, before, own, now)
    else:
        seqs = topic.front_expired(before, limits.COPIED_PER_PASS_MAX) if before else []
        seqs = sorted({*seqs, *own})
        events = _copied(state, topic, seqs, "expired", now) if seqs else []
    if not events and topic.is_trimming and topic.is_over:
        events = _over_caps(state, topic, now)
    return Decision(events, cmd.Done())


def _over_caps(state: State, topic: Topic, now: int) -> list[ev.Event]:
    """What was left when the caps were tightened, or a write went over them: a portion of it.

    Raises:
        TopicFull: Not one of the copies finds room.
    """
    floor, dropped = cap_floor(topic, topic.config)
    events: list[ev.Event] = []
    if topic.config.archive is not None and isinstance(topic, QueueTopic):
        seqs = topic.batches.live_seqs(1, dropped)

        def attempt(some: Sequence[int]) -> list[ev.Event]:
            return archive(state, topic, topic.records(some), "dropped", now)

        dropped, events = as_many_as_fit(seqs, attempt)
        if not dropped:
            raise _no_room(topic)
        floor = seqs[dropped - 1]
    events.append(ev.RecordsTrimmed(now, topic.number, 0, floor, 0, dropped))
    return events


def _no_room(topic: Topic) -> TopicFull:
    return TopicFull(
        f"jobs of {quoted(topic.name)} that are to end find no room where their copies go",
        {"topic": topic.name},
    )


def _silently(topic: Topic, before: int, own: list[int], now: int) -> list[ev.Event]:
    """A floor over the front's unbroken run; holes for the others."""
    events: list[ev.Event] = []
    floor, count = topic.expired_floor(before, set(own))
    if floor > topic.ttl_floor:
        events.append(ev.RecordsTrimmed(now, topic.number, floor, 0, count))
    rest = sorted(seq for seq in own if seq > floor)
    if rest:
        events.append(ev.RecordsFinished(now, topic.number, "expired", "", rest))
    return events


def _copied(
    state: State, topic: QueueTopic, seqs: list[int], outcome: str, now: int
) -> list[ev.Event]:
    """As many as find room where their copies go.

    Raises:
        TopicFull: Not one does.
    """

    def attempt(some: Sequence[int]) -> list[ev.Event]:
        if outcome == "superseded":
            return finish(state, topic, some, "superseded", now)
        if topic.config.on_expire == "dead_letter" and topic.config.dead_letter is not None:
            return dead_letter(state, topic, some, "expired", now)
        return finish(state, topic, some, "expired", now)

    some = removable(topic, seqs, are_copied=True)
    gone, events = as_many_as_fit(some, attempt)
    if not gone:
        raise _no_room(topic)
    if outcome == "expired":
        floor, _ = topic.expired_floor(0, set(some[:gone]))
        if floor > topic.ttl_floor:
            events.append(ev.RecordsTrimmed(now, topic.number, floor, 0))
    return events
