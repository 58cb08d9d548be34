"""Histories in memory, as the lifecycle job on this machine reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logqueue.pipeline.lifecycle.job_history import APPENDED, EVENTS, TRIMMED
from logqueue.pipeline.lifecycle.publishing import require_published
from logqueue.pipeline.lifecycle.span import QueueSpan, Span
from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.rows.fold_rows import ROWS_SCHEMA
from logqueue.pipeline.stores.archive_store import BUCKET_SEQS, SeqBuckets
from tests.spark.histories import Row

BATCH_ROWS = 100


@dataclass
class HistoryPart:
    """Rows of the fold, as tuples."""

    rows: Sequence[tuple[Any, ...]]
    size: int = 1

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `folding.RowPart`."""
        for first in range(0, len(self.rows), BATCH_ROWS):
            columns = zip(*self.rows[first : first + BATCH_ROWS], strict=True)
            arrays = [pa.array(c, f.type) for c, f in zip(columns, ROWS_SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=ROWS_SCHEMA)


@dataclass
class History:
    """Records and events, with times in ms since the epoch; columns that they lack are null."""

    record_rows: Sequence[Row]
    event_rows: Sequence[Row]

    def span(self, end: int | None) -> Span:
        """See `lifecycle.History`: topics with events are queues."""
        counts: dict[str, list[Any]] = {}
        for rows, seq, place in ((self.record_rows, "seq", 0), (self.event_rows, "job_seq", 1)):
            for row in rows:
                if end is None or row["ts"] <= end:
                    its = counts.setdefault(row["log_id"], [row["topic"], [], [], 0, []])
                    its[1 + place].append(row[seq])
                    its[3] += row.get("event") == "trimmed"
                    its[4].append(row["ts"])
        times = [ts for its in counts.values() for ts in its[4]]
        queues = [
            QueueSpan(log_id, topic, min(seqs, default=0), len(seqs), len(jobs), floors)
            for log_id, (topic, seqs, jobs, floors, _) in counts.items()
            if jobs
        ]
        queues.sort(key=lambda queue: (queue.topic, queue.log_id))
        last = max(times, default=0) if end is None else end
        return Span(min(times, default=0), last, tuple(queues), len(counts) - len(queues))

    def fold_parts(
        self, span: Span, *, from_ms: int | None = None, jobs: SeqBuckets | None = None
    ) -> Sequence[HistoryPart]:
        """See `lifecycle.History`: no more than is asked for."""
        logs = {queue.log_id for queue in span.queues}
        rows = [self._record(row) for row in self.record_rows]
        rows += [self._event(row) for row in self.event_rows]
        kept = [row for row in rows if row[0] in logs and row[4] <= span.end]
        if from_ms is not None:
            kept = [row for row in kept if row[4] >= from_ms]
        if jobs is not None:
            kept = [
                row
                for row in kept
                if row[3] == TRIMMED or row[1] // BUCKET_SEQS in jobs.get(row[0], ())
            ]
        half = len(kept) // 2
        return HistoryPart(kept[:half]), HistoryPart(kept[half:])

    @staticmethod
    def _record(row: Row) -> tuple[Any, ...]:
        due = row.get("not_before") or 0
        texts = (None, row.get("key"), None, row.get("tag"))
        return row["log_id"], row["seq"], -1, APPENDED, row["ts"], due, *texts

    @staticmethod
    def _event(row: Row) -> tuple[Any, ...]:
        due = row.get("deadline") or row.get("ready_at") or 0
        texts = (row.get(name) for name in ("worker", "lease_id", "reason", "detail"))
        kind = EVENTS.index(row["event"])
        return row["log_id"], row["job_seq"], row["lseq"], kind, row["ts"], due, *texts

    def as_of(self, until: int) -> History:
        """As it was at some time."""
        records = [row for row in self.record_rows if row["ts"] <= until]
        return History(records, [row for row in self.event_rows if row["ts"] <= until])


def table_rows(to: str, kind: TableKind) -> list[dict[str, Any]]:
    """The rows of a published table in order, with times as ms since the epoch."""
    rows: list[dict[str, Any]] = []
    tree, version = require_published(to)
    for file in version.of(kind.name):
        found = pq.ParquetFile(tree.source(file.path)).read().to_pylist()
        assert not any("date" in row for row in found), "the day is in the path alone"
        rows += [{**row, "date": file.day} for row in found]
    keys = ("log_id", "seq" if "seq" in kind.names else "job_seq", "claimed_at")
    rows = [plain({name: row[name] for name in kind.names}) for row in rows]
    return sorted(rows, key=lambda row: [str(row.get(key)) for key in keys])


def plain(value: Any) -> Any:
    """A value with times as ms since the epoch, and steps as tuples."""
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000)
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [tuple(plain(part) for part in step.values()) for step in value]
    return value
