"""What a job on Spark reads: the same two tables from an archive, a log or a server.

Owns: both tables as DataFrames. Must not know: how a place is named, any job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logqueue.pipeline.reading.place import InputPlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"


class Input(InputPlace):
    """One place to read from, and which topics of it, for jobs on Spark; see `InputPlace`."""

    @classmethod
    def at(cls, place: InputPlace) -> Input:
        """The input at a place."""
        return cls(**{name: getattr(place, name) for name in place.__dataclass_fields__})

    def records(
        self, spark: SparkSession, data: str = "string", *, times: str = "dates"
    ) -> DataFrame:
        """Records, in the columns that all sources have.

        Args:
            data: string, binary or none: what the column `data` holds.
            times: dates or all: whether times outside of the years 1 to 9999 are null.
        """
        if self.archive is None:
            return self._load(spark, data=data, times=times)
        rows = self._archived(spark, "records", times)
        if data == "string":
            return rows
        from pyspark.sql import functions as F

        made = F.col("data").cast("binary") if data == "binary" else F.lit(None).cast("string")
        return rows.withColumn("data", made)

    def events(self, spark: SparkSession, *, times: str = "dates") -> DataFrame:
        """Lease events, in the columns that all sources have; see `records`."""
        if self.archive is None:
            return self._load(spark, events="leases", times=times)
        return self._archived(spark, "lease_events", times)

    def _load(self, spark: SparkSession, **further: str) -> DataFrame:
        given = {**self.source_options(), **further}
        pushes = spark.conf.get(PUSHDOWN_SETTING, "false")
        given.setdefault("pushdown", pushes or "false")
        format = "logqueue" if self.url is not None else "logqueue-wal"
        return spark.read.format(format).options(**given).load()

    def _archived(self, spark: SparkSession, table: str, times: str) -> DataFrame:
        from pyspark.sql import functions as F

        from logqueue.pipeline.engines.spark.archive.job import read_archive

        assert self.archive is not None
        rows = read_archive(spark, self.archive, table, times=times)
        if self.topics:
            return rows.where(F.col("topic").isin(list(self.topics)))
        if self.pattern is not None:
            return rows.where(F.col("topic").rlike(f"^(?:{self.pattern})$"))
        return rows
