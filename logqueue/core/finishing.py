"""How jobs come to an end other than by a plain ack, and what an archive keeps of them.

Owns: the archive's copy, and the events that finish jobs. Changes nothing. Must not know: who may
finish which job, dead letters.

Copy and removal are events of one decision, thus one frame of the log: never one without the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from logqueue.core import events as ev
from logqueue.core.batch import Record
from logqueue.core.block import META
from logqueue.core.copies import append_copies, hops_of, stamped
from logqueue.core.state import State
from logqueue.core.topic import Topic

STRAY_META = "$archived_meta"
"""Where a copy keeps the original meta when that was not an object."""

Outcome = Literal["acked", "rejected", "dropped", "expired", "superseded", "cancelled"]


def finish(
    state: State, topic: Topic, seqs: Sequence[int], outcome: Outcome, now: int, node: str = ""
) -> list[ev.AnyEvent]:
    """The events that take live records out of a topic, its archive's copies first.

    Raises:
        RecordTooLarge, TopicFull, Throttled: The archive can not take the copies.
    """
    ordered = sorted(seqs)
    events = archive(state, topic, topic.records(ordered), outcome, now, node)
    events.append(ev.RecordsFinished(now, topic.number, outcome, node, ordered))
    return events


def archive(
    state: State,
    topic: Topic,
    finished: Iterable[Record],
    outcome: Outcome,
    now: int,
    node: str = "",
    target: str | None = None,
    hops: int = 0,
) -> list[ev.AnyEvent]:
    """The events that copy finished records to the topic's archive; none when it has no archive.

    Args:
        state, topic: Read only.
        finished: Live records, ascending.
        outcome, now, node: How, when and by whom they end.
        target: Another archive than the one the topic has now.
        hops: How many routers those have come through that the same decision adds.

    Raises:
        RecordTooLarge, TopicFull, Throttled: The archive can not take the copies.
    """
    target, queue = target or topic.config.archive, topic.queue
    if target is None or queue is None:
        return []
    records = [*finished]
    if not records:
        return []
    metas = []
    for seq, ts, texts in records:
        job = queue.jobs.get(seq)
        stamps = (
            ("$outcome", outcome),
            ("$archived_from", topic.name),
            ("$archived_src_seq", str(seq)),
            ("$deliveries", str(job.deliveries if job is not None else 0)),
            ("$enqueued_at", str(ts)),
            ("$finished_at", str(now)),
            ("$finished_by", node),
        )
        metas.append(stamped(texts[META], STRAY_META, stamps))
    known = hops_of(topic, (seq for seq, _, _ in records), hops)
    return append_copies(state, target, records, metas, known, now)
