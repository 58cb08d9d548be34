"""Rows of records and events, in whatever order they come, brought together by job.

Owns: runs of rows on disk, each in the order of buckets of neighbouring jobs, and the sorted rows
of some buckets read from all runs. Must not know: what rows mean, who folds them.

Memory is bounded: a run is written whenever enough rows are there, and what is read at once are the
rows of a few thousand jobs. Jobs are neighbours by seq, so rows of a bucket are of about one time,
and so are the files that are made of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from logqueue.pipeline.lifecycle.job_history import TRIMMED
from logqueue.pipeline.rows.fold_rows import ROWS_SCHEMA
from logqueue.pipeline.rows.job_columns import Longs

RUN_ROWS = 500_000
RUN_BYTES = 256 << 20
"""A run has about as many rows or bytes."""

SEQS_PER_BUCKET = 4096
GROUP_ROWS_MIN = 131_072
"""Neighbouring buckets are read together until there are as many rows."""
GROUP_ROWS_MAX = 4_000_000
GROUP_BYTES_MAX = 512 << 20
"""No more are read at once, unless one job has more."""


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
    """Neighbouring buckets whose rows are read at once.

    Attributes:
        size: About as many bytes.
        share: Which share of their jobs: this one of so many.
    """

    rows: int = 0
    parts: list[RunPart | pa.RecordBatch] = field(default_factory=list)
    share: tuple[int, int] = (0, 1)
    size: int = 0

    def shares(self) -> list[Group]:
        """The same in as many groups as it takes to read bearable numbers of rows at once: where
        jobs have thousands of events each, or long texts."""
        count = max(-(-self.rows // GROUP_ROWS_MAX), -(-self.size // GROUP_BYTES_MAX))
        return [Group(self.rows // count, self.parts, (n, count)) for n in range(count)]

    def read(self) -> pa.RecordBatch:
        """Their rows, without floors, in no order."""
        return one_batch([self._shared(part) for part in self.parts])

    def _shared(self, part: RunPart | pa.RecordBatch) -> pa.RecordBatch:
        rows = part.read() if isinstance(part, RunPart) else part
        this, count = self.share
        if count == 1:
            return rows
        return rows.filter(pa.array(rows.column("seq").to_numpy() % count == this))


def sorted_rows(rows: pa.RecordBatch, floors: Mapping[str, Floors]) -> pa.RecordBatch:
    """Rows as the fold takes them: all of a job together and in order, with a `trimmed` for each
    job that a floor passed over when it rose."""
    trimmed = _trimmed(rows, floors)
    if trimmed is not None:
        rows = one_batch([rows, trimmed])
    log, seq, lseq, kind = (
        rows.column("log_id").indices.to_numpy(),
        *(rows.column(name).to_numpy() for name in ("seq", "lseq", "kind")),
    )
    return rows.take(pa.array(np.lexsort((kind, lseq, seq, log))))


class BucketPiece(NamedTuple):
    """The rows of a bucket that are in one run."""

    log_id: str
    bucket: int
    rows: int
    part: RunPart | pa.RecordBatch
    size: int


class Shuffled(NamedTuple):
    """Rows in runs, and rows of floors."""

    pieces: list[BucketPiece]
    floors: list[pa.RecordBatch]


def shuffle(
    batches: Iterable[pa.RecordBatch], folder: str, name: str, *, spills_all: bool
) -> Shuffled:
    """Put rows into the order of buckets, run by run.

    Args:
        batches: Rows in the columns of `ROWS_SCHEMA`, in any order. With `trimmed`, `seq` is the
            floor: it is about this job and all before it.
        folder: Where runs are written.
        name: Begins the names of their files.
        spills_all: Whether to write all; otherwise, rows that make one run stay in memory.
    """
    made = Shuffled([], [])
    pending: list[pa.RecordBatch] = []
    rows = size = runs = 0

    def end_run(writes: bool) -> None:
        nonlocal pending, rows, size, runs
        path = os.path.join(folder, f"{name}-{runs:05}.arrow") if writes else None
        made.pieces.extend(_run(pending, path))
        pending, rows, size, runs = [], 0, 0, runs + 1

    for batch in batches:
        is_floor = batch.column("kind").to_numpy() == TRIMMED
        if is_floor.any():
            made.floors.append(batch.filter(pa.array(is_floor)))
            batch = batch.filter(pa.array(~is_floor))
        if batch.num_rows:
            pending.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows >= RUN_ROWS or size >= RUN_BYTES:
                end_run(writes=True)
    if pending:
        end_run(writes=spills_all or runs > 0)
    return made


def _run(batches: Sequence[pa.RecordBatch], path: str | None) -> Iterator[BucketPiece]:
    """One run: in a file, or in memory without one."""
    rows = one_batch(batches)
    logs = rows.column("log_id")
    seq = rows.column("seq").to_numpy()
    bucket = (logs.indices.to_numpy().astype(np.int64) << 40) + seq // SEQS_PER_BUCKET
    if (bucket[1:] < bucket[:-1]).any():
        order = np.argsort(bucket, kind="stable")
        rows, bucket = rows.take(pa.array(order)), bucket[order]
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    counts = np.diff(starts, append=len(bucket))
    log_ids = logs.dictionary.to_pylist()
    with ExitStack() as stack:
        run = None
        if path is not None:
            file = stack.enter_context(pa.OSFile(path, "wb"))
            run = stack.enter_context(pa.ipc.new_file(file, rows.schema))
        for number, (first, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True)):
            part = rows.slice(first, count)
            if run is not None:
                run.write_batch(part)
            log, bucket_of_log = divmod(int(bucket[first]), 1 << 40)
            place = part if path is None else RunPart(path, number)
            yield BucketPiece(log_ids[log], bucket_of_log, count, place, part.nbytes)


def grouped(pieces: Iterable[BucketPiece]) -> list[Group]:
    """All rows by groups, neighbours next to each other."""
    groups: list[Group] = []
    before: tuple[str, int] | None = None
    for piece in sorted(pieces, key=lambda piece: piece[:2]):
        if not groups or (groups[-1].rows >= GROUP_ROWS_MIN and piece[:2] != before):
            groups.append(Group())
        before = piece[:2]
        groups[-1].rows += piece.rows
        groups[-1].size += piece.size
        groups[-1].parts.append(piece.part)
    return [share for group in groups for share in group.shares()]


def floors_of(
    batches: Sequence[pa.RecordBatch], first_seqs: Mapping[str, int]
) -> dict[str, Floors]:
    """The floors of some logs by log id.

    Args:
        batches: Rows of floors.
        first_seqs: Of each log, the lowest seq of a record.
    """
    if not batches:
        return {}
    rows = one_batch(batches)
    logs = rows.column("log_id")
    found = {}
    for code, log_id in enumerate(logs.dictionary.to_pylist()):
        its = np.flatnonzero(logs.indices.to_numpy() == code)
        if len(its) and log_id in first_seqs:
            found[log_id] = _floors(rows.take(pa.array(its)), first_seqs[log_id])
    return found


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Some batches, at least one, as one."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    # Of no rows there is no batch.
    (found,) = table.to_batches() or batches[:1]
    return found


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
                [columns.get(f.name, pa.nulls(count, f.type)) for f in ROWS_SCHEMA],
                schema=ROWS_SCHEMA,
            )
        )
    return one_batch(made) if made else None
