"""One Spark session for all rows of a run, and the logs that several of them read.

Owns: both. Must not know: what is measured. pyspark is imported when the first row asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from bench.load import LoadFailed
from bench.rows import Row
from bench.session import Session
from bench.spark_logs import write_jobs, write_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS_TOPIC = "bench.spark"
JOBS_TOPIC = "bench.jobs"


def spark_of(session: Session) -> SparkSession:
    """The session of this run.

    Raises:
        LoadFailed: Spark is not here, or does not start.
    """
    if "spark" not in session.shared:
        from logqueue.pipeline.engines.spark.session.session import opened
        from logqueue.pipeline.errors import PipelineError

        session.tell("  starting Spark")
        try:
            session.shared["spark"] = session.at_end.enter_context(opened())
        except PipelineError as error:
            raise LoadFailed(str(error)) from error
    spark: SparkSession = session.shared["spark"]
    return spark


def records_log(session: Session) -> Path:
    """A data directory with as many records as the scale says."""
    return _made(session, "records", session.scale.spark_records, RECORDS_TOPIC, write_records)


def jobs_log(session: Session) -> Path:
    """A data directory with the lives of as many jobs as the scale says."""
    return _made(session, "jobs", session.scale.spark_jobs, JOBS_TOPIC, write_jobs)


def _made(
    session: Session, name: str, count: int, topic: str, write: Callable[[Path, int, str], None]
) -> Path:
    directory = session.directory / f"spark-{name}"
    if not directory.exists():
        session.tell(f"  writing a log of {count:,} {name}")
        write(directory, count, topic)
    return directory


def timed(session: Session, row: Row, work: Callable[[], object], count: int = 0) -> float:
    """Run something and note how long it took, or how many per second it did.

    Args:
        count: What it did; 0 for a row in seconds.
    """
    began = perf_counter()
    work()
    took = perf_counter() - began
    row.values.append(count / took if count else took)
    row.notes.append(f"{took:.1f} s for {count:,}" if count else "")
    session.tell(f"  {row.name}: {row.values[-1]:,.1f} {row.unit} ({took:.2f} s)")
    return took
