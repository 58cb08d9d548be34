"""The lifecycle job on one machine: the tables `jobs` and `attempts` from records and events.

Owns: the order of its steps, and which worker process does what. Must not know: what a job's events
mean (`job_history`), where they come from, how files become a version (`publishing`).

Rows are brought together by job (`shuffle`), folded by worker processes in the order of seqs, and
published at once. A run that is killed has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logqueue.pipeline.engines.duckdb.folding import (
    ChangeTask,
    FoldTask,
    RowPart,
    ShuffleTask,
    changed_jobs,
    fold_rows,
    shuffle_part,
)
from logqueue.pipeline.engines.duckdb.workers import WorkerPool
from logqueue.pipeline.lifecycle import runs
from logqueue.pipeline.lifecycle.job_history import OPEN_STATES
from logqueue.pipeline.lifecycle.publishing import (
    Published,
    TableFile,
    Target,
    opened_target,
)
from logqueue.pipeline.lifecycle.span import Span, publish_tables
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, JOBS
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.reading.options import parse_time
from logqueue.pipeline.rows.shuffle import (
    Group,
    RunPart,
    Shuffled,
    floors_of,
    grouped,
    shuffle,
)
from logqueue.pipeline.stores.archive_store import SeqBuckets
from logqueue.pipeline.stores.continuing import KeepTask, Keys, keep_rows, rows_of

ROWS_PER_TASK_MAX = 8_000_000
"""A task makes files of a good size; it reads a few groups at a time, whatever their number."""
BYTES_PER_ROW = 100


class History(Protocol):
    """Where records and events come from; `LocalInput` is one."""

    def span(self, end: int | None) -> Span:
        """What there is to read; what is later than `end` (ms since the epoch) does not count."""
        ...

    def fold_parts(
        self, span: Span, *, from_ms: int | None = None, jobs: SeqBuckets | None = None
    ) -> Sequence[RowPart]:
        """Records and events of a range as rows, see `shuffle`; in parts, in any order. Parts
        without a row of `from_ms` (ms since the epoch) or later, or of `jobs`, may be left out."""
        ...


def run_lifecycle(
    input: History,
    to: str,
    *,
    since: str | None = None,
    end: str | None = None,
    note: Note = silent,
    pool: WorkerPool | None = None,
) -> dict[str, Any]:
    """Write the tables `jobs` and `attempts`.

    Args:
        input: Where records and events come from.
        to: Directory or URL for both tables and the range they cover.
        since: None rebuilds everything. "last" takes up what has come since the last run, and a
            time (ISO 8601, or ms since the epoch) what has come since then: only jobs that were
            touched, or were open, are followed again, and only days that hold such jobs are
            written. The tables are the same either way.
        end: Where the range ends, as a time; None for the last record or event.
        note: Called at each step.
        pool: Worker processes; None for one per core, for this run.

    Raises:
        PipelineError: There is nothing to read, or no run before this to go on from.
    """
    note("finding the range of history", 0.0)
    span = input.span(None if end is None else parse_time(end, "end"))
    runs.require_history(span)
    with opened_target(to) as target, pool or WorkerPool() as processes:
        job = _Run(input, span, target, since, processes, note)
        rows = job.run()
        url = target.tree.url
    note("done", 1.0)
    return runs.summary(span, job.threshold, rows, url)


class _Run:
    """One run."""

    def __init__(
        self,
        input: History,
        span: Span,
        target: Target,
        since: str | None,
        pool: WorkerPool,
        note: Note,
    ) -> None:
        self._input = input
        self._span = span
        self._target = target
        self._pool = pool
        self._note = note
        self._before: Span | None = None
        self.threshold: int | None = None
        if since is not None:
            before = None if target.before is None else Span.of(target.before)
            self._before, self.threshold = runs.continued(since, span, before, target.tree.url)

    def run(self) -> dict[str, int]:
        """Fold, publish; gives how many rows of each table were made."""
        jobs = None if self.threshold is None else self._changed_jobs(self.threshold)
        with self._target.staging.drafts() as scratch:
            shuffled = self._shuffled(scratch, jobs)
            made = self._folded(shuffled)
        kept: list[TableFile] = []
        again: list[TableFile] = []
        span = self._span
        if jobs is not None and self._before is not None:
            again, kept = self._taken_over(made, jobs)
            span = span.since(self._before.start)
        publish_tables(self._target, span, [*made, *again], kept)
        return {
            table: sum(file.rows for file in made if file.table == table)
            for table in (JOBS.name, ATTEMPTS.name)
        }

    # -- all jobs ----------------------------------------------------------------------------------

    def _shuffled(self, scratch: str, jobs: Keys | None) -> Shuffled:
        """Rows of all jobs or of some, brought together by job."""
        self._note("reading records and events", 0.1)
        parts = self._input.fold_parts(self._span, jobs=None if jobs is None else jobs.buckets())
        size = sum(part.size for part in parts)
        if self._pool.parallel(size, len(parts)) == 1:
            batches = (batch for part in parts for batch in rows_of(part.batches(), jobs))
            return shuffle(batches, scratch, "run", spills_all=False)
        tasks = (ShuffleTask(number, part, scratch, jobs) for number, part in enumerate(parts))
        made = Shuffled([], [])
        for number, done in enumerate(self._pool.map(shuffle_part, tasks, size, len(parts)), 1):
            made.pieces.extend(done.pieces)
            made.floors.extend(done.floors)
            self._note("reading records and events", 0.1 + 0.3 * number / len(parts))
        return made

    def _folded(self, shuffled: Shuffled) -> list[TableFile]:
        self._note("replaying the events of every job", 0.4)
        groups = grouped(shuffled.pieces)
        rows = sum(group.rows for group in groups)
        # What is in memory stays in this process.
        is_on_disk = all(isinstance(piece.part, RunPart) for piece in shuffled.pieces)
        size = rows * BYTES_PER_ROW if is_on_disk else 0
        at_once = self._pool.parallel(size, len(groups))
        parts = [*_parted(groups, min(-(-rows // at_once), ROWS_PER_TASK_MAX))]
        topics = {queue.log_id: queue.topic for queue in self._span.queues}
        first_seqs = {q.log_id: q.first_seq for q in self._span.queues if q.records}
        floors = floors_of(shuffled.floors, first_seqs)
        tasks = (
            FoldTask(number, part, floors, self._span.end, topics, self._target.staging)
            for number, part in enumerate(parts)
        )
        made: list[TableFile] = []
        for number, files in enumerate(self._pool.map(fold_rows, tasks, size, len(parts)), 1):
            made += files
            self._note("replaying the events of every job", 0.4 + 0.5 * number / len(parts))
        return made

    # -- those that changed ------------------------------------------------------------------------

    def _changed_jobs(self, threshold: int) -> Keys:
        """Jobs that have changed, and those that time alone may have changed."""
        assert self._before is not None
        self._note("finding the jobs that changed", 0.05)
        parts = [
            ChangeTask(part, threshold)
            for part in self._input.fold_parts(self._span, from_ms=threshold)
        ]
        # Tables that a version made which knew queues by their events lack those without any.
        known = {queue.log_id for queue in self._before.queues}
        new = tuple(queue for queue in self._span.queues if queue.log_id not in known)
        if new:
            every = self._input.fold_parts(replace(self._span, queues=new))
            parts += [ChangeTask(part, 0) for part in every]
        size = sum(task.part.size for task in parts)
        changed = self._pool.map(changed_jobs, parts, size, len(parts))
        return Keys.union(chain(changed, self._open_jobs()))

    def _open_jobs(self) -> Iterator[Keys]:
        for table, seq, column, values in (
            (JOBS.name, "seq", "state", OPEN_STATES),
            (ATTEMPTS.name, "job_seq", "outcome", ("open",)),
        ):
            for _, rows in self._rows_before(table, ["log_id", seq, column]):
                its = rows.filter(pc.is_in(rows.column(column), pa.array(values)))
                yield Keys.of(its.column("log_id"), its.column(seq).to_numpy())

    def _rows_before(
        self, table: str, columns: Sequence[str]
    ) -> Iterator[tuple[TableFile, pa.RecordBatch]]:
        before: Published | None = self._target.before
        for file in before.of(table) if before is not None else ():
            with pq.ParquetFile(self._target.tree.source(file.path)) as parquet:
                for rows in parquet.iter_batches(columns=[*columns]):
                    yield file, rows

    def _taken_over(
        self, made: Iterable[TableFile], touched: Keys
    ) -> tuple[list[TableFile], list[TableFile]]:
        """Other rows of the days that changed, written again, and the files of all other days."""
        days = {_day(file) for file in made}
        for file, rows in self._rows_before(JOBS.name, ["log_id", "seq"]):
            if _day(file) not in days:
                seqs = rows.column("seq").to_numpy()
                if touched.have(rows.column("log_id"), seqs).any():
                    days.add(_day(file))
        self._note(f"writing {len(days)} days", 0.9)
        assert self._target.before is not None
        files = [file for file in self._target.before.files if file.day is not None]
        parts: dict[tuple[str, date], list[TableFile]] = {}
        for file in files:
            if _day(file) in days:
                parts.setdefault((file.table, _day(file)), []).append(file)
        staging = self._target.staging
        tasks = (
            KeepTask(number, table, day, [file.path for file in its], touched, staging)
            for number, ((table, day), its) in enumerate(sorted(parts.items()))
        )
        size = sum(file.bytes for its in parts.values() for file in its)
        written = self._pool.map(keep_rows, tasks, size, len(parts))
        again = [file for files in written for file in files]
        return again, [file for file in files if _day(file) not in days]


def _day(file: TableFile) -> date:
    day = file.day
    assert day is not None, file.name
    return day


def _parted(groups: Sequence[Group], rows: int) -> Iterator[list[Group]]:
    """Neighbours together, until there are as many rows."""
    part: list[Group] = []
    for group in groups:
        part.append(group)
        if sum(each.rows for each in part) >= rows:
            yield part
            part = []
    if part:
        yield part
