"""An audit on Spark: tasks on executors, rows of jobs shuffled by their buckets.

Owns: how tasks become Spark jobs. Must not know: the rules. Only digests come to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logqueue.pipeline.audit.comparison import PlaceComparison
from logqueue.pipeline.audit.job_rows import EVENT_COLUMNS, ROWS, RowsPlan, present_rows
from logqueue.pipeline.audit.job_rules import JobContext
from logqueue.pipeline.audit.log import SegmentSource
from logqueue.pipeline.audit.run import BatchFunction
from logqueue.pipeline.audit.verdicts import Verdict, decode, encode, verdict_of
from logqueue.pipeline.engines.spark.audit.comparing import compare_inputs
from logqueue.pipeline.engines.spark.audit.tables import SparkTables
from logqueue.pipeline.engines.spark.formats.tasks import run_tasks
from logqueue.pipeline.stores.audited_segments import segments_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from logqueue.pipeline.engines.spark.formats.inputs import Input


class SparkAuditEngine:
    """See `audit.run.AuditEngine`."""

    def __init__(self, spark: SparkSession, input: Input) -> None:
        self._spark = spark
        self._input = input
        self._tables = SparkTables(spark, input)

    def segments(self) -> tuple[Sequence[SegmentSource], Sequence[str]] | None:
        """See `AuditEngine`."""
        return segments_of(self._input.path) if self._input.path else None

    def run_tasks(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """See `AuditEngine`."""
        if len(items) < 2:
            return map(function, items)
        return run_tasks(self._spark, function, items)

    def map_records(
        self, columns: Sequence[str], function: BatchFunction, schema: pa.Schema
    ) -> pa.Table:
        """See `AuditEngine`."""
        table: pa.Table = self._tables.records(columns, function, schema).toArrow()
        return table.cast(schema)

    def map_events(
        self, columns: Sequence[str], function: BatchFunction, schema: pa.Schema
    ) -> pa.Table:
        """See `AuditEngine`."""
        table: pa.Table = self._tables.events(columns, function, schema).toArrow()
        return table.cast(schema)

    def jobs(self, plan: RowsPlan) -> SparkJobTable:
        """See `AuditEngine`."""
        in_tasks = plan.for_tasks()
        rows = self._tables.events(EVENT_COLUMNS, in_tasks.of_events, ROWS)
        columns = plan.record_columns()
        if columns:
            rows = rows.unionAll(self._tables.records(columns, in_tasks.of_records, ROWS))
        present = pa.Table.from_batches([present_rows(plan.present, plan.buckets)])
        return SparkJobTable(rows.unionAll(self._spark.createDataFrame(present)))

    def compare(self, against: Input) -> PlaceComparison:
        """See `AuditEngine`."""
        return compare_inputs(self._spark, self._input, against)


class SparkJobTable:
    """See `audit.run.JobTable`."""

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows

    def verdicts(self, context: JobContext) -> Iterator[Verdict]:
        """See `JobTable`."""
        judged = self._rows.groupBy("bucket").applyInArrow(_judging(context), "verdict BINARY")
        return (decode(row["verdict"]) for row in judged.collect())


def _judging(context: JobContext) -> Callable[[pa.Table], pa.Table]:
    def judge(table: pa.Table) -> pa.Table:
        verdict = encode(verdict_of(table, context))
        return pa.table({"verdict": pa.array([verdict], pa.binary())})

    return judge
