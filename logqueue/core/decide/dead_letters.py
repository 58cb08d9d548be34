"""What happens to exhausted jobs: dead letters, drops, holds.

Owns: the dead letter's copy, and what `on_exhausted` says. Changes nothing. Must not know: who
finds out that a job is exhausted.
"""

from __future__ import annotations

from collections.abc import Sequence

from logqueue import events as ev
from logqueue.core.commands import DeadLetterReason
from logqueue.core.decide.appends import new_topic
from logqueue.core.decide.copies import (
    as_many_as_fit,
    hops_of,
    order_stamps,
    removable,
    stamped,
)
from logqueue.core.decide.endings import append_copies, finish, kept_errors
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import StorageUnreadable, Throttled
from logqueue.events import block as blocks
from logqueue.events import follow
from logqueue.model import limits
from logqueue.model.config import TopicOptions

STAMP = "$dead_letter_"
"""What the names of all stamps begin with; no user's meta keeps such a name through a redrive."""

UNREADABLE = "the data of this job cannot be read from the server's disk"
"""The last error of a job that is held for that."""

STRAY_META = STAMP + "meta"
"""Where a copy keeps the original meta when that was not an object."""


def exhaust(state: State, topic: QueueTopic, seqs: list[int], now: int) -> list[ev.Event]:
    """The events that take waiting jobs, delivered too often, out of rotation.

    Returns:
        As `on_exhausted` says; and a short postponement of those for which there is no room where
        they have to go; or nothing when that topic cannot be created now (the jobs stay ready and
        are looked at again next time).
    """
    config = topic.config
    assert seqs
    if config.when_exhausted == "hold":
        return [hold(topic, seqs, now, "max_deliveries")]
    divert = config.when_exhausted == "dead_letter"
    target = config.dead_letter if divert else config.archive
    if target is not None and target not in state.topics:
        try:
            new_topic(state, target, TopicOptions().resolved(), now)
        except Throttled:
            return []

    def attempt(some: Sequence[int]) -> list[ev.Event]:
        if divert:
            return dead_letter(state, topic, some, "max_deliveries", now)
        return finish(state, topic, some, "dropped", now)

    # What one transaction may not copy stays ready, for the next pass.
    some = [*removable(topic, seqs, are_copied=target is not None)]
    try:
        gone, events = as_many_as_fit(some, attempt)
    except StorageUnreadable:
        found = topic.readable(some)
        return [hold_unreadable(topic, [seq for seq in some if seq not in found], now)]
    if gone < len(some):
        events.append(_postponed(topic, some[gone:], now))
    return events


def dead_letter(
    state: State,
    topic: QueueTopic,
    seqs: Sequence[int],
    reason: DeadLetterReason,
    now: int,
    error: str | None = None,
    node: str = "",
) -> list[ev.Event]:
    """The events that move live jobs to the dead-letter topic.

    Copy and removal are events of one decision, thus one frame of the log: after any crash a job
    is in exactly one of the two places.

    Args:
        state, topic: Read only.
        seqs: Ascending.
        reason: Why.
        now: The clock.
        error: The last error, for all of them; None for each job's own last error.
        node: The node that gave them up; "" when no worker did.

    Raises:
        RecordTooLarge, TopicFull, Throttled: The dead-letter topic cannot take the copies.
    """
    queue, target = topic.queue, topic.config.dead_letter
    assert target is not None
    records = [*topic.records(seqs)]
    metas = []
    for seq, _, texts in records:
        job = queue.jobs.get(seq)
        last_error = error if error is not None or job is None else job.error
        stamps = [
            (STAMP + "from", topic.name),
            (STAMP + "deliveries", str(job.deliveries if job is not None else 0)),
            (STAMP + "src_seq", str(seq)),
            (STAMP + "reason", reason),
            (STAMP + "at", str(now)),
        ]
        if last_error is not None:
            stamps.append((STAMP + "error", last_error))
        if topic.attributes is not None:
            stamps += _attributes(topic, seq)
        metas.append(stamped(texts[blocks.META], STRAY_META, stamps))
    hops = hops_of(topic, (seq for seq, _, _ in records))
    order = [topic.order_of(seq) for seq, _, _ in records]
    events = append_copies(state, target, records, metas, order, hops, now, (topic.name,))
    events.append(
        ev.RecordsRemoved(now, topic.number, list(seqs), len(seqs), reason=reason, node=node)
    )
    events.extend(kept_errors(topic, seqs, now, error))
    return events


def hold(
    topic: QueueTopic,
    seqs: Sequence[int],
    now: int,
    reason: str,
    error: str | None = None,
    node: str = "",
) -> ev.JobsHeld:
    """The event that parks jobs."""
    queue = topic.queue
    jobs = []
    for seq in seqs:
        job = queue.jobs.get(seq)
        deliveries, last = (job.deliveries, job.error) if job is not None else (0, None)
        jobs.append((seq, deliveries, last if error is None else error))
    return ev.JobsHeld(
        now,
        topic.number,
        jobs,
        reason=reason,
        node=node,
    )


def hold_unreadable(topic: QueueTopic, seqs: Sequence[int], now: int) -> ev.JobsHeld:
    """The event that parks jobs whose data the disk does not give."""
    return hold(topic, seqs, now, "unreadable", UNREADABLE)


def _attributes(topic: Topic, seq: int) -> list[tuple[str, str]]:
    """What a redrive needs to make the same job again."""
    batch = topic.batch_of(seq)
    if batch is None or batch.is_plain:
        return []
    view, index = blocks.BlockView(batch.block), batch.index_of(seq)
    stamps = []
    key = view.text(blocks.KEY, index)
    if key:
        stamps.append((STAMP + "key", blocks.read_string(key)))
        unique = view.number(blocks.UNIQUE, index)
        if unique:
            stamps.append((STAMP + "unique", str(unique)))
    bound = view.number(blocks.MAX_DELIVERIES, index)
    if bound:
        stamps.append((STAMP + "max_deliveries", str(bound)))
    then = follow.steps_text(view.text(blocks.FOLLOW, index))
    if then:
        stamps.append((STAMP + "then", then))
    return stamps + order_stamps(STAMP, topic.order_of(seq))


def _postponed(topic: Topic, seqs: list[int], now: int) -> ev.JobsReleased:
    ready_at = now + limits.DEAD_LETTER_BACKOFF_MS
    return ev.JobsReleased(now, topic.number, "", "postponed", ready_at, seqs)
