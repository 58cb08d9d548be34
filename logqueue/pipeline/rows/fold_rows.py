"""Rows of records and job events as the rows that the fold of jobs takes.

Owns: which column of either table becomes which column of the fold. Must not know: where the
tables come from, what the fold does. See `history_batches.folder` for the columns.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logqueue.pipeline.lifecycle.job_history import APPENDED, EVENTS

RECORD_COLUMNS = ("seq", "ts", "tag", "key", "not_before", "log_id")
"""Columns of records that the fold needs."""

EVENT_COLUMNS = (
    "lseq", "ts", "event", "job_seq", "lease_id", "worker", "deadline", "ready_at", "reason",
    "detail", "log_id",
)  # fmt: skip
"""Columns of job events that the fold needs."""

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
    """The rows of some job events; see `of_records`. With `trimmed`, `seq` is the floor: it is
    about this job and all before it.

    Args:
        batch: Job events, with at least `EVENT_COLUMNS`.
    """
    kept = _kept(batch, queues, end)
    kinds = pc.index_in(kept.column("event"), _KIND_OF)
    is_known = kinds.is_valid()
    if kinds.null_count:
        kept, kinds = kept.filter(is_known), kinds.filter(is_known)
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


def _no_words(rows: int) -> pa.Array:
    codes = pa.nulls(rows, pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array([], pa.string()))


def _all(number: int, rows: int) -> pa.Array:
    return pa.array(np.full(rows, number, np.int64))
