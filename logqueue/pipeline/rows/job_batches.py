"""Jobs that were followed, by column or one by one, as rows of `jobs` with their attempts.

Owns: the columns that come out of the fold. Must not know: Spark, where rows come from, what events
mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logqueue.pipeline.lifecycle.job_history import (
    NOT_IN_VARIANTS,
    JobTimeline,
    variant_of,
)
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, JOBS
from logqueue.pipeline.reading.calendar import LAST_MS
from logqueue.pipeline.rows.job_columns import NONE, STEPS_PER_ROW, WORDS, Flags, JobColumns, Longs

MS_PER_DAY = 86_400_000

_OF_JOB = ("job_seq", "topic", "tag", "key", "date", "log_id")
ATTEMPT_FIELDS = tuple(c for c in ATTEMPTS.columns if c.name not in _OF_JOB)

_SCHEMA = JOBS.arrow()
_STEP = _SCHEMA.field("steps").type.value_type
_TIME = pa.timestamp("us", tz="UTC")
_PASSED_OVER = [WORDS.index(word) for word in sorted(NOT_IN_VARIANTS)]


def attempt_type() -> pa.DataType:
    """The Arrow type of an attempt inside a job's row."""
    schema = ATTEMPTS.arrow()
    return pa.struct([schema.field(column.name) for column in ATTEMPT_FIELDS])


_ATTEMPT = attempt_type()


def jobs_in(folded: pa.RecordBatch) -> pa.Table:
    """The rows of `jobs` in a batch of the fold."""
    return pa.Table.from_batches([folded]).select(list(JOBS.names))


def attempts_in(folded: pa.RecordBatch) -> pa.Table:
    """The rows of `attempts` in a batch of the fold."""
    leases = folded.column("leases")
    jobs = folded.select(["topic", "seq", "tag", "key", "date", "log_id"])
    columns = dict(
        zip(
            ("topic", "job_seq", "tag", "key", "date", "log_id"),
            jobs.take(pc.list_parent_indices(leases)).columns,
            strict=True,
        )
    )
    parts = leases.flatten()
    for place, field in enumerate(ATTEMPT_FIELDS):
        columns[field.name] = parts.field(place)
    return pa.table([columns[name] for name in ATTEMPTS.names], ATTEMPTS.arrow())


class Texts(NamedTuple):
    """The texts behind the codes and rows of `JobColumns`.

    Attributes:
        log_ids, topics: By log.
        log, seq: Of each job: which log, and its seq.
        workers, words: By code.
        lease, detail: By row.
    """

    log_ids: pa.Array
    topics: pa.Array
    log: Longs
    seq: Longs
    workers: pa.Array
    words: pa.Array
    lease: pa.Array
    detail: pa.Array


# -- by column -------------------------------------------------------------------------------------


