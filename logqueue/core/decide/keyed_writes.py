"""Deciding keyed writes: which records are new, which replace a waiting job, which change nothing.

Owns: the fate of each record of a write with keys. Nothing here changes the state.

A write is one transaction: what is new comes as one batch, what is replaced as one block, so that
all of it happens or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.decide.appends import NOTHING_FREED
from logqueue.core.decide.writes import write
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import (
    KeyConflict,
    quoted,
)
from logqueue.events import block as blocks
from logqueue.events.follow import batch_of

CREATED, REPLACED, KEPT = range(len(ev.RESULTS))


class Upsert(NamedTuple):
    """The fate of a write.

    Attributes:
        new: Places in the block of the records that become new jobs, in the order of their seqs.
        replaced: Seqs of waiting jobs with the place of the record each gets the content of.
        results: As the event `RecordsReplaced` has them.
    """

    new: list[int]
    replaced: dict[int, int]
    results: list[tuple[int, int]]


def upsert(
    state: State,
    topic: Topic,
    command: cmd.Append,
    now: int,
    freed: tuple[int, int] = NOTHING_FREED,
) -> tuple[list[ev.Event], cmd.AppendResult]:
    """The events of a write with keyed records, and the reply.

    Raises:
        KeyConflict: A record that rejects met a waiting job with its key.
        RecordTooLarge, TopicFull, Throttled: See `appending.append_event`; only new jobs count.
    """
    fate = _fate(topic, command, now)
    if not fate.replaced and len(fate.new) == command.count:
        events = write(state, topic, command.block, command.count, now, command.key, freed=freed)
        head = topic.head + command.count
        results = _named(fate.results)
        first_seq = topic.head + 1
        return events, cmd.AppendResult(first_seq, command.count, head, False, False, results)
    view = blocks.BlockView(command.block)
    events = []
    fresh = _replacements(topic, view, fate.replaced, now)
    if fate.new:
        block = blocks.select(view, fate.new)
        events = write(state, topic, block, len(fate.new), now, None, _contents(fresh), 0, freed)
    head = topic.head + len(fate.new)
    if fresh or command.key is not None:
        events.append(
            ev.RecordsReplaced(
                now,
                topic.number,
                fresh,
                command.key,
                fate.results,
                head,
                _joined(topic, view, fate),
            )
        )
        if isinstance(topic, QueueTopic):
            events.extend(_rescheduled(topic, fresh, now))
    first_seq = min(seq for seq, _ in fate.results)
    reply = cmd.AppendResult(first_seq, command.count, head, False, False, _named(fate.results))
    return events, reply


def _joined(topic: Topic, view: blocks.BlockView, fate: Upsert) -> list[tuple[str, int]]:
    """How many jobs come to which batch by getting new content."""
    if not view.head[1] >> blocks.FOLLOW & 1:
        return []
    found: Counter[str] = Counter()
    for seq, place in fate.replaced.items():
        batch = batch_of(view.text(blocks.FOLLOW, place))
        if batch is not None and batch != batch_of(topic.follow_of(seq)):
            found[batch] += 1
    return [*found.items()]


def _fate(topic: Topic, command: cmd.Append, now: int) -> Upsert:
    keyed = {record.index: record for record in command.keyed}
    fate = Upsert([], {}, [])
    seq_of_new: dict[bytes, int] = {}
    for place in range(command.count):
        record = keyed.get(place)
        known, state = None, "waiting"
        if record is not None:
            known = seq_of_new.get(record.key)
            if known is None:
                known, state = _holder(topic, record, now)
        if record is None or known is None:
            fate.new.append(place)
            seq = topic.head + len(fate.new)
            fate.results.append((seq, CREATED))
            if record is not None:
                seq_of_new[record.key] = seq
            continue
        if record.on_conflict == "reject":
            key = blocks.read_string(record.key)
            raise KeyConflict(
                f"a {state} job, {known}, has the key {quoted(key)} already; nothing was written",
                {"key": key, "seq": known},
            )
        if record.on_conflict == "keep" or state != "waiting":
            fate.results.append((known, KEPT))
            continue
        fate.results.append((known, REPLACED))
        if known > topic.head:
            # Made by this very write: its place, the content of the later record.
            fate.new[known - topic.head - 1] = place
        else:
            fate.replaced[known] = place
    return fate


def _holder(topic: Topic, record: cmd.Keyed, now: int) -> tuple[int | None, str]:
    """The job that has the key of a record, and in which state; None when the record may have
    it."""
    queue = topic.queue if isinstance(topic, QueueTopic) else None
    if queue is None:
        return None, ""
    known = queue.keys.holder(record.key) if queue.keys is not None else None
    if known is not None:
        assert queue.keys is not None
        is_waiting = known == queue.keys.find(record.key)
        return known, "waiting" if is_waiting else "held" if known in queue.held else "running"
    if queue.ended is not None and record.on_conflict != "replace":
        return queue.ended.holder(record.key, now), "finished"
    return None, ""


def _replacements(
    topic: Topic, view: blocks.BlockView, replaced: Mapping[int, int], now: int
) -> list[bytes]:
    """A block with the content of records of the write in the places of waiting jobs; none when
    there are none."""
    if not replaced:
        return []
    texts = [view.column(column) for column in blocks.TEXTS]
    asked = (
        blocks.DELAY, blocks.NOT_BEFORE, blocks.TTL, blocks.MAX_DELIVERIES, blocks.PRIORITY,
        blocks.UNIQUE,
    )  # fmt: skip
    numbers = {column: found for column in asked if (found := view.numbers(column)) is not None}
    seqs = sorted(replaced)
    places = [replaced[seq] for seq in seqs]
    picked = [[column[i] for i in places] if column else None for column in texts]
    asked_for = {column: [values[i] for i in places] for column, values in numbers.items()}
    block = blocks.pack(
        [column if column and any(column) else None for column in picked],
        seqs=seqs,
        ts=[*_times(topic, seqs)],
        numbers={
            **{column: values for column, values in asked_for.items() if any(values)},
            blocks.UPDATED_AT: [max(now, 1)] * len(seqs),
        },
    )
    return [block]


def _times(topic: Topic, seqs: Sequence[int]) -> Iterator[int]:
    """When live records were accepted."""
    batch = None
    for seq in seqs:
        if batch is None or seq > batch.last_seq:
            batch = topic.batch_of(seq)
            assert batch is not None, "only live jobs wait"
        yield batch.ts_at(batch.index_of(seq))


def _rescheduled(topic: QueueTopic, fresh: Sequence[bytes], now: int) -> list[ev.Event]:
    """What the leases log is to know of replaced jobs: it has entries of some."""
    seqs: list[int] = []
    dues: list[int] = []
    for view in map(blocks.BlockView, fresh):
        # As `due_at`, by whole columns.
        delays, moments = view.numbers(blocks.DELAY), view.numbers(blocks.NOT_BEFORE)
        for index, seq in enumerate(view.numbers(blocks.SEQ) or ()):
            if seq in topic.queue.jobs:
                delay = delays[index] if delays else 0
                due = max(now, 1) + delay if delay else moments[index] if moments else 0
                seqs.append(seq)
                dues.append(due if due > now else 0)
    return [ev.JobsRescheduled(now, topic.number, seqs, dues)] if seqs else []


def _contents(replaced: Sequence[bytes]) -> dict[int, blocks.Texts]:
    found: dict[int, blocks.Texts] = {}
    for block in replaced:
        view = blocks.BlockView(block)
        found.update((seq, view.texts(at)) for at, seq in enumerate(view.numbers(blocks.SEQ) or ()))
    return found


def _named(results: list[tuple[int, int]]) -> list[tuple[int, cmd.WriteResult]]:
    return [(seq, ev.RESULTS[result]) for seq, result in results]


def remembered(
    first_seq: int, records: int, results: tuple[tuple[int, int], ...]
) -> list[tuple[int, cmd.WriteResult]]:
    """The results of an earlier write with keys, as they were answered."""
    if results:
        return _named([*results])
    return [(seq, "created") for seq in range(first_seq, first_seq + records)]
