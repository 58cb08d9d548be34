"""From sorted rows of records and events to a row per job, batch by batch.

Owns: the columns that go into the fold, how a job that spans batches is put together, and which
jobs are folded by column: all but the few with very many events. Must not know: engines, where rows
come from. Runs in executors and worker processes, so it imports nothing that is not in the package.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from logqueue.pipeline.lifecycle.job_history import APPENDED, JobTimeline
from logqueue.pipeline.rows.job_batches import JobRows, Texts, batch_of
from logqueue.pipeline.rows.job_columns import NONE, WORDS, Codes, Flags, JobColumns, Longs, Rows

ROWS_PER_CHUNK = 65_536
"""So many rows are folded at once, if there are that many: their columns fit in a processor's
cache, and what is done once for all is little for each."""

BYTES_PER_CHUNK = 64 << 20

LONG_ROWS_MIN = 65
"""A job with as many rows is folded row by row: few have a hundredth event, and what is done for
all that have one would be done for them alone."""
LONG_JOBS_PER_BATCH = 4096

FOLD_SCHEMA = pa.schema(
    [
        ("log_id", pa.string()),
        ("seq", pa.int64()),
        ("lseq", pa.int64()),
        ("kind", pa.int64()),
        ("ts", pa.int64()),
        ("due", pa.int64()),
        ("who", pa.string()),
        ("lease", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)
"""The rows that are folded, see `folder`; texts may be dictionaries."""


def folder(
    end: int, topics: Mapping[str, str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The fold: takes rows of records and events, returns a row per job.

    Rows come sorted by (seq, log_id, lseq, kind), in the columns of `FOLD_SCHEMA`; `lseq` itself
    may be left out. `kind` is a place in `EVENTS`; times are ms since the epoch, 0 for none. Of a
    record: `due` is not_before, `lease` its key, `detail` its tag.

    Args:
        end: Of the range, ms since the epoch.
        topics: Names by log id.
    """

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _Fold(end, topics).run(batches)

    return fold


