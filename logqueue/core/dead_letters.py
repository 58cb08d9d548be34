"""What becomes of jobs that were delivered too often. Nothing here changes the state."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from logqueue.core import block as blocks
from logqueue.core import events as ev
from logqueue.core import limits
from logqueue.core.appending import append_event, new_topic
from logqueue.core.batch import Record
from logqueue.core.config import TopicConfig
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import RecordTooLarge, Throttled, TopicFull

UNSTAMPED_META = "$dead_letter_meta"
"""Where a copy keeps the original meta when that was not an object."""

_encoder = msgspec.json.Encoder()
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Diversion(NamedTuple):
    """The events that take exhausted jobs out of the queue; empty when there is nothing to do."""

    events: tuple[ev.AnyEvent, ...] = ()


def divert(state: State, topic: Topic, seqs: list[int], now: int) -> Diversion:
    """Move exhausted jobs to the dead-letter topic.

    Copy and removal are events of one decision, thus one frame of the log: after any crash a job
    is in exactly one of the two places.

    Returns:
        Copy and removal; or a short postponement when the target has no room; or nothing when the
        target can not be created now (the jobs stay ready and are looked at again next time).
    """
    queue = topic.queue
    target = topic.config.dead_letter
    assert queue is not None and target is not None and seqs
    events: list[ev.AnyEvent] = []
    destination: Topic | None = state.topics.get(target)
    try:
        if destination is None:
            created = new_topic(state, target, TopicConfig().resolved(), now)
            events.append(created)
            destination = Topic(created.topic, created.name, created.config)
    except Throttled:
        return Diversion()
    copies = _copies(topic, [*topic.records(seqs)])
    try:
        events.append(append_event(state, destination, copies, len(seqs), now))
    except (RecordTooLarge, TopicFull, Throttled):
        return _one_by_one(state, topic, seqs, now)
    events.append(ev.RecordsDeleted(now, topic.number, seqs, len(seqs)))
    return Diversion(tuple(events))


def _one_by_one(state: State, topic: Topic, seqs: list[int], now: int) -> Diversion:
    """The batch found no room: try the half of it, down to one job, and postpone the rest."""
    if len(seqs) > 1:
        half = len(seqs) // 2
        moved = divert(state, topic, seqs[:half], now)
        rest = seqs[half:]
        if any(isinstance(event, ev.RecordsDeleted) for event in moved.events):
            return Diversion((*moved.events, _postponed(topic, rest, now)))
    return Diversion((_postponed(topic, seqs, now),))


def _postponed(topic: Topic, seqs: list[int], now: int) -> ev.JobsReleased:
    ready_at = now + limits.DEAD_LETTER_BACKOFF_MS
    return ev.JobsReleased(now, topic.number, "", "postponed", ready_at, seqs)


def _copies(topic: Topic, records: list[Record]) -> bytes:
    queue = topic.queue
    assert queue is not None
    columns = [[texts[c] for _, _, texts in records] for c in range(len(blocks.TEXT_COLUMNS))]
    columns[blocks.META] = [
        _stamped(texts[blocks.META], topic.name, queue.jobs[seq].deliveries, seq)
        for seq, _, texts in records
    ]
    return blocks.pack([column if any(column) else None for column in columns])


def _stamped(meta: bytes, source: str, deliveries: int, seq: int) -> bytes:
    """A copy's meta: the original with its provenance, as strings."""
    keys: dict[str, msgspec.Raw] = {}
    if meta.startswith(b"{"):
        keys = _objects.decode(meta)
    elif meta:
        keys[UNSTAMPED_META] = msgspec.Raw(meta)
    for name, value in (
        ("$dead_letter_from", source),
        ("$dead_letter_deliveries", str(deliveries)),
        ("$dead_letter_src_seq", str(seq)),
    ):
        keys[name] = msgspec.Raw(_encoder.encode(value))
    return _encoder.encode(keys)
