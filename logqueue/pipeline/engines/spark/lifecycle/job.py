"""From records and events to what became of every job: the tables `jobs` and `attempts`.

Owns: the DataFrame side of it, and the job that writes both tables, all of them or those days that
have changed. Must not know: what a job's events mean (`job_history`), where they come from.

One shuffle brings the record and all events of a job together; they are sorted in Spark and folded
in Python, in Arrow batches. Both tables are partitioned by the day a job was appended.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.engines.spark.formats.stored_files import read_files
from logqueue.pipeline.engines.spark.lifecycle.history_source import HistorySource
from logqueue.pipeline.lifecycle import runs, tables
from logqueue.pipeline.lifecycle.job_history import APPENDED, EVENTS, OPEN_STATES, TRIMMED
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
from logqueue.pipeline.stores.archive_store import BUCKET_SEQS, SeqBuckets

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS_PER_TASK = 200_000
"""Records and events that one task folds: some tens of MB, a second or two."""

_KEYS = ["log_id", "seq"]


def _sorted_rows(
    records: DataFrame, events: DataFrame, span: Span, share: float = 1.0
) -> DataFrame:
    """The input of the fold: all of a job in one partition, in the order in which it happened.

    Args:
        share: About how much of the span there is in them.
    """
    rows = _record_rows(records, span).unionAll(_event_rows(events, span))
    if any(queue.floors and queue.records for queue in span.queues):
        rows = rows.unionAll(_floor_rows(events, span))
    whole = sum(queue.records + queue.events for queue in span.queues)
    parts = max(1, ceil(whole * share / ROWS_PER_TASK))
    # By seq first: a number compares faster than a text that begins alike in all rows.
    return (
        rows.repartition(parts, "log_id", "seq")
        .sortWithinPartitions("seq", "log_id", "lseq", "kind")
        .drop("lseq")
    )


# -- input rows ------------------------------------------------------------------------------------


def _millis(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.unix_millis(F.col(name))


def _within(rows: DataFrame, span: Span) -> DataFrame:
    from pyspark.sql import functions as F

    end = F.timestamp_millis(F.lit(span.end).cast("long"))
    return rows.where(F.col("ts") <= end)


def _record_rows(records: DataFrame, span: Span) -> DataFrame:
    from pyspark.sql import functions as F

    kept = _within(records, span)
    if span.others:
        kept = kept.where(F.col("log_id").isin([queue.log_id for queue in span.queues]))
    none = F.lit(None).cast("string")
    return kept.select(
        "log_id",
        "seq",
        F.lit(-1).cast("long").alias("lseq"),
        F.lit(APPENDED).cast("long").alias("kind"),
        _millis("ts").alias("ts"),
        F.coalesce(_millis("not_before"), F.lit(0)).alias("due"),
        none.alias("who"),
        F.col("key").alias("lease"),
        none.alias("reason"),
        F.col("tag").alias("detail"),
    )


def _event_rows(events: DataFrame, span: Span) -> DataFrame:
    from pyspark.sql import functions as F

    known = F.array(*(F.lit(name) for name in EVENTS[:TRIMMED]))
    return (
        _within(events, span)
        .select(
            "log_id",
            F.col("job_seq").alias("seq"),
            "lseq",
            (F.array_position(known, F.col("event")) - 1).alias("kind"),
            _millis("ts").alias("ts"),
            F.coalesce(_millis("deadline"), _millis("ready_at"), F.lit(0)).alias("due"),
            F.col("worker").alias("who"),
            F.col("lease_id").alias("lease"),
            "reason",
            "detail",
        )
        .where(F.col("kind") > APPENDED)
    )


def _floor_rows(events: DataFrame, span: Span) -> DataFrame:
    """A `trimmed` row for each seq that a floor passed over when it rose; most of them are about
    jobs that had ended, and change nothing."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    first = {queue.log_id: queue.first_seq for queue in span.queues if queue.floors}
    lowest = F.create_map(*(F.lit(part) for pair in first.items() for part in pair))
    before = (
        Window.partitionBy("log_id")
        .orderBy("lseq", "job_seq")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    risen = (
        _within(events, span)
        .where(F.col("event") == "trimmed")
        .select(
            "log_id",
            F.greatest(
                F.coalesce(F.max("job_seq").over(before) + 1, F.lit(1)),
                F.element_at(lowest, F.col("log_id")),
            ).alias("low"),
            F.col("job_seq").alias("high"),
            "lseq",
            _millis("ts").alias("ts"),
            "reason",
        )
        .where(F.col("low") <= F.col("high"))
    )
    none = F.lit(None).cast("string")
    return risen.select(
        "log_id",
        F.explode(F.sequence("low", "high")).alias("seq"),
        "lseq",
        F.lit(TRIMMED).cast("long").alias("kind"),
        "ts",
        F.lit(0).cast("long").alias("due"),
        none.alias("who"),
        none.alias("lease"),
        "reason",
        none.alias("detail"),
    )


# -- the job ---------------------------------------------------------------------------------------


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
            # A job that waits until the year 10000 is not ready now.
            records, events = (
                input.records(spark, "none", times="all"),
                input.events(spark, times="all"),
            )
            files = _write_folded(records, events, span, target)
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
    records: DataFrame, events: DataFrame, span: Span, target: Target, share: float = 1.0
) -> list[TableFile]:
    """Fold and stage; see `_sorted_rows`."""
    from logqueue.pipeline.engines.spark.lifecycle import history_files as files

    topics = {queue.log_id: queue.topic for queue in span.queues}
    rows = _sorted_rows(records, events, span, share)
    packs = rows.mapInArrow(files.pack_folded(span.end, topics), files.PACKS_DDL)
    return files.write_by_day(packs, target.staging, "part")


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
    from pyspark.sql import functions as F

    from logqueue.pipeline.engines.spark.lifecycle import history_files as files

    assert target.before is not None
    old = {
        kind: rows_of(spark, target.tree, target.before, kind)
        for kind in (tables.JOBS, tables.ATTEMPTS)
    }
    touched = _touched(spark, input, span, before, old, threshold).persist()
    try:
        count, jobs = _buckets(touched)
        records = input.records(spark, "none", times="all", jobs=jobs)
        events = input.events(spark, times="all", jobs=jobs)
        note("replaying the events of the changed jobs", 0.3)
        floors = F.col("event") == "trimmed"
        its_events = events.where(~floors).withColumnRenamed("job_seq", "seq")
        again = its_events.join(touched, _KEYS, "left_semi").withColumnRenamed("seq", "job_seq")
        written = _write_folded(
            records.join(touched, _KEYS, "left_semi").select(*records.columns),
            again.select(*events.columns).unionAll(events.where(floors)),
            span,
            target,
            count / max(1, sum(queue.records for queue in span.queues)),
        )
        gone = old[tables.JOBS].join(touched, _KEYS, "left_semi").select("date").distinct()
        days = sorted({f.day for f in written if f.day} | {row["date"] for row in gone.collect()})
        note(f"writing {len(days)} days", 0.7)
        staged = [*written]
        for kind, rows in old.items():
            seq = "seq" if kind is tables.JOBS else "job_seq"
            others = touched.withColumnRenamed("seq", seq)
            kept = rows.where(F.col("date").isin(days)).join(others, ["log_id", seq], "left_anti")
            packs = kept.select(*kind.names).mapInArrow(files.pack_kept(kind), files.PACKS_DDL)
            staged += files.write_by_day(packs, target.staging, "kept")
        keep = [file for file in target.before.files if file.day and file.day not in days]
        publish_tables(target, span.since(before.start), staged, keep)
        return _counts(written)
    finally:
        touched.unpersist()


