"""How jobs come to an end other than by a plain ack, and what an archive keeps of them.

Owns: the archive's copy, and the events that finish jobs. Changes nothing. Must not know: who may
finish which job, dead letters.

Copy and removal are events of one decision, thus one frame of the log: never one without the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Literal

from logqueue import events as ev
from logqueue.core.batch import Record
from logqueue.core.decide.appends import append_event, evicted_with, new_topic
from logqueue.core.decide.copies import hops_of, order_stamps, stamped
from logqueue.core.decide.multi_part import MultiPartDecision
from logqueue.core.queue_topic import QueueTopic, topic_of
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.events import block as blocks
from logqueue.events.block import META
from logqueue.events.copy_blocks import pack_ordered
from logqueue.events.follow import batch_of
from logqueue.model.config import TopicOptions

STRAY_META = "$archived_meta"
"""Where a copy keeps the original meta when that was not an object."""

Outcome = Literal["acked", "rejected", "dropped", "expired", "superseded", "cancelled"]


def finish(
    state: State,
    topic: Topic,
    seqs: Sequence[int],
    outcome: Outcome,
    now: int,
    node: str = "",
    error: str | None = None,
) -> list[ev.Event]:
    """The events that take live records out of a topic, its archive's copies first.

    Args:
        state, topic: Read only.
        seqs: The records.
        outcome, now, node: How, when and by whom they end.
        error: Why, for all of them; None for each job's own last error.

    Raises:
        RecordTooLarge, TopicFull, Throttled: The archive cannot take the copies.
    """
    ordered = sorted(seqs)
    events = archive(state, topic, topic.records(ordered), outcome, now, node)
    events.append(ev.RecordsFinished(now, topic.number, outcome, node, ordered))
    if outcome in ("rejected", "dropped"):
        events.extend(kept_errors(topic, ordered, now, error))
    return events


def _batches_of(topic: Topic, seqs: Iterable[int], gone: Container[int]) -> list[tuple[str, int]]:
    """How many of some jobs are in which batch, without those that are gone."""
    found = Counter(batch_of(topic.follow_of(seq)) for seq in seqs if seq not in gone)
    return [(name, count) for name, count in found.items() if name is not None]


def acked(
    topic: QueueTopic,
    of_node: Mapping[str, Sequence[int]],
    now: int,
    results: Sequence[tuple[int, bytes]] = (),
    floor: int = 0,
) -> list[ev.Event]:
    """The events of an ack: one for the jobs, one for their results if these are kept. Where ends
    are reported, jobs whose records went before have one of their own, so that replay can tell
    which they are.

    Args:
        topic: Read only.
        of_node: The jobs, by who acks them.
        now: The clock.
        results: What jobs came to, as JSON; b"" for nothing.
        floor: Records up to this seq are evicted by the same decision, before.
    """
    queue = topic.queue
    jobs = queue.jobs
    gone: set[int] = set()
    if queue.orphans or floor:
        seqs = chain.from_iterable(of_node.values())
        gone = {seq for seq in seqs if not jobs[seq].live or seq <= floor}
    parts: list[Mapping[str, Sequence[int]]] = [of_node]
    if queue.end_listeners and 0 < len(gone) < sum(map(len, of_node.values())):
        parts = [
            {
                node: [seq for seq in its if (seq in gone) is are_gone]
                for node, its in of_node.items()
            }
            for are_gone in (False, True)
        ]
    has_members = topic.attributes is not None and bool(topic.attributes.members)
    events: list[ev.Event] = []
    for part in parts:
        together = [*chain.from_iterable(part.values())]
        shares = [(node, len(its)) for node, its in part.items() if its]
        node, shares = (shares[0][0], []) if len(shares) == 1 else ("", shares)
        orphans = len(gone.intersection(together)) if gone else 0
        done = _batches_of(topic, together, gone) if has_members else []
        events.append(ev.JobsAcked(now, topic.number, node, together, orphans, shares, done))
    if queue.ended is not None:
        kept = [(seq, result) for seq, result in results if result and seq not in gone]
        keys = []
        if queue.keys is not None and queue.keys.has_busy:
            live = (seq for its in of_node.values() for seq in its if seq not in gone)
            keys = _kept_keys(topic, live)
        if kept or keys:
            events.append(ev.JobTexts(now, topic.number, kept, [], keys))
    return events


def _kept_keys(topic: Topic, seqs: Iterable[int]) -> list[tuple[int, bytes]]:
    """The jobs among some that have their key beyond their end."""
    found = ((seq, topic.key_of(seq)) for seq in seqs)
    return [(seq, key) for seq, (key, _, unique) in found if key and unique == blocks.UNIQUE_KEPT]


def kept_errors(
    topic: Topic, seqs: Sequence[int], now: int, error: str | None = None
) -> list[ev.Event]:
    """The event that keeps the errors, and keys, of jobs that have failed permanently, if there are
    any and their queue keeps what became of its jobs."""
    if not isinstance(topic, QueueTopic) or topic.queue.ended is None:
        return []
    jobs = topic.queue.jobs
    errors: list[tuple[int, str]] = []
    for seq in seqs:
        job = jobs.get(seq)
        last = error if error is not None or job is None else job.error
        if last is not None:
            errors.append((seq, last))
    keys = _kept_keys(topic, seqs) if topic.queue.keys is not None else []
    return [ev.JobTexts(now, topic.number, [], errors, keys)] if errors or keys else []


def archive(
    state: State,
    topic: Topic,
    finished: Iterable[Record],
    outcome: Outcome,
    now: int,
    node: str = "",
    target: str | None = None,
    hops: int = 0,
    via: Collection[str] = (),
) -> list[ev.Event]:
    """The events that copy finished records to the topic's archive; none when it has no archive.

    Args:
        state, topic: Read only.
        finished: Live records, ascending.
        outcome, now, node: How, when and by whom they end.
        target: Another archive than the one the topic has now.
        hops: How many routers those have come through that the same decision adds.
        via: See `append_copies`.

    Raises:
        RecordTooLarge, TopicFull, Throttled: The archive cannot take the copies.
    """
    target = target or topic.config.archive
    if target is None or not isinstance(topic, QueueTopic) or target in via:
        return []
    records = [*finished]
    if not records:
        return []
    metas = []
    for seq, ts, texts in records:
        job = topic.queue.jobs.get(seq)
        stamps = (
            ("$outcome", outcome),
            ("$archived_from", topic.name),
            ("$archived_src_seq", str(seq)),
            ("$deliveries", str(job.deliveries if job is not None else 0)),
            ("$enqueued_at", str(ts)),
            ("$finished_at", str(now)),
            ("$finished_by", node),
            *order_stamps("$", topic.order_of(seq)),
        )
        metas.append(stamped(texts[META], STRAY_META, stamps))
    known = hops_of(topic, (seq for seq, _, _ in records), hops)
    order = [topic.order_of(seq) for seq, _, _ in records]
    return append_copies(state, target, records, metas, order, known, now, (*via, topic.name))


def append_copies(
    state: State,
    target: str,
    records: Sequence[Record],
    metas: Sequence[bytes],
    order: Sequence[tuple[int, bytes]],
    hops: Sequence[int],
    now: int,
    via: Collection[str] = (),
) -> list[ev.Event]:
    """The events that add copies to a topic; it is created when absent.

    What its cap evicts for them leaves copies in its own archive, and so on.

    Args:
        state: Read only.
        target: The topic.
        records: The originals; at least one.
        metas: What the copies have instead of the originals' metas.
        order: The priority and the group of each; copies keep them, for a target that is a queue.
        hops: See `hops_of`. Copies keep them, so that every loop of routers ends.
        now: The clock.
        via: Topics whose ends and evictions have led here. A loop of archives is followed no
            further than to where it began.

    Raises:
        RecordTooLarge, TopicFull, Throttled: The topic, its archive or the server has no room.
    """
    copies = MultiPartDecision(state)
    topic: Topic | None = state.topics.get(target)
    if topic is None:
        created = new_topic(state, target, TopicOptions().resolved(), now)
        copies.add([created])
        topic = topic_of(created.topic, created.name, created.config)
    start = 0
    added: list[bytes] = []
    for alike in range(1, len(records) + 1):
        if alike < len(records) and hops[alike] == hops[start]:
            continue
        block = _block_of(records[start:alike], metas[start:alike], order[start:alike])
        count = alike - start
        part = append_event(state, topic, block, count, now, None, hops[start])
        copies.add([part] if start == 0 else copies.rebase([part]))
        added.append(block)
        start = alike
    last = copies.events[-1]
    assert isinstance(last, ev.RecordsAppended)
    if last.cap_floor > topic.cap_floor:
        evicted = evicted_with(topic, last.cap_floor, added, now)
        copied = archive(state, topic, evicted, "dropped", now, hops=max(hops), via=via)
        return [*copied, *copies.events]
    return copies.events


def _block_of(
    records: Sequence[Record], metas: Sequence[bytes], order: Sequence[tuple[int, bytes]]
) -> bytes:
    """The block of some records with other metas."""
    columns = [[texts[c] for _, _, texts in records] for c in range(len(blocks.TEXT_COLUMNS))]
    columns[blocks.META] = list(metas)
    return pack_ordered(columns, order)
