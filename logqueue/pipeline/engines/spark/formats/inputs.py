"""What a job on Spark reads: the same two tables from an archive, a log or a server.

Owns: both tables as DataFrames. Must not know: how a place is named, any job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from logqueue.pipeline.archive.manifests import Table
from logqueue.pipeline.engines.spark.formats.hadoop_tree import HadoopTree
from logqueue.pipeline.engines.spark.lifecycle.history_source import Function, of_parts
from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.rows import fold_rows
from logqueue.pipeline.stores.archive_store import ArchiveStore, SeqBuckets
from logqueue.pipeline.stores.contents import content_of, fold_parts_of
from logqueue.pipeline.stores.log_history import LogHistory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"


class Input(InputPlace):
    """One place to read from, and which topics of it, for jobs on Spark; see `InputPlace`."""

    @classmethod
    def at(cls, place: InputPlace) -> Input:
        """The input at a place."""
        return cls(**{name: getattr(place, name) for name in place.__dataclass_fields__})

    def span(self, end: int | None) -> Span:
        """The range of history that is there, from indexes and manifests.

        Args:
            end: Where it ends, ms since the epoch; None for the last record or event.

        Raises:
            PipelineError: There is nothing to read from, or it cannot be read.
        """
        if self.archive is not None:
            return self._store.span(end)
        return LogHistory(self).span(end)

    def records(
        self,
        spark: SparkSession,
        data: str = "string",
        *,
        times: str = "dates",
        from_ms: int | None = None,
        jobs: SeqBuckets | None = None,
    ) -> DataFrame:
        """Records, in the columns that all sources have.

        Args:
            data: string, binary or none: what the column `data` holds.
            times: dates or all: whether times outside of the years 1 to 9999 are null.
            from_ms: Files without a row of this time or later, ms since the epoch, may be left out.
            jobs: Files without a row of these jobs may be left out.
        """
        if self.archive is None:
            return _later(self._load(spark, data=data, times=times), from_ms)
        rows = self._archived(spark, "records", times, from_ms, jobs)
        if data == "string":
            return rows
        from pyspark.sql import functions as F

        made = F.col("data").cast("binary") if data == "binary" else F.lit(None).cast("string")
        return rows.withColumn("data", made)

    def events(
        self,
        spark: SparkSession,
        *,
        times: str = "dates",
        from_ms: int | None = None,
        jobs: SeqBuckets | None = None,
    ) -> DataFrame:
        """Lease events, in the columns that all sources have; see `records`."""
        if self.archive is None:
            return _later(self._load(spark, events="leases", times=times), from_ms)
        return self._archived(spark, "lease_events", times, from_ms, jobs)

    def fold_rows(
        self,
        spark: SparkSession,
        span: Span,
        function: Function,
        ddl: str,
        *,
        from_ms: int | None = None,
        jobs: SeqBuckets | None = None,
    ) -> DataFrame:
        """What a function makes of rows of the fold; see `HistorySource`."""
        if self.archive is None or not isinstance(self._store.tree, HadoopTree):
            parts = fold_parts_of(content_of(self), span, from_ms=from_ms, jobs=jobs)
            return of_parts(spark, parts, function, ddl)
        queues = frozenset(queue.log_id for queue in span.queues)
        records = self.records(spark, "none", times="all", from_ms=from_ms, jobs=jobs)
        events = self.events(spark, times="all", from_ms=from_ms, jobs=jobs)
        of_records = _shaped(fold_rows.of_records, queues, span.end, function)
        of_events = _shaped(fold_rows.of_events, queues, span.end, function)
        made = records.select(*fold_rows.RECORD_COLUMNS).mapInArrow(of_records, ddl)
        more = events.select(*fold_rows.EVENT_COLUMNS).mapInArrow(of_events, ddl)
        return made.unionAll(more)

    def _load(self, spark: SparkSession, **further: str) -> DataFrame:
        given = {**self.source_options(), **further}
        pushes = spark.conf.get(PUSHDOWN_SETTING, "false")
        given.setdefault("pushdown", pushes or "false")
        format = "logqueue" if self.url is not None else "logqueue-wal"
        return spark.read.format(format).options(**given).load()

    @property
    def _store(self) -> ArchiveStore:
        # Not kept: what a job reads later is what the archive holds then.
        return ArchiveStore(self)

    def _archived(
        self,
        spark: SparkSession,
        table: Table,
        times: str,
        from_ms: int | None,
        jobs: SeqBuckets | None,
    ) -> DataFrame:
        from logqueue.pipeline.engines.spark.archive.job import archived_rows

        store = self._store
        entries = store.entries(table, from_ms=from_ms, jobs=jobs)
        return archived_rows(spark, store.tree, table, entries, times=times)


def _shaped(
    make: Callable[[pa.RecordBatch, Collection[str], int], pa.RecordBatch],
    queues: Collection[str],
    end: int,
    function: Function,
) -> Function:
    """The same function for rows of a table."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(make(batch, queues, end) for batch in batches)

    return run


def _later(rows: DataFrame, from_ms: int | None) -> DataFrame:
    """Rows of a time or later; the source leaves out segments without any."""
    from pyspark.sql import functions as F

    if from_ms is None:
        return rows
    return rows.where(F.col("ts") >= F.timestamp_millis(F.lit(from_ms).cast("long")))
