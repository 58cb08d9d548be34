"""How long the jobs of the data pipeline take on Spark.

Owns: the rows spark-lifecycle, spark-reports and spark-audit.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.load import LoadFailed
from bench.rows import Row, Target
from bench.session import Session
from bench.spark_session import jobs_log, records_log, spark_of, timed


def spark_lifecycle(session: Session) -> list[Row]:
    """Tables of jobs and attempts from the files of a log."""
    from logqueue.pipeline.engines.spark.formats.inputs import Input
    from logqueue.pipeline.engines.spark.lifecycle.job import run_lifecycle

    jobs = session.scale.spark_jobs
    row = Row(
        "spark-lifecycle",
        f"Spark: jobs and attempts of {jobs:,} jobs, 3.4 events each",
        "s",
        Target(25.0, at_most=True),
    )
    spark, source = spark_of(session), Input(path=str(jobs_log(session)))
    for _ in range(session.scale.repeats):
        to = fresh(session, "lifecycle")
        timed(session, row, lambda: run_lifecycle(spark, source, str(to)))  # noqa: B023
        found = spark.read.parquet(str(to / "jobs")).count()
        if found != jobs:
            raise LoadFailed(f"{jobs:,} jobs were expected, the tables have {found:,}")
    return [row]


def spark_reports(session: Session) -> list[Row]:
    """All reports, every format, from tables of jobs and attempts."""
    from logqueue.pipeline.engines.spark.formats.inputs import Input
    from logqueue.pipeline.engines.spark.lifecycle.job import run_lifecycle
    from logqueue.pipeline.engines.spark.reports.job import run_report

    row = Row(
        "spark-reports",
        f"Spark: all reports on {session.scale.spark_jobs:,} jobs",
        "s",
        Target(30.0, at_most=True),
    )
    spark, tables = spark_of(session), session.directory / "lifecycle"
    if not tables.exists():
        run_lifecycle(spark, Input(path=str(jobs_log(session))), str(tables))
    for _ in range(session.scale.repeats):
        to = fresh(session, "reports")

        def report(to: Path = to) -> None:
            formats = ("parquet", "csv", "json", "md", "html")
            run_report(spark, str(tables), str(to), sla="wait=1s,e2e=1m", formats=formats)

        timed(session, row, report)
        if not (to / "report.html").is_file():
            raise LoadFailed("there is no report.html")
    return [row]


def spark_audit(session: Session) -> list[Row]:
    """Every rule, over the files of a log without faults."""
    from logqueue.pipeline.engines.spark.audit.job import run_audit
    from logqueue.pipeline.engines.spark.formats.inputs import Input

    records = session.scale.spark_records
    row = Row(
        "spark-audit", f"Spark: audit of {records:,} records", "s", Target(12.0, at_most=True)
    )
    spark, source = spark_of(session), Input(path=str(records_log(session)))
    for _ in range(session.scale.repeats):
        to, found = fresh(session, "findings"), dict[str, int]()

        def audit(to: Path = to, found: dict[str, int] = found) -> None:
            found.update(run_audit(spark, source, str(to))["findings"])

        timed(session, row, audit)
        if found.get("error") or found.get("warning"):
            raise LoadFailed(f"a log without faults has findings: {found}")
    return [row]


def fresh(session: Session, name: str) -> Path:
    """A directory that is not there."""
    directory = session.directory / name
    shutil.rmtree(directory, ignore_errors=True)
    return directory
