"""Rows of records and job events as the rows that the fold of jobs takes.

Owns: which column of either table becomes which column of the fold, and rows of jobs that a floor
has passed. Must not know: where the tables come from, what the fold does. See
`history_batches.folder` for the columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logqueue.pipeline.lifecycle.job_history import APPENDED, EVENTS, TRIMMED

RECORD_COLUMNS = ("seq", "ts", "tag", "key", "not_before", "log_id")
"""Columns of records that the fold needs."""

EVENT_COLUMNS = (
    "lseq", "ts", "event", "job_seq", "lease_id", "worker", "deadline", "ready_at", "reason",
    "detail", "log_id",
)  # fmt: skip
"""Columns of job events that the fold needs."""

FLOOR_COLUMNS = ("lseq", "ts", "event", "job_seq", "reason", "log_id")
"""Columns of job events that floors need."""

FLOOR_ROWS = 65_536
"""Rows of a batch of jobs below floors."""

_WORD = pa.dictionary(pa.int32(), pa.string())

ROWS_SCHEMA = pa.schema(
    [
        ("log_id", _WORD),
        ("seq", pa.int64()),
        ("lseq", pa.int64()),
        ("kind", pa.int64()),
        ("ts", pa.int64()),
        ("due", pa.int64()),
        ("who", _WORD),
        ("lease", pa.string()),
        ("reason", _WORD),
        ("detail", pa.string()),
    ]
)
"""As `history_batches.FOLD_SCHEMA`; texts with few values are dictionaries."""

_KIND_OF = pa.array(EVENTS, pa.string())


def of_records(batch: pa.RecordBatch, queues: Collection[str], end: int) -> pa.RecordBatch:
    """The rows of some records.

    Args:
        batch: Records, with at least `RECORD_COLUMNS`.
        queues: The log ids that count.
        end: What is later does not count, ms since the epoch.
    """
    kept = _kept(batch, queues, end)
    rows = kept.num_rows
    return pa.RecordBatch.from_arrays(
        [
            _words(kept.column("log_id")),
            kept.column("seq"),
            _all(-1, rows),
            _all(APPENDED, rows),
            _millis(kept.column("ts")),
            pc.fill_null(_millis(kept.column("not_before")), 0),
            _no_words(rows),
            kept.column("key"),
            _no_words(rows),
            kept.column("tag"),
        ],
        schema=ROWS_SCHEMA,
    )


def of_events(batch: pa.RecordBatch, queues: Collection[str], end: int) -> pa.RecordBatch:
    """The rows of some job events, floors left out; see `of_records`.

    Args:
        batch: Job events, with at least `EVENT_COLUMNS`.
    """
    kept = _kept(batch, queues, end)
    kinds = pc.index_in(kept.column("event"), _KIND_OF)
    is_of_job = pc.and_(pc.greater(kinds, APPENDED), pc.less(kinds, TRIMMED))
    if pc.sum(is_of_job).as_py() != kept.num_rows:
        kept, kinds = kept.filter(is_of_job), kinds.filter(is_of_job)
    due = pc.coalesce(_millis(kept.column("deadline")), _millis(kept.column("ready_at")))
    return pa.RecordBatch.from_arrays(
        [
            _words(kept.column("log_id")),
            kept.column("job_seq"),
            kept.column("lseq"),
            kinds.cast(pa.int64()),
            _millis(kept.column("ts")),
            pc.fill_null(due, 0),
            _words(kept.column("worker")),
            kept.column("lease_id"),
            _words(kept.column("reason")),
            kept.column("detail"),
        ],
        schema=ROWS_SCHEMA,
    )


def of_floors(
    batches: Iterable[pa.RecordBatch], first_seqs: Mapping[str, int], end: int
) -> Iterator[pa.RecordBatch]:
    """A `trimmed` row for each seq that a floor passed over when it rose. Most of them are about
    jobs that had ended, and change nothing.

    Args:
        batches: Job events, with at least `FLOOR_COLUMNS`; events of other kinds do not count.
        first_seqs: By log id, the lowest seq of a record.
        end: What is later does not count, ms since the epoch.
    """
    rises: list[tuple[str, int, int, int, str]] = []
    for batch in batches:
        floors = batch.filter(pc.equal(batch.column("event"), EVENTS[TRIMMED]))
        kept = _kept(floors, first_seqs, end)
        columns = (
            kept.column("log_id"), kept.column("lseq"), kept.column("job_seq"),
            _millis(kept.column("ts")), kept.column("reason"),
        )  # fmt: skip
        rises += zip(*(column.to_pylist() for column in columns), strict=True)
    reached: dict[str, int] = {}
    for log_id, lseq, high, at, reason in sorted(rises):
        low = max(reached.get(log_id, 0) + 1, first_seqs[log_id])
        reached[log_id] = max(reached.get(log_id, 0), high)
        for first in range(low, high + 1, FLOOR_ROWS):
            seqs = np.arange(first, min(first + FLOOR_ROWS, high + 1), dtype=np.int64)
            yield _below_floor(log_id, seqs, lseq, at, reason)


def _below_floor(
    log_id: str, seqs: np.ndarray[tuple[int], np.dtype[np.int64]], lseq: int, at: int, reason: str
) -> pa.RecordBatch:
    rows = len(seqs)
    none = pa.nulls(rows, pa.string())
    return pa.RecordBatch.from_arrays(
        [
            _word(log_id, rows),
            pa.array(seqs),
            _all(lseq, rows),
            _all(TRIMMED, rows),
            _all(at, rows),
            _all(0, rows),
            _no_words(rows),
            none,
            _word(reason, rows),
            none,
        ],
        schema=ROWS_SCHEMA,
    )


def _kept(batch: pa.RecordBatch, queues: Collection[str], end: int) -> pa.RecordBatch:
    times, ids = batch.column("ts"), batch.column("log_id")
    limit = pa.scalar(end * 1000, pa.int64()).cast(times.type)
    keeps = pc.less_equal(times, limit)
    words = ids.dictionary if pa.types.is_dictionary(ids.type) else ids.unique()
    if not set(words.to_pylist()) <= set(queues):
        keeps = pc.and_(keeps, pc.is_in(ids, pa.array(list(queues), pa.string())))
    if pc.all(keeps).as_py() in (True, None):
        return batch
    return batch.filter(keeps)


def _millis(times: pa.Array) -> pa.Array:
    return pc.divide(times.cast(pa.int64()), 1000)


def _words(texts: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(texts.type):
        return texts.cast(_WORD)
    return texts.dictionary_encode().cast(_WORD)


def _word(text: str | None, rows: int) -> pa.Array:
    if text is None:
        return _no_words(rows)
    codes = pa.array(np.zeros(rows, np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array([text], pa.string()))


def _no_words(rows: int) -> pa.Array:
    codes = pa.nulls(rows, pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array([], pa.string()))


def _all(number: int, rows: int) -> pa.Array:
    return pa.array(np.full(rows, number, np.int64))
