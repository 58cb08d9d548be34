"""From sorted rows of records and events to a row per job, batch by batch, inside a Spark task.

Owns: the columns that go into the fold and come out of it, and how a job that spans batches is put
together. Must not know: Spark, where rows come from. Runs in executors, so it imports pyarrow at
the top and nothing that is not in the package.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

import pyarrow as pa

from logqueue.pipeline.lifecycle.job_history import APPENDED, JobTimeline
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, JOBS

MS_PER_DAY = 86_400_000
JOBS_PER_BATCH = 4096


_OF_JOB = ("job_seq", "topic", "tag", "key", "date", "log_id")
ATTEMPT_FIELDS = tuple(c for c in ATTEMPTS.columns if c.name not in _OF_JOB)


def attempt_type() -> pa.DataType:
    """The Arrow type of an attempt inside a job's row."""
    schema = ATTEMPTS.arrow()
    return pa.struct([schema.field(column.name) for column in ATTEMPT_FIELDS])


def folder(
    end: int, topics: Mapping[str, str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The fold as Spark calls it: takes rows of records and events, returns a row per job.

    Rows come sorted by (seq, log_id, lseq, kind). `kind` is a place in `EVENTS`; times are ms since
    the epoch, 0 for none. Of a record: `due` is not_before, `lease` its key, `detail` its tag.

    Args:
        end: Of the range, ms since the epoch.
        topics: Names by log id.
    """

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Millions of small objects without cycles: looking for cycles would take half of the time.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield from _fold(batches, end, topics)
        finally:
            if was_enabled:
                gc.enable()

    return fold


def _fold(
    batches: Iterable[pa.RecordBatch], end: int, topics: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    rows = JobRows()
    for log_id, seq, tag, key, job in jobs_of(batches):
        job.close(end)
        rows.add(log_id, topics.get(log_id), seq, tag, key, job)
        if len(rows) == JOBS_PER_BATCH:
            yield rows.batch()
            rows = JobRows()
    if len(rows):
        yield rows.batch()


_Told = tuple[str, int, str | None, str | None, JobTimeline]


def jobs_of(batches: Iterable[pa.RecordBatch]) -> Iterator[_Told]:
    """Each job with its identity (log id, seq, tag, key), all its events taken in."""
    known: tuple[str, int] | None = None
    tag = key = None
    job = JobTimeline()
    for batch in batches:
        columns = [_longs(batch, name) for name in ("seq", "kind", "ts", "due")]
        words = [_words(batch, name) for name in ("log_id", "who", "reason")]
        texts = [batch.column(name).to_pylist() for name in ("lease", "detail")]
        for seq, kind, ts, due, log_id, who, reason, lease, detail in zip(
            *columns, *words, *texts, strict=True
        ):
            if known is None or seq != known[1] or log_id != known[0]:
                if known is not None and job.is_known:
                    yield known[0], known[1], tag, key, job
                known, tag, key = (log_id, seq), None, None
                job = JobTimeline()
            if kind == APPENDED:
                key, tag = lease, detail
                job.append(ts, due)
            else:
                job.take(kind, ts, due, who or None, lease, reason or None, detail)
    if known is not None and job.is_known:
        yield known[0], known[1], tag, key, job


def _longs(batch: pa.RecordBatch, name: str) -> list[int]:
    """A BIGINT column without nulls as a list; much faster than value by value."""
    column = batch.column(name)
    values = memoryview(column.buffers()[1]).cast("B").cast("q")
    return values[column.offset : column.offset + len(column)].tolist()


def _words(batch: pa.RecordBatch, name: str) -> list[str | None]:
    """A text column with few distinct values as a list; each value is decoded once."""
    column = batch.column(name).dictionary_encode()
    distinct = [*column.dictionary.to_pylist(), None]
    return [distinct[i] for i in column.indices.fill_null(len(distinct) - 1).to_pylist()]


class JobRows:
    """Rows of jobs with their attempts, gathered into one batch."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._steps: list[Any] = []
        self._attempts: list[Any] = []
        self._step_counts: list[int] = []
        self._attempt_counts: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        log_id: str,
        topic: str | None,
        seq: int,
        tag: str | None,
        key: str | None,
        job: JobTimeline,
    ) -> None:
        """Take in a job that is closed."""
        attempts = job.attempts
        first_claim = attempts[0].claimed_at if attempts else 0
        ready = job.first_ready_at or (attempts[0].ready_at if attempts else 0)
        finished = job.finished_at
        self._rows.append(
            (
                topic,
                seq,
                tag,
                key,
                job.appended_at or None,
                ready or None,
                first_claim or None,
                finished or None,
                job.state,
                len(attempts),
                job.deliveries,
                max(first_claim - ready, 0) if first_claim and ready else None,
                max(finished - ready, 0) if finished and ready else None,
                job.run_ms,
                job.wasted_ms,
                job.last_reason,
                job.last_error,
                job.last_worker,
                job.variant,
                job.began_at // MS_PER_DAY,
                log_id,
            )
        )
        self._steps += job.steps
        self._step_counts.append(len(job.steps))
        self._attempts += attempts
        self._attempt_counts.append(len(attempts))

    def batch(self) -> pa.RecordBatch:
        """All rows so far, as Spark expects them."""
        schema = JOBS.arrow()
        columns = dict(
            zip((n for n in JOBS.names if n != "steps"), zip(*self._rows, strict=True), strict=True)
        )
        arrays = []
        fields = []
        for field in schema:
            if field.name == "steps":
                array = _lists(self._steps, self._step_counts, field.type.value_type, _step_columns)
            else:
                array = _array(columns[field.name], field.type)
            arrays.append(array)
            fields.append(field)
        leases = _lists(self._attempts, self._attempt_counts, attempt_type(), _attempt_columns)
        fields.append(pa.field("leases", leases.type))
        return pa.RecordBatch.from_arrays([*arrays, leases], schema=pa.schema(fields))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.timestamp("ms", tz="UTC")).cast(kind)
    return pa.array(values, kind)


def _lists(
    items: list[Any],
    counts: list[int],
    kind: pa.DataType,
    columns: Callable[[list[Any]], list[Any]],
) -> pa.Array:
    """A column of lists of structs."""
    arrays = [
        _array(values, field.type) for values, field in zip(columns(items), kind, strict=True)
    ]
    structs = pa.StructArray.from_arrays(arrays, fields=list(kind))
    offsets = pa.array(accumulate(counts, initial=0), pa.int32())
    return pa.ListArray.from_arrays(offsets, structs, type=pa.list_(pa.field("element", kind)))


def _step_columns(steps: list[Any]) -> list[Any]:
    return [*zip(*steps, strict=True)] if steps else [[], [], [], []]


def _attempt_columns(attempts: list[Any]) -> list[Any]:
    """In the order of `ATTEMPT_FIELDS`."""
    rows = []
    for (
        lease, attempt, worker, ready, claimed, ended, outcome, reason, error, extensions,
        deadline, overrun,
    ) in attempts:  # fmt: skip
        rows.append(
            (
                lease,
                attempt,
                worker,
                ready or None,
                claimed,
                ended or None,
                outcome,
                reason,
                error,
                extensions,
                deadline or None,
                max(claimed - ready, 0) if ready else None,
                ended - claimed if ended else None,
                overrun if ended else None,
            )
        )
    return [*zip(*rows, strict=True)] if rows else [[] for _ in ATTEMPT_FIELDS]
