"""The report job: which reports there are, and how they are made and written together.

Owns: the choice of reports, their order, sorting and the range they are told to be of. Must not
know: how a single report is computed, how files and pages are written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logqueue.errors import quoted
from logqueue.pipeline.engines.spark.lifecycle.history_range import HistorySource, Span
from logqueue.pipeline.engines.spark.lifecycle.job import read_table, run_lifecycle
from logqueue.pipeline.engines.spark.reports import job_reports as reports_jobs
from logqueue.pipeline.engines.spark.reports import time_reports as reports_time
from logqueue.pipeline.engines.spark.reports.report_input import Lives, parse_duration, parse_rules
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.progress import Note, silent

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

RANGE_KEY = b"logqueue.range"
"""In the metadata of every table: the range it is of, as JSON."""
LIFECYCLE_FOLDER = "lifecycle"
AT_ONCE = 3
"""Reports that are made at the same time."""
ON_DEMAND = ("event_log",)
"""Made only when it is asked for by name: it holds every step of every job."""
NEED_RULES = ("report_sla", "report_sla_summary")


@dataclass(frozen=True)
class Asked:
    """What a run is to report.

    Attributes:
        names: Of tables, in the order of `tables.REPORTS`.
        bucket: Length of a bucket, ms.
        rules: Limits, ms by rule.
    """

    names: tuple[str, ...]
    bucket: int
    rules: Mapping[str, int]


def asked(names: Sequence[str] = ("all",), bucket: str = "1m", sla: str | None = None) -> Asked:
    """Check what is asked for.

    Args:
        names: Of reports, `latency` or `report_latency`; "all" for all but the event log.
        bucket: A duration such as 1m, 5m, 1h or 1d.
        sla: Limits such as `wait=30s,e2e=5m`.

    Raises:
        PipelineError: There is no such report, or a duration is none.
    """
    known = [kind.name for kind in tables.REPORTS]
    rules = parse_rules(sla or "")
    chosen: set[str] = set()
    for name in names or ("all",):
        full = name if name in known else f"report_{name}"
        if name == "all":
            chosen.update(n for n in known if n not in ON_DEMAND)
        elif full not in known:
            told = ", ".join(n.removeprefix("report_") for n in known)
            raise PipelineError(f"there is no report {quoted(name)}; there are {told}, and all")
        elif full in NEED_RULES and not rules:
            raise PipelineError(f"report {name} needs limits: sla wait=30s,run=1m,e2e=5m")
        else:
            chosen.add(full)
    if not rules:
        chosen.difference_update(NEED_RULES)
    ordered = tuple(name for name in known if name in chosen)
    return Asked(ordered, parse_duration(bucket, "the bucket"), rules)


def build(lives: Lives, what: Asked, note: Note = silent) -> dict[str, pa.Table]:
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


def _builders(lives: Lives, what: Asked, counted: DataFrame) -> dict[str, Callable[[], DataFrame]]:
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
    told = {"v": 1, "start_ms": lives.start, "end_ms": lives.end, "bucket_ms": lives.bucket}
    return table.replace_schema_metadata({RANGE_KEY: json.dumps(told).encode()})


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
        names, bucket, sla: As `asked` takes them.
        formats: Of the files: parquet, csv, json, md and html.
        note: Told what is done at present.

    Raises:
        PipelineError: There is no such report or format, or nothing to report on.
    """
    from datetime import UTC, datetime

    from logqueue.pipeline.reports.export import write_tables
    from logqueue.pipeline.reports.report_page import write_page

    what = asked(names, bucket, sla)
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
        "range": span.told() if span is not None else {},
        "topics": sorted({queue.topic for queue in span.queues}) if span is not None else [],
        "bucket_ms": what.bucket,
        "rows": {name: table.num_rows for name, table in made.items()},
        "files": files,
        "output": to,
    }


def _part(share: float | None, start: float) -> float | None:
    """The share of the whole job when this half of it is so far."""
    return None if share is None else start + share / 2
