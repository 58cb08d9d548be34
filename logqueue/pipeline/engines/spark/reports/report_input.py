"""What all reports read: jobs, their steps and attempts, over one range and in equal buckets.

Owns: the inputs of a report as DataFrames, buckets, percentiles. Must not know: any single report.

Times inside are ms since the epoch, so that buckets are whole numbers; `as_bucket` makes times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ACCURACY = 10_000
"""Of percentiles: the rank is right to one part in so many, and exact for fewer values."""
WORST_MAX = 1000
"""Rows of each topic where a report tells the worst of something only."""


@dataclass(frozen=True)
class Lives:
    """What became of the jobs of a range.

    Attributes:
        jobs, attempts: The tables.
        start, end: Of the range, ms since the epoch.
        bucket: Length of a bucket, ms.
        exact: Percentiles without approximation; sorts all values of a group in memory.
    """

    jobs: DataFrame
    attempts: DataFrame
    start: int
    end: int
    bucket: int
    exact: bool = False

    def bucket_of(self, at: Column) -> Column:
        """The beginning of the bucket of a time, both in ms."""
        from pyspark.sql import functions as F

        return at - F.pmod(at, F.lit(self.bucket))

    def steps(self, ahead: int = 0) -> DataFrame:
        """A row per step of a job: topic, log_id, seq, ready_at (ms), its activity, at (ms), state
        and worker.

        Args:
            ahead: 1 adds the activity and time of the next step (next, next_at), 2 those of the
                one after it, too (after, after_at).
        """
        from pyspark.sql import functions as F

        names = ("next", "after")[:ahead]
        several = F.size("steps")
        shifted = (F.slice("steps", place, several).alias(n) for place, n in enumerate(names, 2))
        key = ("topic", "log_id", "seq")
        ready = F.unix_millis("ready_at").alias("ready_at")
        if ahead:
            rows = self.jobs.select(*key, "ready_at", "steps", *shifted).select(
                *key, ready, F.explode(F.arrays_zip("steps", *names)).alias("z")
            )
        else:
            rows = self.jobs.select(*key, ready, F.explode("steps").alias("s"))
            rows = rows.select(*key, "ready_at", F.struct(F.col("s").alias("steps")).alias("z"))
        further = (
            part
            for name in names
            for part in (
                F.col(f"z.{name}.activity").alias(name),
                F.unix_millis(F.col(f"z.{name}.at")).alias(f"{name}_at"),
            )
        )
        return rows.select(
            *key,
            "ready_at",
            F.col("z.steps.activity").alias("activity"),
            F.unix_millis(F.col("z.steps.at")).alias("at"),
            F.col("z.steps.state").alias("state"),
            F.col("z.steps.worker").alias("worker"),
            *further,
        )

    def percentiles(self, value: str, shares: Mapping[str, float]) -> list[Column]:
        """Several percentiles of a column by name; together they cost little more than one."""
        from pyspark.sql import functions as F

        if self.exact:
            return [self.percentile(value, share).alias(name) for name, share in shares.items()]
        every = F.percentile_approx(value, [*shares.values()], ACCURACY)
        return [every[place].alias(name) for place, name in enumerate(shares)]

    def percentile(self, value: str | Column, share: float) -> Column:
        """The smallest value that at least this share of the values does not exceed."""
        from pyspark.sql import functions as F

        column = F.col(value) if isinstance(value, str) else value
        if not self.exact:
            return F.percentile_approx(column, share, ACCURACY)
        # An array of all values, then the one at the rank: exact, and as heavy as it sounds.
        values = F.sort_array(F.collect_list(column))
        rank = F.greatest(F.ceil(F.size(values) * F.lit(share)).cast("int"), F.lit(1))
        return F.try_element_at(values, rank)


def as_bucket(milliseconds: Column) -> Column:
    """A bucket as a time; null stays null."""
    from pyspark.sql import functions as F

    return F.timestamp_millis(milliseconds)


def worst(rows: DataFrame, *order: Column, within: tuple[str, ...] = ("topic",)) -> DataFrame:
    """The first rows of each topic in an order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    place = F.row_number().over(Window.partitionBy(*within).orderBy(*order))
    return rows.withColumn("_place", place).where(F.col("_place") <= WORST_MAX).drop("_place")


def first_line(text: Column) -> Column:
    """The first line of an error, cut to what can be grouped by."""
    from pyspark.sql import functions as F

    return F.substring(F.substring_index(text, "\n", 1), 1, 200)


def is_failure() -> Column:
    """Of an attempt: it ended, not in an ack, and was not handed back unstarted."""
    from pyspark.sql import functions as F

    handed_back = F.coalesce(F.col("reason") == "hand_back", F.lit(False))
    return ~F.col("outcome").isin("acked", "open") & ~handed_back
