"""Jobs that are folded by column come out as `JobTimeline` makes them, whatever their rows say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logqueue.pipeline.lifecycle.job_history import APPENDED, CLAIMED, EVENTS, EXTENDED
from logqueue.pipeline.lifecycle.job_history import JobTimeline as Timeline
from logqueue.pipeline.reading.calendar import LAST_MS
from logqueue.pipeline.rows import history_batches
from logqueue.pipeline.rows.history_batches import FOLD_SCHEMA, folder
from logqueue.pipeline.rows.job_batches import JobRows

TOPICS = {"log-a": "a", "log-b": "b"}


class FoldRow(NamedTuple):
    """A row as it goes into the fold."""

    log_id: str
    seq: int
    lseq: int
    kind: int
    ts: int
    due: int
    who: str | None = None
    lease: str | None = None
    reason: str | None = None
    detail: str | None = None


def batch(rows: Sequence[FoldRow], dictionaries: bool = False) -> pa.RecordBatch:
    columns: list[Any] = [*zip(*rows, strict=True)] if rows else [()] * len(FOLD_SCHEMA)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, FOLD_SCHEMA, strict=True)]
    if dictionaries:
        arrays = [a.dictionary_encode() if a.type == pa.string() else a for a in arrays]
    return pa.RecordBatch.from_arrays(arrays, names=FOLD_SCHEMA.names)


def one_by_one(rows: Sequence[FoldRow], end: int) -> Iterator[dict[str, Any]]:
    """What the definition makes of them."""
    for (log_id, seq), its in groupby(rows, lambda row: row[:2]):
        job, tag, key = Timeline(), None, None
        for row in its:
            if row.kind == APPENDED:
                key, tag = row.lease, row.detail
                job.append(row.ts, row.due)
            else:
                who, reason = row.who or None, row.reason or None
                job.take(row.kind, row.ts, row.due, who, row.lease, reason, row.detail)
        if job.is_known:
            job.close(end)
            made = JobRows()
            made.add(log_id, TOPICS.get(log_id), seq, tag, key, job)
            yield from made.batch().to_pylist()


def place(row: dict[str, Any]) -> tuple[int, str]:
    return row["seq"], row["log_id"]


# Times are few, so that many fall together; some lie before the record, some behind the end.
times = st.one_of(st.integers(90, 130), st.sampled_from((0, 1, 100, 86_400_100)))
dues = st.one_of(times, st.sampled_from((LAST_MS, LAST_MS + 1, 1 << 62)))
words = st.sampled_from((None, "", "ant", "bee"))
reasons = st.sampled_from((None, "", "nack", "hand_back", "ttl", "cap", "postponed", "delayed"))
kinds = st.one_of(
    st.sampled_from((CLAIMED, CLAIMED, CLAIMED, EXTENDED)), st.integers(1, len(EVENTS) - 1)
)
events = st.tuples(
    kinds, times, dues, words, st.sampled_from((None, "lease_1")), reasons,
    st.sampled_from((None, "", "no luck")),
)  # fmt: skip
records = st.lists(st.tuples(times, st.one_of(st.just(0), dues)), min_size=0, max_size=2)


@st.composite
def histories(draw: st.DrawFn) -> list[FoldRow]:
    rows = []
    for seq, log_id in draw(
        st.lists(
            st.tuples(st.integers(1, 9), st.sampled_from(("log-a", "log-b", "log-c"))),
            unique=True,
            max_size=6,
        ).map(sorted)
    ):
        for ts, due in draw(records) if draw(st.integers(0, 4)) else ():
            rows.append(FoldRow(log_id, seq, -1, APPENDED, ts, due, None, "k", None, f"t{ts % 2}"))
        its = draw(st.lists(events, max_size=9))
        for lseq, (kind, ts, *more) in enumerate(its):
            in_order = ts if draw(st.integers(0, 3)) == 0 else 100 + 3 * lseq
            rows.append(FoldRow(log_id, seq, lseq, kind, in_order, *more))
    return rows


@given(
    rows=histories(),
    end=times,
    cuts=st.lists(st.integers(0, 60), max_size=6).map(sorted),
    chunk=st.sampled_from((1, 4, 1000)),
    long=st.sampled_from((2, 6, 65)),
    dictionaries=st.booleans(),
)
def test_jobs_by_column_are_what_they_are_one_by_one(
    rows: list[FoldRow], end: int, cuts: list[int], chunk: int, long: int, dictionaries: bool
) -> None:
    ends = [*cuts, len(rows)]
    batches = [
        batch(rows[first:last], dictionaries)
        for first, last in zip([0, *cuts], ends, strict=True)
        if first <= last
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_batches, "ROWS_PER_CHUNK", chunk)
        patch.setattr(history_batches, "LONG_ROWS_MIN", long)
        patch.setattr(history_batches, "LONG_JOBS_PER_BATCH", 2)
        made = [row for part in folder(end, TOPICS)(batches) for row in part.to_pylist()]
    assert sorted(made, key=place) == [*one_by_one(rows, end)]