def batch_of(jobs: JobColumns, starts: Longs, texts: Texts) -> pa.RecordBatch:
    """The rows of all jobs of which something is known.

    Args:
        jobs: Closed.
        starts: As they were followed by.
    """
    known = np.flatnonzero(jobs.is_known)
    claims = np.flatnonzero(jobs.outcome != NONE)
    claims_before = _counts_before(jobs.outcome != NONE)
    firsts = claims_before[starts[known]]
    attempts = claims_before[starts[known + 1]] - firsts
    ready, first_claim = jobs.first_ready_at[known], np.zeros(len(known), np.int64)
    first = claims[firsts[attempts > 0]]
    first_claim[attempts > 0] = jobs.claimed_at[first]
    ready_from = np.zeros(len(known), np.int64)
    ready_from[attempts > 0] = jobs.ready_from[first]
    ready = np.where(ready != 0, ready, ready_from)
    finished = jobs.finished_at[known]
    variants, steps = _steps(jobs, starts, known, texts)
    record = texts.detail.take(_rows(jobs.record[known]))
    columns: dict[str, pa.Array] = {
        "topic": texts.topics.take(pa.array(texts.log[known])),
        "seq": pa.array(texts.seq[known]),
        "tag": record,
        "key": texts.lease.take(_rows(jobs.record[known])),
        "appended_at": _times(jobs.appended_at[known]),
        "ready_at": _times(ready),
        "first_claim_at": _times(first_claim),
        "finished_at": _times(finished),
        "state": _coded(jobs.state[known], texts.words),
        "attempts": pa.array(attempts.astype(np.int32)),
        "deliveries": pa.array(jobs.deliveries[known].astype(np.int32)),
        "wait_ms": _lasting(ready, first_claim),
        "e2e_ms": _lasting(ready, finished),
        "run_ms_total": pa.array(jobs.run_ms[known]),
        "wasted_ms": pa.array(jobs.wasted_ms[known]),
        "last_reason": _coded(jobs.last_reason[known], texts.words),
        "last_error": texts.detail.take(_rows(jobs.last_error[known])),
        "last_worker": _coded(jobs.last_worker[known], texts.workers),
        "variant": variants,
        "steps": steps,
        "date": pa.array((jobs.began_at[known] // MS_PER_DAY).astype(np.int32), pa.date32()),
        "log_id": texts.log_ids.take(pa.array(texts.log[known])),
    }
    ends = np.append(firsts, len(claims))
    leases = _list_of(_attempts(jobs, claims, texts), _ATTEMPT, ends)
    return _batch([columns[field.name] for field in _SCHEMA], leases)


def _steps(
    jobs: JobColumns, starts: Longs, known: Longs, texts: Texts
) -> tuple[pa.Array, pa.Array]:
    """Variants, and lists of steps."""
    places = STEPS_PER_ROW * starts + np.arange(len(starts))
    there = jobs.activity != NONE
    activity = jobs.activity[there]
    ends = np.append(_counts_before(there)[places[known]], len(activity))
    columns = [
        _coded(activity, texts.words),
        _times(jobs.step_at[there], zero_is_null=False),
        _coded(jobs.step_state[there], texts.words),
        _coded(jobs.step_worker[there], texts.workers),
    ]
    is_named = ~np.isin(activity, _PASSED_OVER)
    named = activity[is_named].astype(np.uint8)
    named_ends = _counts_before(is_named)[ends].astype(np.int32)
    sequences = pa.Array.from_buffers(
        pa.binary(), len(known), [None, pa.py_buffer(named_ends), pa.py_buffer(named)]
    ).dictionary_encode()
    texts_of = [variant_of([WORDS[n] for n in text]) for text in sequences.dictionary.to_pylist()]
    variants = pa.DictionaryArray.from_arrays(sequences.indices, pa.array(texts_of, pa.string()))
    return variants.cast(pa.string()), _list_of(columns, _STEP, ends)


def _attempts(jobs: JobColumns, claims: Longs, texts: Texts) -> list[pa.Array]:
    """In the order of `ATTEMPT_FIELDS`."""
    ready, claimed, ended = (
        column[claims] for column in (jobs.ready_from, jobs.claimed_at, jobs.ended_at)
    )
    return [
        texts.lease.take(pa.array(claims)),
        pa.array(jobs.attempt[claims].astype(np.int32)),
        _coded(jobs.claimed_by[claims], texts.workers),
        _times(ready),
        _times(claimed),
        _times(ended),
        _coded(jobs.outcome[claims], texts.words),
        _coded(jobs.reason[claims], texts.words),
        texts.detail.take(_rows(jobs.error[claims])),
        pa.array(jobs.extensions[claims].astype(np.int32)),
        _times(jobs.deadline_last[claims]),
        pa.array(np.maximum(claimed - ready, 0), mask=ready == 0),
        pa.array(ended - claimed, mask=ended == 0),
        pa.array(jobs.overrun_ms[claims], mask=ended == 0),
    ]


def _counts_before(there: Flags) -> Longs:
    """How many are there before each place, and in all."""
    counts = np.zeros(len(there) + 1, np.int64)
    np.cumsum(there, out=counts[1:])
    return counts


def _rows(rows: Longs) -> pa.Array:
    return pa.array(rows, mask=rows == NONE)


def _coded(codes: Any, texts: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes == NONE), texts).cast(
        pa.string()
    )


def _times(ms: Longs, *, zero_is_null: bool = True) -> pa.Array:
    """Times as the tables show them: null where no calendar has them; see `moments`."""
    is_null = ms > LAST_MS
    if zero_is_null:
        is_null |= ms == 0
    return pa.array(np.where(is_null, 0, ms) * 1000, mask=is_null).view(_TIME)


def _lasting(start: Longs, end: Longs) -> pa.Array:
    return pa.array(np.maximum(end - start, 0), mask=(start == 0) | (end == 0))


# -- one by one ------------------------------------------------------------------------------------


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
        """All rows so far."""
        columns = dict(
            zip((n for n in JOBS.names if n != "steps"), zip(*self._rows, strict=True), strict=True)
        )
        arrays = []
        for field in _SCHEMA:
            if field.name == "steps":
                steps = zip(*self._steps, strict=True) if self._steps else [()] * _STEP.num_fields
                arrays.append(_list_of(_columns(steps, _STEP), _STEP, _ends(self._step_counts)))
            else:
                arrays.append(_array(columns[field.name], field.type))
        attempts = _columns(_attempt_columns(self._attempts), _ATTEMPT)
        return _batch(arrays, _list_of(attempts, _ATTEMPT, _ends(self._attempt_counts)))


def _columns(values: Iterable[Any], kind: pa.DataType) -> list[pa.Array]:
    return [_array(values, field.type) for values, field in zip(values, kind, strict=True)]


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        known = [None if ms is None or ms > LAST_MS else ms for ms in values]
        return pa.array(known, pa.timestamp("ms", tz="UTC")).cast(kind)
    return pa.array(values, kind)


def _ends(counts: list[int]) -> Longs:
    return np.fromiter(accumulate(counts, initial=0), np.int64, len(counts) + 1)


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


# -- either ----------------------------------------------------------------------------------------


def _list_of(columns: Sequence[pa.Array], kind: pa.DataType, ends: Longs) -> pa.Array:
    """A column of lists of structs.

    Args:
        columns: Of all structs, laid end to end.
        kind: Of a struct.
        ends: Where each list begins, and where the last one ends.
    """
    structs = pa.StructArray.from_arrays(columns, fields=list(kind))
    offsets = pa.array(ends.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, structs, type=pa.list_(pa.field("element", kind)))


def _batch(jobs: Sequence[pa.Array], leases: pa.Array) -> pa.RecordBatch:
    schema = _SCHEMA.append(pa.field("leases", leases.type))
    return pa.RecordBatch.from_arrays([*jobs, leases], schema=schema)
