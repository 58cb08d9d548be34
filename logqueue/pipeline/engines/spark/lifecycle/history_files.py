"""The tables `jobs` and `attempts` as Parquet files by day: written by tasks, put in place at once.

Owns: names of files and directories, the staging directory, what a task writes. Must not know: what
the rows say. `write_folded` and `write_kept` run in executors, so pyarrow is imported at the top;
the directory must be one that the driver and all executors see.

    to/jobs/date=2026-01-31/part-00003.parquet     made from records and events
    to/jobs/date=2026-01-31/kept-00000.parquet     taken over from the run before
    to/_staging/...                                the same, until all of it is written
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, JOBS
from logqueue.pipeline.rows.history_batches import folder
from logqueue.pipeline.rows.job_batches import ATTEMPT_FIELDS

STAGING = "_staging"
WRITTEN_DDL = "name STRING, day DATE, rows BIGINT"
"""What a task tells: the table, the day, and how many rows of it are in the file."""

Batches = Iterable[pa.RecordBatch]
Task = Callable[[Batches], Iterator[pa.RecordBatch]]


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


class _Files:
    """Rows of one task, gathered by table and day; a file for each of these."""

    def __init__(self, to: str, prefix: str) -> None:
        self._to = to
        self._prefix = prefix
        self._parts: dict[tuple[str, date], list[pa.Table]] = {}

    def add(self, kind: TableKind, rows: pa.Table) -> None:
        """Take in rows."""
        days = rows["date"].unique().to_pylist()
        for day in days:
            part = rows if len(days) == 1 else rows.filter(pc.equal(rows["date"], day))
            self._parts.setdefault((kind.name, day), []).append(part.drop_columns(["date"]))

    def write(self) -> Iterator[pa.RecordBatch]:
        """Write all files; each appears whole, and a repeated task writes the same ones."""
        from pyspark import TaskContext

        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        attempt = context.taskAttemptId() if context is not None else 0
        for (name, day), parts in sorted(self._parts.items()):
            there = os.path.join(self._to, STAGING, name, f"date={day.isoformat()}")
            os.makedirs(there, exist_ok=True)
            path = os.path.join(there, f"{self._prefix}-{number:05}.parquet")
            rows = pa.concat_tables(parts)
            pq.write_table(rows, f"{path}.{attempt}", compression="zstd", store_schema=False)
            os.replace(f"{path}.{attempt}", path)
            counts = [pa.array([name]), pa.array([day]), pa.array([rows.num_rows])]
            yield pa.RecordBatch.from_arrays(counts, ["name", "day", "rows"])


def write_folded(to: str, end: int, topics: dict[str, str]) -> Task:
    """The task that folds sorted rows and writes both tables; see `history_batches.folder`."""
    fold = folder(end, topics)

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        files = _Files(to, "part")
        for folded in fold(batches):
            files.add(JOBS, jobs_in(folded))
            files.add(ATTEMPTS, attempts_in(folded))
        return files.write()

    return task


def write_kept(to: str, kind: TableKind) -> Task:
    """The task that writes rows of a table as they are."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        files = _Files(to, "kept")
        for batch in batches:
            if batch.num_rows:
                files.add(kind, pa.Table.from_batches([batch]).cast(kind.arrow()))
        return files.write()

    return task


# -- on the driver ---------------------------------------------------------------------------------


def clear_staging(to: str) -> None:
    """Nothing is left of a run that did not finish."""
    shutil.rmtree(os.path.join(to, STAGING), ignore_errors=True)
    os.makedirs(os.path.join(to, STAGING), exist_ok=True)


def put_in_place(to: str, days: Sequence[date] | None) -> None:
    """Let what was staged take the place of both tables, or of some of their days.

    Args:
        to: The directory.
        days: These days only; None for all.
    """
    staged = os.path.join(to, STAGING)
    for kind in (JOBS, ATTEMPTS):
        whole = os.path.join(to, kind.name)
        if days is None:
            shutil.rmtree(whole, ignore_errors=True)
        os.makedirs(whole, exist_ok=True)
        new = os.path.join(staged, kind.name)
        there = set(os.listdir(new)) if os.path.isdir(new) else set()
        for name in there.union(f"date={day.isoformat()}" for day in days or ()):
            shutil.rmtree(os.path.join(whole, name), ignore_errors=True)
            if name in there:
                os.replace(os.path.join(new, name), os.path.join(whole, name))
    shutil.rmtree(staged, ignore_errors=True)
