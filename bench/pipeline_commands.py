"""How long the commands of the data pipeline take, from their start to their exit.

Owns: the rows whose names begin with `pipeline-`. Must not know: how any of them works. Every run
finds the log as a stranger does, without indexes from a run before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.load import LoadFailed
from bench.rows import Row, Target
from bench.session import Session
from bench.spark_jobs import fresh
from bench.spark_logs import write_jobs, write_single_jobs
from bench.spark_session import JOBS_TOPIC, jobs_log, records_log, timed

SMALL_JOBS = 2_000
TIMEOUT_S = 600.0


def pipeline_report(session: Session) -> list[Row]:
    """A report of a small log."""
    what = f"logqueue pipeline report, {SMALL_JOBS:,} jobs, start to exit"
    row = Row("pipeline-report", what, "s", Target(1.5, at_most=True))
    data = session.directory / "small"
    write_jobs(data, SMALL_JOBS, JOBS_TOPIC)
    return _reports(session, row, data, "duckdb", session.scale.spark_starts)


def pipeline_jobs(session: Session) -> list[Row]:
    """Lifecycle and all reports of many jobs, written in batches."""
    what = f"lifecycle and all reports, {session.scale.spark_jobs:,} jobs, DuckDB"
    row = Row("pipeline-jobs", what, "s", Target(15.0, at_most=True))
    return _reports(session, row, jobs_log(session), "duckdb", session.scale.repeats)


def pipeline_jobs_spark(session: Session) -> list[Row]:
    """The same on Spark."""
    what = f"lifecycle and all reports, {session.scale.spark_jobs:,} jobs, Spark"
    row = Row("pipeline-jobs-spark", what, "s", Target(40.0, at_most=True))
    return _reports(session, row, jobs_log(session), "spark", session.scale.repeats)


def pipeline_single_jobs(session: Session) -> list[Row]:
    """The same of jobs that were appended, claimed and acked one at a time."""
    what = f"lifecycle and all reports, {session.scale.spark_jobs:,} jobs of single events, DuckDB"
    row = Row("pipeline-single-jobs", what, "s", Target(30.0, at_most=True))
    data = session.directory / "single-jobs"
    if not data.exists():
        session.tell(f"  writing a log of {session.scale.spark_jobs:,} jobs of single events")
        write_single_jobs(data, session.scale.spark_jobs, JOBS_TOPIC)
    return _reports(session, row, data, "duckdb", session.scale.repeats)


def pipeline_audit(session: Session) -> list[Row]:
    """Every rule, over the files of a log without faults."""
    what = f"logqueue pipeline audit, {session.scale.spark_records:,} records, start to exit"
    row = Row("pipeline-audit", what, "s", Target(12.0, at_most=True))
    words = ["audit", "--path", str(records_log(session)), "--engine", "duckdb"]
    for _ in range(session.scale.repeats):
        to = str(fresh(session, "findings"))
        timed(session, row, _command([*words, "--to", to]))
    return [row]


def _reports(session: Session, row: Row, data: Path, engine: str, times: int) -> list[Row]:
    for _ in range(times):
        to = fresh(session, "reports")
        words = ["report", "--path", str(data), "--to", str(to), "--engine", engine]
        timed(session, row, _command([*words, "--format", "parquet,html"]))
        if not (to / "report.html").is_file():
            raise LoadFailed("there is no report.html")
    return [row]


def _command(words: list[str]) -> Callable[[], None]:
    """A run of an action, which keeps no index for the next one."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as cache:
            ended = subprocess.run(
                [sys.executable, "-m", "logqueue", "pipeline", *words, "--json"],
                env={**os.environ, "XDG_CACHE_HOME": cache},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        if ended.returncode != 0:
            raise LoadFailed(f"status {ended.returncode}: {ended.stderr[-400:]}")

    return run