def _buckets(touched: DataFrame) -> tuple[int, SeqBuckets]:
    """How many jobs were touched, and where they are, coarsely: few numbers for many jobs."""
    from pyspark.sql import functions as F

    bucket = F.floor(F.col("seq") / BUCKET_SEQS).cast("long").alias("bucket")
    rows = touched.groupBy("log_id", bucket).agg(F.count(F.lit(1)).alias("n")).collect()
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["log_id"], []).append(row["bucket"])
    count = sum(row["n"] for row in rows)
    return count, {log_id: sorted(buckets) for log_id, buckets in found.items()}


def _touched(
    spark: SparkSession,
    input: HistorySource,
    span: Span,
    before: Span,
    old: Mapping[tables.TableKind, DataFrame],
    threshold: int,
) -> DataFrame:
    """The jobs (log_id, seq) to be followed again: something happened to them since the threshold,
    or time alone may have changed them."""
    from pyspark.sql import functions as F

    later = F.col("ts") >= F.timestamp_millis(F.lit(threshold).cast("long"))
    records = input.records(spark, "none", from_ms=threshold)
    events = input.events(spark, from_ms=threshold).withColumnRenamed("job_seq", "seq")
    attempts = old[tables.ATTEMPTS].withColumnRenamed("job_seq", "seq")
    # Tables that a version made which knew queues by their events lack those without any.
    known = {queue.log_id for queue in before.queues}
    new = [queue.log_id for queue in span.queues if queue.log_id not in known]
    touched = (
        records.where(later).select(*_KEYS)
        .unionAll(events.where(later & (F.col("event") != "trimmed")).select(*_KEYS))
        .unionAll(old[tables.JOBS].where(F.col("state").isin(*OPEN_STATES)).select(*_KEYS))
        .unionAll(attempts.where(F.col("outcome") == "open").select(*_KEYS))
    )  # fmt: skip
    if new:
        every = input.records(spark, "none").where(F.col("log_id").isin(new))
        its_events = input.events(spark).where(F.col("log_id").isin(new))
        of_events = its_events.where(F.col("event") != "trimmed").select(
            "log_id", F.col("job_seq").alias("seq")
        )
        touched = touched.unionAll(every.select(*_KEYS)).unionAll(of_events)
    return touched.distinct()


def _counts(written: list[TableFile]) -> dict[str, int]:
    """Rows of both tables."""
    counts = {tables.JOBS.name: 0, tables.ATTEMPTS.name: 0}
    for file in written:
        counts[file.table] += file.rows
    return counts