class _Fold:
    """One pass over sorted rows."""

    def __init__(self, end: int, topics: Mapping[str, str]) -> None:
        self._end = end
        self._topics = topics
        self._long: _LongJob | None = None
        self._long_rows = JobRows()

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give rows of jobs."""
        pending: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            pending.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows >= ROWS_PER_CHUNK or size >= BYTES_PER_CHUNK:
                left = yield from self._fold(_Chunk(pending), is_last=False)
                pending, rows, size = [left] if left.num_rows else [], left.num_rows, left.nbytes
        if rows:
            yield from self._fold(_Chunk(pending), is_last=True)
        self._close_long()
        if len(self._long_rows):
            yield self._long_rows.batch()

    def _fold(
        self, chunk: _Chunk, is_last: bool
    ) -> Generator[pa.RecordBatch, None, pa.RecordBatch]:
        """Fold the jobs of a chunk.

        Unless the chunk is the last one, the job at its end may go on in the next: it is taken in
        so far when it is long, and otherwise left.

        Returns:
            The rows that were left.
        """
        is_long = np.diff(chunk.starts) >= LONG_ROWS_MIN
        if self._long is not None and self._long.identity == chunk.identity(0):
            is_long[0] = True
        for job in np.flatnonzero(is_long).tolist():
            self._follow_long(chunk, job)
        if len(self._long_rows) >= LONG_JOBS_PER_BATCH:
            yield self._long_rows.batch()
            self._long_rows = JobRows()
        by_column = ~is_long
        if not is_last:
            by_column[-1] = False
        if by_column.any():
            yield _by_column(chunk.of_jobs(by_column), self._end, self._topics)
        is_left = not is_last and not is_long[-1]
        return chunk.rows.slice(chunk.starts[-2] if is_left else chunk.rows.num_rows)

    def _follow_long(self, chunk: _Chunk, job: int) -> None:
        identity = chunk.identity(job)
        if self._long is None or self._long.identity != identity:
            self._close_long()
            self._long = _LongJob(identity)
        first, end = chunk.starts[job : job + 2].tolist()
        self._long.take(chunk.rows.slice(first, end - first))

    def _close_long(self) -> None:
        """It has no more rows."""
        if self._long is not None and self._long.job.is_known:
            log_id, seq = self._long.identity
            self._long.job.close(self._end)
            self._long_rows.add(
                log_id,
                self._topics.get(log_id),
                seq,
                self._long.tag,
                self._long.key,
                self._long.job,
            )
        self._long = None


class _LongJob:
    """One job, followed row by row.

    Attributes:
        identity: Log id and seq.
    """

    def __init__(self, identity: tuple[str, int]) -> None:
        self.identity = identity
        self.tag: str | None = None
        self.key: str | None = None
        self.job = JobTimeline()

    def take(self, rows: pa.RecordBatch) -> None:
        """Take in its next rows."""
        names = ("kind", "ts", "due", "who", "lease", "reason", "detail")
        for kind, ts, due, who, lease, reason, detail in zip(
            *(rows.column(name).to_pylist() for name in names), strict=True
        ):
            if kind == APPENDED:
                self.key, self.tag = lease, detail
                self.job.append(ts, due)
            else:
                self.job.take(kind, ts, due, who or None, lease, reason or None, detail)


class _Chunk:
    """Some rows, with where each job begins.

    Attributes:
        rows: One batch.
        log_ids: Distinct ones.
        log: Of each row, a place in `log_ids`.
        seq: Of each row.
        starts: The first row of each job, and the number of rows at the end.
    """

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
        (self.rows,) = table.to_batches()
        log = _encoded(self.rows.column("log_id"))
        self.log_ids = log.dictionary
        self.log: Longs = log.indices.to_numpy().astype(np.int64)
        self.seq: Longs = self.rows.column("seq").to_numpy()
        is_first = np.ones(len(self.seq), np.bool_)
        is_first[1:] = (self.seq[1:] != self.seq[:-1]) | (self.log[1:] != self.log[:-1])
        self.starts: Longs = np.append(np.flatnonzero(is_first), len(self.seq))

    def identity(self, job: int) -> tuple[str, int]:
        """Log id and seq of a job."""
        row = self.starts[job]
        return self.log_ids[self.log[row]].as_py(), int(self.seq[row])

    def of_jobs(self, which: Flags) -> _Chunk:
        """The same with only some jobs."""
        if which.all():
            return self
        return _Chunk([self.rows.filter(pa.array(np.repeat(which, np.diff(self.starts))))])


def _by_column(chunk: _Chunk, end: int, topics: Mapping[str, str]) -> pa.RecordBatch:
    """The rows of all jobs of a chunk."""
    batch = chunk.rows
    workers, who = _codes(batch.column("who"), {})
    words, reason = _codes(batch.column("reason"), {word: n for n, word in enumerate(WORDS)})
    has_detail = batch.column("detail").is_valid().to_numpy(zero_copy_only=False)
    kind, ts, due = (batch.column(name).to_numpy() for name in ("kind", "ts", "due"))
    jobs = JobColumns(Rows(kind, ts, due, who, reason, has_detail, chunk.starts))
    jobs.follow(end)
    firsts = chunk.starts[:-1]
    names = pa.array([topics.get(log_id) for log_id in chunk.log_ids.to_pylist()], pa.string())
    texts = Texts(
        chunk.log_ids,
        names,
        chunk.log[firsts],
        chunk.seq[firsts],
        workers,
        words,
        *(_plain(batch.column(name)) for name in ("lease", "detail")),
    )
    return batch_of(jobs, chunk.starts, texts)


def _codes(column: pa.Array, known: dict[str, int]) -> tuple[pa.Array, Codes]:
    """A text column with few distinct values as codes; an empty text is none.

    Args:
        known: Texts that have codes, in order.
    """
    encoded = _encoded(column)
    codes = dict(known)
    of_dictionary = [
        codes.setdefault(text, len(codes)) if text else NONE
        for text in encoded.dictionary.to_pylist()
    ]
    places = encoded.indices.fill_null(len(of_dictionary)).to_numpy()
    return pa.array(codes, pa.string()), np.array([*of_dictionary, NONE], np.int32)[places]


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
