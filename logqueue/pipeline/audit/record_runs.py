"""Records as runs: neighbouring seqs of one topic instance in one segment.

Owns: how records shrink to runs, in any task, and how runs of many tasks become one list. Must not
know: what runs mean for rules, engines, files.

A run keeps first and last seq, the lowest and highest time, and how many of its jobs were written
with a delay. Seqs that occur twice make runs that overlap. A log without faults has a run per topic
and segment, whatever the number of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from logqueue.pipeline.audit.job_rows import NONE, Codes, Ints, Mask, codes_of, millis_of
from logqueue.pipeline.audit.rules import SKEW_MS

RUN_COLUMNS: Final = ("topic", "seq", "ts", "not_before", "segment", "log_id")
RUNS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("log_id", pa.string()),
        ("segment", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("low", pa.int64()),
        ("high", pa.int64()),
        ("timed", pa.int64()),
        ("back", pa.bool_()),
    ]
)
RUNS_PENDING_MAX: Final = 200_000
_TIME_BITS: Final = 44
_TIME_MAX: Final = (1 << _TIME_BITS) - 1


@dataclass(frozen=True, slots=True)
class RunColumns:
    """Runs as arrays.

    Attributes:
        key: Code of topic instance and segment.
        first, last: Seqs.
        low, high: Times, in ms.
        timed: Jobs with a delay.
        back: Whether a record is older than one before it in the run, by more than clocks differ.
    """

    key: Ints
    first: Ints
    last: Ints
    low: Ints
    high: Ints
    timed: Ints
    back: Mask

    def joined(self) -> RunColumns:
        """Neighbours as one, ascending by key and seq."""
        count = len(self.key)
        if not count:
            return self
        key, first, last, low, high, timed, back = self._sorted()
        same = key[1:] == key[:-1]
        before = np.full(count, -1, np.int64)
        before[1:] = np.where(same, high_so_far(key, high)[:-1], -1)
        back = back | (low < before - SKEW_MS)
        starts = np.concatenate([[0], np.flatnonzero(~(same & (first[1:] == last[:-1] + 1))) + 1])
        return RunColumns(
            key[starts],
            first[starts],
            last[np.concatenate([starts[1:], [count]]) - 1],
            np.minimum.reduceat(low, starts),
            np.maximum.reduceat(high, starts),
            np.add.reduceat(timed, starts),
            np.logical_or.reduceat(back, starts),
        )

    def _sorted(self) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Mask]:
        columns = (self.key, self.first, self.last, self.low, self.high, self.timed, self.back)
        steps, seqs = np.diff(self.key), np.diff(self.first)
        if ((steps > 0) | ((steps == 0) & (seqs > 0))).all():
            return columns
        order = np.lexsort((self.last, self.first, self.key))
        return tuple(column[order] for column in columns)  # type: ignore[return-value]


def high_so_far(key: Ints, high: Ints) -> Ints:
    """The highest time up to each row, among rows of the same key. Rows are sorted by key."""
    base = np.zeros(len(key), np.int64)
    base[1:] = np.cumsum(key[1:] != key[:-1]) << _TIME_BITS
    found: Ints = np.maximum.accumulate(np.clip(high, 0, _TIME_MAX) + base) - base
    return found


def runs_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The runs of some records.

    Args:
        batches: With `RUN_COLUMNS`.
    """
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        pending.append(_runs(batch))
        rows += pending[-1].num_rows
        if rows >= RUNS_PENDING_MAX:
            pending = [joined_runs(pa.Table.from_batches(pending, RUNS))]
            rows = 0
    if pending:
        yield joined_runs(pa.Table.from_batches(pending, RUNS))


def _runs(batch: pa.RecordBatch) -> pa.RecordBatch:
    seqs = batch.column("seq").to_numpy(zero_copy_only=False)
    times = millis_of(batch.column("ts"))
    delays = batch.column("not_before")
    if delays.null_count == len(delays):
        timed = np.zeros(len(seqs), np.int64)
    else:
        timed = (millis_of(delays) != NONE).astype(np.int64)
    return _batch_of(batch, seqs, seqs, times, times, timed, np.zeros(len(seqs), np.bool_))


def joined_runs(table: pa.Table) -> pa.RecordBatch:
    """Runs of several batches as few as possible."""
    first, last, low, high, timed = (
        table.column(name).to_numpy() for name in ("first", "last", "low", "high", "timed")
    )
    return _batch_of(table, first, last, low, high, timed, table.column("back").to_numpy())


def _batch_of(
    like: pa.RecordBatch | pa.Table,
    first: Ints,
    last: Ints,
    low: Ints,
    high: Ints,
    timed: Ints,
    back: Mask,
) -> pa.RecordBatch:
    logs, ids = codes_of(like.column("log_id"))
    segments, names = codes_of(like.column("segment"))
    wide = len(names) + 1
    key = logs.astype(np.int64) * wide + segments + 1
    runs = RunColumns(key, first, last, low, high, timed, back).joined()
    topic_of = _first_topics(like, logs, len(ids))
    of_log = runs.key // wide
    return pa.RecordBatch.from_arrays(
        [
            pa.array(topic_of, pa.string()).take(pa.array(of_log)),
            pa.array(ids, pa.string()).take(pa.array(of_log)),
            pa.array([None, *names], pa.string()).take(pa.array(runs.key % wide)),
            *(pa.array(c) for c in (runs.first, runs.last, runs.low, runs.high, runs.timed)),
            pa.array(runs.back),
        ],
        schema=RUNS,
    )


def _first_topics(like: pa.RecordBatch | pa.Table, logs: Codes, count: int) -> list[str]:
    """The name of the topic of each log_id."""
    topics, names = codes_of(like.column("topic"))
    found = [""] * count
    pairs = np.unique(logs.astype(np.int64) << 32 | topics)
    for pair in pairs.tolist():
        found[pair >> 32] = names[pair & 0xFFFFFFFF]
    return found
