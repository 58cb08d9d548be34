"""An audit on this machine: tasks in worker processes, rows of jobs in files between them.

Owns: how tasks are spread, the files in between, and where those are. Must not know: the rules.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from logqueue.pipeline.audit.comparison import PlaceComparison
from logqueue.pipeline.audit.job_rows import EVENT_COLUMNS, ROWS, RowsPlan, present_rows
from logqueue.pipeline.audit.job_rules import JobContext
from logqueue.pipeline.audit.log import AuditedFile, SegmentSource
from logqueue.pipeline.audit.run import BatchFunction
from logqueue.pipeline.audit.verdicts import Verdict, verdict_of
from logqueue.pipeline.engines.duckdb.audit.comparing import compare_places
from logqueue.pipeline.engines.duckdb.audit.tables import PlaceTables, TableTask
from logqueue.pipeline.engines.duckdb.workers import WorkerPool
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.stores.audited_segments import segments_of

ITEM_BYTES_GUESSED: Final = 8 << 20
"""Of a segment or a file whose size is not known here."""
ROW_BYTES: Final = 60


class LocalAuditEngine:
    """See `audit.run.AuditEngine`."""

    def __init__(self, place: InputPlace, pool: WorkerPool, scratch: str) -> None:
        """Look at the place.

        Args:
            place: What is audited.
            pool: Runs the tasks.
            scratch: A directory for files in between, which the caller removes.
        """
        self._pool = pool
        self._scratch = scratch
        self._place = place
        self._tables = PlaceTables(place, pool)

    def segments(self) -> tuple[Sequence[SegmentSource], Sequence[str]] | None:
        """See `AuditEngine`."""
        return segments_of(self._place.path) if self._place.path else None

    def run_tasks(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """See `AuditEngine`."""
        size = sum(map(_weight, items))
        return self._pool.map(function, items, size, len(items))

    def map_records(
        self, columns: Sequence[str], function: BatchFunction, schema: pa.Schema
    ) -> pa.Table:
        """See `AuditEngine`."""
        return self._mapped(self._tables.records(columns), function, schema)

    def map_events(
        self, columns: Sequence[str], function: BatchFunction, schema: pa.Schema
    ) -> pa.Table:
        """See `AuditEngine`."""
        return self._mapped(self._tables.events(columns), function, schema)

    def _mapped(
        self, tasks: Sequence[TableTask], function: BatchFunction, schema: pa.Schema
    ) -> pa.Table:
        items = [Mapped(task, function) for task in tasks]
        parts = self._pool.map(Mapped.batches, items, _size(items), len(items))
        return pa.Table.from_batches([batch for part in parts for batch in part], schema)

    def jobs(self, plan: RowsPlan) -> LocalJobTable:
        """See `AuditEngine`."""
        tasks, in_tasks = self._tables.events(EVENT_COLUMNS), plan.for_tasks()
        items = [Spread(task, in_tasks.of_events, self._scratch) for task in tasks]
        columns = plan.record_columns()
        if columns:
            tasks = self._tables.records(columns)
            items += [Spread(task, in_tasks.of_records, self._scratch) for task in tasks]
        files = [*self._pool.map(Spread.write, items, _size(items), len(items))]
        files.append(_written([present_rows(plan.present, plan.buckets)], self._scratch))
        return LocalJobTable(self._pool, plan.buckets, files)

    def compare(self, against: InputPlace) -> PlaceComparison:
        """See `AuditEngine`."""
        return compare_places(self._pool, self._tables, PlaceTables(against, self._pool))


def _size(items: Sequence[Mapped] | Sequence[Spread]) -> int:
    return sum(item.task.size for item in items)


def _weight(item: Any) -> int:
    if isinstance(item, AuditedFile):
        try:
            return os.stat(item.source.file.path).st_size
        except OSError:
            return ITEM_BYTES_GUESSED
    entry = getattr(item, "entry", None)
    return entry.bytes if entry is not None else ITEM_BYTES_GUESSED


class Mapped(NamedTuple):
    """A task over records, and what is made of them."""

    task: TableTask
    function: BatchFunction

    def batches(self) -> list[pa.RecordBatch]:
        """What the function makes."""
        return [*self.function(self.task.batches())]


class BucketFile(NamedTuple):
    """Rows in one file, a batch for each bucket."""

    path: str
    buckets: tuple[int, ...]
    rows: int


class Spread(NamedTuple):
    """A task whose rows go to a file by buckets."""

    task: TableTask
    function: BatchFunction
    scratch: str

    def write(self) -> BucketFile:
        """Make the file."""
        return _written([*self.function(self.task.batches())], self.scratch)


def _written(batches: Sequence[pa.RecordBatch], scratch: str) -> BucketFile:
    table = pa.Table.from_batches([*batches], ROWS)
    path = os.path.join(scratch, f"{uuid.uuid4().hex}.arrow")
    if not table.num_rows:
        return BucketFile(path, (), 0)
    buckets = table.column("bucket").to_numpy()
    order = np.argsort(buckets, kind="stable")
    if (order[1:] < order[:-1]).any():
        table, buckets = table.take(pa.array(order)), buckets[order]
    table = table.combine_chunks()
    numbers, starts = np.unique(buckets, return_index=True)
    ends = [*starts[1:].tolist(), table.num_rows]
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, ROWS) as writer:
        for start, end in zip(starts.tolist(), ends, strict=True):
            [batch] = table.slice(start, end - start).to_batches()
            writer.write_batch(batch)
    return BucketFile(path, tuple(numbers.tolist()), table.num_rows)


class Bucket(NamedTuple):
    """Where the rows of one bucket are: files, and the batch in each."""

    parts: tuple[tuple[str, int], ...]
    context: JobContext

    def verdict(self) -> Verdict:
        """Judge it."""
        batches = []
        for path, at in self.parts:
            with pa.memory_map(path) as source:
                batches.append(pa.ipc.open_file(source).get_batch(at))
        return verdict_of(pa.Table.from_batches(batches, ROWS), self.context)


class LocalJobTable:
    """See `audit.run.JobTable`."""

    def __init__(self, pool: WorkerPool, buckets: int, files: Sequence[BucketFile]) -> None:
        self._pool = pool
        self._parts: list[list[tuple[str, int]]] = [[] for _ in range(buckets)]
        for file in files:
            for at, bucket in enumerate(file.buckets):
                self._parts[bucket].append((file.path, at))
        self._bytes = sum(file.rows for file in files) * ROW_BYTES

    def verdicts(self, context: JobContext) -> Iterator[Verdict]:
        """See `JobTable`."""
        items = [Bucket(tuple(parts), context) for parts in self._parts if parts]
        return self._pool.map(Bucket.verdict, items, self._bytes, len(items))
