"""What the columns of a record say about time, and about its place among others.

Owns: when a record was written, is due and expires, read from its block; and the packing of a
moment with a seq into one number, which is what ordered indexes hold. Must not know: topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from logqueue.core.batch import Batch
from logqueue.events.block import (
    DELAY,
    GROUP,
    KEY,
    NOT_BEFORE,
    PRIORITY,
    TTL,
    UNIQUE,
    UPDATED_AT,
    BlockView,
)

_SEQ_BITS = 64
_SEQ_MASK = (1 << _SEQ_BITS) - 1


def moment(at: int, seq: int) -> int:
    """A time and a seq as one number that sorts by time, then by seq."""
    return at << _SEQ_BITS | seq


def time_of(packed: int) -> int:
    """The time of a moment, ms since the epoch."""
    return packed >> _SEQ_BITS


def seq_of(packed: int) -> int:
    """The seq of a moment."""
    return packed & _SEQ_MASK


def written_at(view: BlockView, index: int, ts: int) -> int:
    """When a record got its present content, ms since the epoch; `ts` is when it got its seq."""
    return view.number(UPDATED_AT, index) or ts


def due_at(view: BlockView, index: int, ts: int) -> int:
    """When a record was first to be claimable, ms since the epoch; 0 when it asked for no delay."""
    delay = view.number(DELAY, index)
    if delay:
        return written_at(view, index, ts) + delay
    return view.number(NOT_BEFORE, index)


def expires_at(view: BlockView, index: int, ts: int) -> int:
    """Last ms of a record's own time to live, 0 when it has none."""
    ttl = view.number(TTL, index)
    return written_at(view, index, ts) + ttl if ttl else 0


def is_timed(view: BlockView, index: int, ts: int) -> bool:
    """Whether a job comes by itself and not by the claim cursor: it was delayed when it was
    written, or was replaced later, or it has a priority or a group. A fact of the record that
    never changes."""
    return (
        bool(view.number(UPDATED_AT, index))
        or due_at(view, index, ts) > ts
        or bool(view.number(PRIORITY, index))
        or bool(view.text(GROUP, index))
    )


def untimed(batch: Batch, seqs: Sequence[int]) -> Sequence[int]:
    """Those of some ascending live seqs of a batch whose jobs come by the claim cursor."""
    if batch.is_plain or not seqs:
        return seqs
    view = BlockView(batch.block)
    places = batch.places_of(seqs)
    start, end = places[0], places[-1] + 1
    marks: list[Sequence[object]] = [
        column
        for column in (
            view.numbers(UPDATED_AT, start, end),
            view.numbers(PRIORITY, start, end),
            view.used(GROUP, start, end),
        )
        if column is not None
    ]
    if view.number_bits & (1 << DELAY | 1 << NOT_BEFORE):
        times = batch.times_at(start, end)
        marks.append([due_at(view, at, ts) > ts for at, ts in enumerate(times, start)])
    if not marks:
        return seqs
    own = [*map(any, zip(*marks, strict=True))]
    return [seq for seq, at in zip(seqs, places, strict=True) if not own[at - start]]


class Own(NamedTuple):
    """What a record asks for, as the functions above tell it; key and group are b"" when it has
    none."""

    seq: int
    key: bytes
    written_at: int
    due_at: int
    expires_at: int
    is_timed: bool
    priority: int
    group: bytes
    unique: int


def own_times(batch: Batch, view: BlockView, indexes: Sequence[int]) -> Iterator[Own]:
    """What some records of a batch ask for. Takes whole columns apart when most are wanted."""
    nothing: Sequence[int] | Mapping[int, int] = ()
    many = len(indexes) * 4 >= batch.count

    def numbers(column: int) -> Sequence[int] | Mapping[int, int]:
        if not view.number_bits >> column & 1:
            return nothing
        if many:
            return view.numbers(column) or nothing
        return {index: view.number(column, index) for index in indexes}

    def texts(column: int) -> Sequence[bytes] | Mapping[int, bytes]:
        if not view.head[1] >> column & 1:
            return ()
        if many:
            return view.column(column) or ()
        return {index: view.text(column, index) for index in indexes}

    keys, groups = texts(KEY), texts(GROUP)
    columns = (UPDATED_AT, DELAY, NOT_BEFORE, TTL, PRIORITY, UNIQUE)
    updated, delays, moments, lives, priorities, uniques = map(numbers, columns)
    for index in indexes:
        seq, ts = batch.seq_at(index), batch.ts_at(index)
        replaced_at = updated[index] if updated else 0
        written = replaced_at or ts
        delay = delays[index] if delays else 0
        due = written + delay if delay else moments[index] if moments else 0
        ttl = lives[index] if lives else 0
        key = keys[index] if keys else b""
        priority = priorities[index] if priorities else 0
        group = groups[index] if groups else b""
        timed = bool(replaced_at) or due > ts or bool(priority) or bool(group)
        expires = written + ttl if ttl else 0
        unique = uniques[index] if uniques else 0
        yield Own(seq, key, written, due, expires, timed, priority, group, unique)
