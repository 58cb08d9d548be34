"""From records and events to what became of every job: the tables `jobs` and `attempts`.

Owns: the job that writes both tables, all of them or those days that have changed. Must not know:
what a job's events mean (`job_history`), where they come from.

Tasks read rows of records and events and cut them into packs by part of the jobs; Spark shuffles
packs, which it does not look into; who gets all packs of a part sorts and folds their rows. Both
tables are partitioned by the day a job was appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from math import ceil
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.engines.spark.formats.stored_files import FILES_PER_TASK, read_files
from logqueue.pipeline.engines.spark.formats.tasks import run_tasks
from logqueue.pipeline.engines.spark.lifecycle.history_source import HistorySource
from logqueue.pipeline.lifecycle import runs, tables
from logqueue.pipeline.lifecycle.publishing import (
    Published,
    TableFile,
    Target,
    opened_target,
    require_published,
)
from logqueue.pipeline.lifecycle.span import Span, publish_tables
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.reading.options import parse_time
from logqueue.pipeline.storage.tree import FileTree

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from logqueue.pipeline.stores.continuing import Keys

ROWS_PER_TASK = 250_000
"""Records and events that one task folds: some tens of MB, less than a second."""


def run_lifecycle(
    spark: SparkSession,
    input: HistorySource,
    to: str,
    *,
    since: str | None = None,
    end: str | None = None,
    note: Note = silent,
) -> dict[str, Any]:
    """Write the tables `jobs` and `attempts`.

    Args:
        input: Where records and events come from.
        to: Directory for both tables and the range they cover.
        since: None rebuilds everything. "last" takes up what has come since the last run, and a
            time (ISO 8601, or ms since the epoch) what has come since then: only jobs that were
            touched, or were open, are looked at again, and only days that hold such jobs are
            written. The tables are the same either way.
        end: Where the range ends, as a time; None for the last record or event.
        note: Called at each step.

    Raises:
        PipelineError: There is nothing to read, or no run before this to go on from.
    """
    with opened_target(to) as target:
        note("finding the range of history", 0.0)
        span = input.span(None if end is None else parse_time(end, "end"))
        runs.require_history(span)
        threshold = None
        if since is not None:
            before = None if target.before is None else Span.of(target.before)
            before, threshold = runs.continued(since, span, before, target.tree.url)
            note("finding the jobs that changed", 0.1)
            written = _renew(spark, input, span, before, target, threshold, note)
        else:
            note("replaying the events of every job", 0.2)
            files = _write_folded(spark, input, span, target)
            publish_tables(target, span, files)
            written = _counts(files)
    note("done", 1.0)
    return runs.summary(span, threshold, written, target.tree.url)


def read_table(spark: SparkSession, folder: str, kind: tables.TableKind | str) -> DataFrame:
    """The table `jobs` or `attempts` as a run has written it.

    Args:
        folder: The directory or URL that the run has written to.
        kind: The table, or its name.

    Raises:
        PipelineError: The last run there did not finish, or there was none.
    """
    table = tables.BY_NAME[kind] if isinstance(kind, str) else kind
    return rows_of(spark, *require_published(folder), table)


def rows_of(
    spark: SparkSession, tree: FileTree, version: Published, kind: tables.TableKind
) -> DataFrame:
    """The table `jobs` or `attempts` of one version."""
    files = version.of(kind.name)
    columns = {column.name: column.type for column in kind.columns}
    days = {file.path: file.day for file in files if file.day is not None}
    return read_files(spark, tree, [file.path for file in files], columns, days)


def _write_folded(
    spark: SparkSession,
    input: HistorySource,
    span: Span,
    target: Target,
    jobs: Keys | None = None,
) -> list[TableFile]:
    """Fold all jobs or some, and stage the files."""
    from logqueue.pipeline.engines.spark.lifecycle import history_files as files

    rows = sum(queue.records + queue.events for queue in span.queues)
    if jobs is not None:
        rows = ceil(rows * len(jobs) / max(1, sum(queue.records for queue in span.queues)))
    parts = max(1, ceil(rows / ROWS_PER_TASK))
    buckets = None if jobs is None else jobs.buckets()
    packs = input.fold_rows(
        spark, span, files.pack_rows(parts, jobs), files.PARTS_DDL, jobs=buckets
    )
    topics = {queue.log_id: queue.topic for queue in span.queues}
    first_seqs = {queue.log_id: queue.first_seq for queue in span.queues if queue.records}
    fold = files.fold_packs(span.end, topics, first_seqs)
    folded = packs.repartitionById(parts, "part").mapInArrow(fold, files.PACKS_DDL)
    return files.write_by_day(folded, target.staging, "part")


# -- those that changed ----------------------------------------------------------------------------


def _renew(
    spark: SparkSession,
    input: HistorySource,
    span: Span,
    before: Span,
    target: Target,
    threshold: int,
    note: Note,
) -> dict[str, int]:
    """Follow the touched jobs again, and rewrite the days that hold any of them."""
    from logqueue.pipeline.stores.continuing import KeepTask, Keys, keep_rows, look_at

    assert target.before is not None
    changed = _changed(spark, input, span, before, threshold)
    stored = [file for file in target.before.files if file.day is not None]
    tree = target.tree

    def look(file: TableFile) -> Any:
        return look_at(tree, file.path, file.table, changed)

    found = [*run_tasks(spark, look, stored, FILES_PER_TASK)]
    days = {_day(file) for file, its in zip(stored, found, strict=True) if its.touched}
    touched = Keys.union([changed, *(its.open for its in found)])
    note("replaying the events of the changed jobs", 0.3)
    written = _write_folded(spark, input, span, target, touched)
    days |= {_day(file) for file in written}
    note(f"writing {len(days)} days", 0.7)
    paths: dict[tuple[str, date], list[str]] = {}
    for file in stored:
        if _day(file) in days:
            paths.setdefault((file.table, _day(file)), []).append(file.path)
    keeping = [
        KeepTask(number, table, day, its, touched, target.staging)
        for number, ((table, day), its) in enumerate(sorted(paths.items()))
    ]
    again = [file for files in run_tasks(spark, keep_rows, keeping) for file in files]
    keep = [file for file in stored if _day(file) not in days]
    publish_tables(target, span.since(before.start), [*written, *again], keep)
    return _counts(written)


def _changed(
    spark: SparkSession, input: HistorySource, span: Span, before: Span, threshold: int
) -> Keys:
    """The jobs to which something happened since the threshold."""
    from logqueue.pipeline.stores.continuing import Keys

    rows = input.fold_rows(spark, span, _changes(threshold), "keys BINARY", from_ms=threshold)
    # Tables that a version made which knew queues by their events lack those without any.
    known = {queue.log_id for queue in before.queues}
    new = tuple(queue for queue in span.queues if queue.log_id not in known)
    if new:
        of_new = replace(span, queues=new)
        rows = rows.unionAll(input.fold_rows(spark, of_new, _changes(0), "keys BINARY"))
    return Keys.union(Keys.decoded(row["keys"]) for row in rows.collect())


def _changes(since: int) -> Any:
    """The task that looks for changed jobs."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from logqueue.pipeline.stores.continuing import changed_in

        yield pa.RecordBatch.from_pydict({"keys": [changed_in(batches, since).encoded()]})

    return task


def _day(file: TableFile) -> date:
    day = file.day
    assert day is not None, file.name
    return day


def _counts(written: list[TableFile]) -> dict[str, int]:
    """Rows of both tables."""
    counts = {tables.JOBS.name: 0, tables.ATTEMPTS.name: 0}
    for file in written:
        counts[file.table] += file.rows
    return counts
