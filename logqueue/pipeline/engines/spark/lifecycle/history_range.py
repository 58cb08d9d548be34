"""The range of history that a run reads, found by Spark.

Owns: what a job asks of its input, and one pass over times and seqs. Must not know: what is made of
the history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from logqueue.pipeline.lifecycle.span import QueueSpan, Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class HistorySource(Protocol):
    """Where records and events come from; `inputs.Input` is one."""

    def records(
        self, spark: SparkSession, data: str = "string", *, times: str = "dates"
    ) -> DataFrame:
        """Records, as the table `records`."""

    def events(self, spark: SparkSession, *, times: str = "dates") -> DataFrame:
        """Events, as the table `lease_events`."""


def read_span(records: DataFrame, events: DataFrame, end: int | None = None) -> Span:
    """Find out what a range holds; one pass over times and seqs.

    Args:
        records, events: As the tables `records` and `lease_events`.
        end: What is later does not count; None for all there is.
    """
    from pyspark.sql import functions as F

    def counted(rows: DataFrame, seq: str, floors: Any) -> DataFrame:
        kept = rows if end is None else rows.where(F.unix_millis("ts") <= F.lit(end))
        return kept.groupBy("log_id", "topic").agg(
            F.min(F.unix_millis("ts")).alias("start"),
            F.max(F.unix_millis("ts")).alias("end"),
            F.min(seq).alias("first_seq"),
            F.count(F.lit(1)).alias("n"),
            floors.alias("floors"),
        )

    is_floor = F.when(F.col("event") == "trimmed", 1).otherwise(0)
    both = counted(records, "seq", F.lit(-1).cast("long")).unionAll(
        counted(events, "job_seq", F.sum(is_floor))
    )
    return _span(both.collect(), end)


def _span(rows: list[Any], end: int | None) -> Span:
    """Rows of records have -1 for floors."""
    of_records = {row["log_id"]: row for row in rows if row["floors"] < 0}
    of_events = {row["log_id"]: row for row in rows if row["floors"] >= 0}
    queues = []
    for log_id, row in of_events.items():
        its = of_records.get(log_id)
        queues.append(
            QueueSpan(
                log_id,
                row["topic"],
                its["first_seq"] if its is not None else 0,
                its["n"] if its is not None else 0,
                row["n"],
                row["floors"],
            )
        )
    last = max((row["end"] for row in rows), default=0)
    return Span(
        min((row["start"] for row in rows), default=0),
        last if end is None else end,
        tuple(sorted(queues, key=lambda queue: (queue.topic, queue.log_id))),
        len(of_records.keys() - of_events.keys()),
    )
