"""Histories as the DataFrames and Parquet files that jobs of the pipeline read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logqueue.pipeline.lifecycle import tables

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


@dataclass
class Told:
    """Records and events in memory, as an input of jobs."""

    record_rows: list[Row]
    event_rows: list[Row]

    def records(
        self, spark: SparkSession, data: str = "string", *, times: str = "dates"
    ) -> DataFrame:
        """The table `records`."""
        return spark.createDataFrame(table_of(self.record_rows, tables.RECORDS))

    def events(self, spark: SparkSession, *, times: str = "dates") -> DataFrame:
        """The table `lease_events`."""
        return spark.createDataFrame(table_of(self.event_rows, tables.LEASE_EVENTS))
