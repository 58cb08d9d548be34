"""The report job: which reports there are, and how they are made and written together.

Owns: the choice of reports, their order, sorting and the range that they state. Must not
know: how a single report is computed, how files and pages are written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.engines.spark.lifecycle.history_range import HistorySource
from logqueue.pipeline.engines.spark.lifecycle.job import read_table, run_lifecycle
from logqueue.pipeline.engines.spark.reports import job_reports as reports_jobs
from logqueue.pipeline.engines.spark.reports import time_reports as reports_time
from logqueue.pipeline.engines.spark.reports.report_input import Lives
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.reports.selection import RANGE_KEY, ReportSelection, select_reports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LIFECYCLE_FOLDER = "lifecycle"
AT_ONCE = 3
"""Reports that are made at the same time."""


def build(lives: Lives, what: ReportSelection, note: Note = silent) -> dict[str, pa.Table]:
    """The tables that are asked for, by name, sorted and in their schema."""
    made = {}
    counted = reports_time.worker_buckets(lives)
    shared = [name for name in ("report_workers", "report_capacity") if name in what.names]
    if len(shared) > 1:
        counted = counted.persist()
    builders = _builders(lives, what, counted)

    def make(name: str) -> pa.Table:
        return collected(builders[name](), tables.BY_NAME[name], lives)

    # Planning is done by one thread each: with several, the cores are busy in between.
    try:
        with ThreadPoolExecutor(AT_ONCE, "report") as threads:
            running = {name: threads.submit(make, name) for name in what.names}
            for done, (name, table) in enumerate(running.items()):
                note(f"making {name}", done / len(what.names))
                made[name] = table.result()
    finally:
        counted.unpersist()
    return made


def _builders(
    lives: Lives, what: ReportSelection, counted: DataFrame
) -> dict[str, Callable[[], DataFrame]]:
    return {
        "report_throughput": lambda: reports_time.throughput(lives),
        "report_latency": lambda: reports_time.latency(lives),
        "report_workers": lambda: reports_time.workers(lives, counted),
        "report_backlog": lambda: reports_time.backlog(lives),
        "report_failures": lambda: reports_jobs.failures(lives),
        "report_sla": lambda: reports_jobs.breaches(lives, what.rules),
        "report_sla_summary": lambda: reports_jobs.kept_limits(lives, what.rules),
        "report_capacity": lambda: reports_time.capacity(lives, counted),
        "report_stuck": lambda: reports_jobs.stuck(lives),
        "report_variants": lambda: reports_jobs.variants(lives),
        "report_dfg": lambda: reports_jobs.follows(lives),
        "report_outcomes": lambda: reports_jobs.outcomes(lives),
        "report_retries": lambda: reports_jobs.retries(lives),
        "report_waste": lambda: reports_jobs.waste(lives),
        "report_poison": lambda: reports_jobs.poison(lives),
        "event_log": lambda: reports_jobs.event_log(lives),
    }


def collected(rows: DataFrame, kind: TableKind, lives: Lives) -> pa.Table:
    """A table on the driver: sorted, in its schema, with the range in its metadata."""
    table = rows.select(*kind.names).toArrow().cast(kind.arrow())
    table = table.sort_by([(name, "ascending") for name in kind.order])
    head = {"v": 1, "start_ms": lives.start, "end_ms": lives.end, "bucket_ms": lives.bucket}
    return table.replace_schema_metadata({RANGE_KEY: json.dumps(head).encode()})


def run_report(
    spark: SparkSession,
    input: HistorySource | str,
    to: str,
    *,
    names: Sequence[str] = ("all",),
    bucket: str = "1m",
    sla: str | None = None,
    formats: Iterable[str] = ("parquet",),
    note: Note = silent,
) -> dict[str, Any]:
    """Make reports and write them, with a page that shows them.

    Args:
        input: Where records and events come from, or the directory of a finished lifecycle run.
            From records and events, `jobs` and `attempts` are made first, into `to/lifecycle`.
        to: Directory for the tables and the page.
        names, bucket, sla: As `select_reports` takes them.
        formats: Of the files: parquet, csv, json, md and html.
        note: Called at each step.

    Raises:
        PipelineError: There is no such report or format, or nothing to report on.
    """
    from datetime import UTC, datetime

    from logqueue.pipeline.reports.export import write_tables
    from logqueue.pipeline.reports.report_page import write_page

    what = select_reports(names, bucket, sla)
    folder = input if isinstance(input, str) else os.path.join(to, LIFECYCLE_FOLDER)
    if not isinstance(input, str):
        run_lifecycle(spark, input, folder, note=lambda text, share: note(text, _part(share, 0.0)))
    span = Span.read(folder)
    lives = Lives(
        read_table(spark, folder, tables.JOBS),
        read_table(spark, folder, tables.ATTEMPTS),
        span.start if span is not None else 0,
        span.end if span is not None else 0,
        what.bucket,
    )
    made = build(lives, what, lambda text, share: note(text, _part(share, 0.5)))
    chosen = list(dict.fromkeys(formats))
    os.makedirs(to, exist_ok=True)
    note("writing", 0.98)
    files = write_tables(made, to, [name for name in chosen if name != "html"])
    if "html" in chosen:
        start, end = (datetime.fromtimestamp(at / 1000, UTC) for at in (lives.start, lives.end))
        page = os.path.join(to, "report.html")
        write_page(made, page, title="Queues", range=(start, end), bucket_ms=what.bucket)
        files.append(page)
    note("done", 1.0)
    return {
        "job": "report",
        "range": span.description() if span is not None else {},
        "topics": sorted({queue.topic for queue in span.queues}) if span is not None else [],
        "bucket_ms": what.bucket,
        "rows": {name: table.num_rows for name, table in made.items()},
        "files": files,
        "output": to,
    }


def _part(share: float | None, start: float) -> float | None:
    """The share of the whole job when this half of it is so far."""
    return None if share is None else start + share / 2
