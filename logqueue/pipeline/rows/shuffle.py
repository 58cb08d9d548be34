"""Rows of records and events, in whatever order they come, brought together by job.

Owns: runs of rows on disk, each in the order of buckets of neighbouring jobs, and the sorted rows
of some buckets read from all runs. Must not know: what rows mean, who folds them.

Memory is bounded: a run is written whenever enough rows are there, and what is read at once are the
rows of a few thousand jobs. Jobs are neighbours by seq, so rows of a bucket are of about one time,
and so are the files that are made of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from logqueue.pipeline.lifecycle.job_history import TRIMMED
from logqueue.pipeline.rows.history_batches import FOLD_SCHEMA
from logqueue.pipeline.rows.job_columns import Longs

RUN_ROWS = 500_000
RUN_BYTES = 256 << 20
"""A run has about as many rows or bytes."""

SEQS_PER_BUCKET = 4096
GROUP_ROWS_MIN = 131_072
"""Neighbouring buckets are read together until there are as many rows."""

_WORD = pa.dictionary(pa.int32(), pa.string())
_CODED = frozenset({"log_id", "who", "reason"})
ROW_SCHEMA = pa.schema(
    [pa.field(f.name, _WORD if f.name in _CODED else f.type) for f in FOLD_SCHEMA]
)
"""As `FOLD_SCHEMA`; texts with few distinct values are dictionaries."""


class RunPart(NamedTuple):
    """One batch of a run on disk."""

    path: str
    batch: int

    def read(self) -> pa.RecordBatch:
        """Its rows."""
        with pa.memory_map(self.path) as file, pa.ipc.open_file(file) as run:
            return run.get_batch(self.batch)


class Floors(NamedTuple):
    """How the floor of one log rose: from each of these orders on, seqs up to one are trimmed."""

    first_seq: int
    seq: Longs
    lseq: Longs
    ts: Longs
    reason: list[str | None]


@dataclass
class Group:
    """Neighbouring buckets whose rows are read at once."""

    rows: int = 0
    parts: list[RunPart | pa.RecordBatch] = field(default_factory=list)

    def read(self) -> pa.RecordBatch:
        """Their rows, without floors, in no order."""
        return _one_batch(
            [part.read() if isinstance(part, RunPart) else part for part in self.parts]
        )


def sorted_rows(rows: pa.RecordBatch, floors: Mapping[str, Floors]) -> pa.RecordBatch:
    """Rows as the fold takes them: all of a job together and in order, with a `trimmed` for each
    job that a floor passed over when it rose."""
    trimmed = _trimmed(rows, floors)
    if trimmed is not None:
        rows = _one_batch([rows, trimmed])
    log, seq, lseq, kind = (
        rows.column("log_id").indices.to_numpy(),
        *(rows.column(name).to_numpy() for name in ("seq", "lseq", "kind")),
    )
    return rows.take(pa.array(np.lexsort((kind, lseq, seq, log))))


class Shuffle:
    """Takes rows in, gives them back by groups of jobs.

    Args:
        folder: Where runs are written; what fits into one run stays in memory.
        first_seqs: Of the logs whose rows count, the lowest seq of a record.
        end: Of the range, ms since the epoch; later rows do not count.
    """

    def __init__(self, folder: str, first_seqs: Mapping[str, int], end: int) -> None:
        self._folder = folder
        self._first_seqs = first_seqs
        self._codes = {log_id: code for code, log_id in enumerate(sorted(first_seqs))}
        self._logs = pa.array(sorted(first_seqs), pa.string())
        self._end = end
        self._pending: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._floors: list[pa.RecordBatch] = []
        self._buckets: dict[int, Group] = {}
        self._runs = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in rows in the columns of `FOLD_SCHEMA`, in any order. With `trimmed`, `seq` is the
        floor: it is about this job and all before it."""
        rows = self._counted(batch)
        is_floor = rows.column("kind").to_numpy() == TRIMMED
        if is_floor.any():
            self._floors.append(rows.filter(pa.array(is_floor)))
            rows = rows.filter(pa.array(~is_floor))
        if rows.num_rows:
            self._pending.append(rows)
            self._rows += rows.num_rows
            self._bytes += rows.nbytes
            if self._rows >= RUN_ROWS or self._bytes >= RUN_BYTES:
                self._end_run(is_only=False)

    @property
    def is_in_memory(self) -> bool:
        """Whether no run was written."""
        return not self._runs

    def groups(self) -> list[Group]:
        """All rows are there: give them by groups, neighbours next to each other."""
        self._end_run(is_only=not self._runs)
        groups: list[Group] = []
        for _, bucket in sorted(self._buckets.items()):
            if not groups or groups[-1].rows >= GROUP_ROWS_MIN:
                groups.append(Group())
            groups[-1].rows += bucket.rows
            groups[-1].parts += bucket.parts
        return groups

    def floors(self) -> dict[str, Floors]:
        """The floors of logs of which there are records, by log id."""
        if not self._floors:
            return {}
        rows = _one_batch(self._floors)
        logs = rows.column("log_id").indices.to_numpy()
        found = {}
        for log_id, code in self._codes.items():
            its = np.flatnonzero(logs == code)
            if len(its) and self._first_seqs[log_id]:
                found[log_id] = _floors(rows.take(pa.array(its)), self._first_seqs[log_id])
        return found

    def _counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that count, in the columns of `ROW_SCHEMA`."""
        column = batch.column("log_id")
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        codes = np.array([self._codes.get(n, -1) for n in encoded.dictionary.to_pylist()], np.int32)
        logs = codes[encoded.indices.to_numpy()]
        columns = []
        for wanted in ROW_SCHEMA:
            given = batch.column(wanted.name)
            if wanted.name == "log_id":
                given = pa.DictionaryArray.from_arrays(pa.array(logs), self._logs, safe=False)
            elif wanted.type == _WORD and not pa.types.is_dictionary(given.type):
                given = given.dictionary_encode()
            columns.append(given if given.type == wanted.type else given.cast(wanted.type))
        counts = (logs >= 0) & (batch.column("ts").to_numpy() <= self._end)
        rows = pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)
        return rows if counts.all() else rows.filter(pa.array(counts))

    def _end_run(self, is_only: bool) -> None:
        """Order the rows so far by buckets, and write them unless they are all there is."""
        if not self._pending:
            return
        rows = _one_batch(self._pending)
        self._pending, self._rows, self._bytes = [], 0, 0
        log, seq = rows.column("log_id").indices.to_numpy(), rows.column("seq").to_numpy()
        bucket = (log.astype(np.int64) << 40) + seq // SEQS_PER_BUCKET
        if (bucket[1:] < bucket[:-1]).any():
            order = np.argsort(bucket, kind="stable")
            rows, bucket = rows.take(pa.array(order)), bucket[order]
        starts = np.flatnonzero(np.diff(bucket, prepend=-1))
        ends = np.append(starts[1:], len(bucket))
        parts: Iterator[RunPart | pa.RecordBatch] = (
            rows.slice(first, end - first)
            for first, end in zip(starts.tolist(), ends.tolist(), strict=True)
        )
        if not is_only:
            parts = self._written(parts)
        numbers = bucket[starts].tolist()
        for number, part, count in zip(numbers, parts, (ends - starts).tolist(), strict=True):
            its = self._buckets.setdefault(number, Group())
            its.rows += count
            its.parts.append(part)

    def _written(self, parts: Iterator[RunPart | pa.RecordBatch]) -> Iterator[RunPart]:
        path = os.path.join(self._folder, f"run-{self._runs:05}.arrow")
        self._runs += 1
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, ROW_SCHEMA) as run:
            for number, part in enumerate(parts):
                run.write_batch(part)
                yield RunPart(path, number)


def _one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    (made,) = table.to_batches()
    return made


def _floors(rows: pa.RecordBatch, first_seq: int) -> Floors:
    """Those of one log that are higher than all before them."""
    lseq, seq = rows.column("lseq").to_numpy(), rows.column("seq").to_numpy()
    order = np.lexsort((seq, lseq))
    seq = seq[order]
    rose = np.ones(len(seq), np.bool_)
    rose[1:] = seq[1:] > np.maximum.accumulate(seq)[:-1]
    kept = rows.take(pa.array(order[rose]))
    return Floors(
        first_seq,
        seq[rose],
        kept.column("lseq").to_numpy(),
        kept.column("ts").to_numpy(),
        kept.column("reason").to_pylist(),
    )


def _trimmed(rows: pa.RecordBatch, floors: Mapping[str, Floors]) -> pa.RecordBatch | None:
    logs = rows.column("log_id")
    made = []
    for code, log_id in enumerate(logs.dictionary.to_pylist()):
        if log_id not in floors:
            continue
        its = floors[log_id]
        seqs = np.unique(rows.column("seq").to_numpy()[logs.indices.to_numpy() == code])
        seqs = seqs[(seqs >= its.first_seq) & (seqs <= its.seq[-1])]
        floor = np.searchsorted(its.seq, seqs)
        count = len(seqs)
        reasons = pa.array(its.reason, pa.string()).dictionary_encode()
        columns = {
            "log_id": pa.DictionaryArray.from_arrays(
                pa.array(np.full(count, code, np.int32)), logs.dictionary
            ),
            "seq": pa.array(seqs),
            "lseq": pa.array(its.lseq[floor]),
            "kind": pa.array(np.full(count, TRIMMED)),
            "ts": pa.array(its.ts[floor]),
            "due": pa.array(np.zeros(count, np.int64)),
            "reason": reasons.take(pa.array(floor)),
        }
        made.append(
            pa.RecordBatch.from_arrays(
                [columns.get(f.name, pa.nulls(count, f.type)) for f in ROW_SCHEMA],
                schema=ROW_SCHEMA,
            )
        )
    return _one_batch(made) if made else None
