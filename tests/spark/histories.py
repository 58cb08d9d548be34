"""Histories as the DataFrames and Parquet files that jobs of the pipeline read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.lifecycle.span import QueueSpan, Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = Mapping[str, Any]


def table_of(rows: Iterable[Row], kind: tables.TableKind) -> pa.Table:
    """Rows with times in ms since the epoch; columns that they lack are null."""
    listed = list(rows)
    columns = []
    for field in kind.arrow():
        values = [row.get(field.name) for row in listed]
        if pa.types.is_timestamp(field.type):
            columns.append(pa.array(values, pa.timestamp("ms", tz="UTC")).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=kind.arrow())


def _by_log(rows: Iterable[Row], end: int | None) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        if end is None or row["ts"] <= end:
            found.setdefault(row["log_id"], []).append(row)
    return found


@dataclass
class Told:
    """Records and events in memory, as an input of jobs."""

    record_rows: list[Row]
    event_rows: list[Row]

    def span(self, end: int | None = None) -> Span:
        """What there is, counted row by row; topics with events are queues."""
        times = [row["ts"] for row in (*self.record_rows, *self.event_rows)]
        kept = [ts for ts in times if end is None or ts <= end]
        names = {row["log_id"]: row["topic"] for row in (*self.record_rows, *self.event_rows)}
        records = _by_log(self.record_rows, end)
        events = _by_log(self.event_rows, end)
        queues = [
            QueueSpan(
                log_id,
                names[log_id],
                min((row["seq"] for row in records.get(log_id, [])), default=0),
                len(records.get(log_id, [])),
                len(its),
                sum(row["event"] == "trimmed" for row in its),
            )
            for log_id, its in events.items()
        ]
        return Span(
            min(kept, default=0),
            max(kept, default=0) if end is None else end,
            tuple(sorted(queues, key=lambda queue: (queue.topic, queue.log_id))),
            len(records.keys() - events.keys()),
        )

    def records(self, spark: SparkSession, data: str = "string", **hints: object) -> DataFrame:
        """The table `records`."""
        return spark.createDataFrame(table_of(self.record_rows, tables.RECORDS))

    def events(self, spark: SparkSession, **hints: object) -> DataFrame:
        """The table `lease_events`."""
        return spark.createDataFrame(table_of(self.event_rows, tables.LEASE_EVENTS))
