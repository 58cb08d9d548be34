"""What executors make of records and lease events, as DataFrames.

Owns: how the rows of a place reach a function. Must not know: what functions make of them.

Of a log or a server, tasks read segments themselves: rows never enter Java, only what a function
makes of them. Of an archive, Spark reads the Parquet files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from logqueue.pipeline.audit.run import BatchFunction
from logqueue.pipeline.stores.log_history import LogHistory
from logqueue.pipeline.stores.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from logqueue.pipeline.engines.spark.formats.inputs import Input

TASKS_MAX: Final = 10_000
_DDL: Final = {
    pa.string(): "STRING",
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    pa.int8(): "TINYINT",
    pa.bool_(): "BOOLEAN",
}


class SparkTables:
    """Both tables of one place; of a log or a server at one moment."""

    def __init__(self, spark: SparkSession, input: Input) -> None:
        """Nothing is read yet."""
        self._spark = spark
        self._input = input

    def records(
        self, columns: Sequence[str], function: BatchFunction, schema: pa.Schema
    ) -> DataFrame:
        """What a function makes of the records of each task."""
        data = "string" if "data" in columns else "none"
        if self._input.archive is not None:
            rows = self._input.records(self._spark, data=data).select(*columns)
            return rows.mapInArrow(_shaped(function, schema), _ddl(schema))
        store, reading = self._history.store(data=data)
        tasks = self._history.record_tasks(reading)
        return self._of_tasks(store, tasks, columns, function, schema)

    def events(
        self, columns: Sequence[str], function: BatchFunction, schema: pa.Schema
    ) -> DataFrame:
        """What a function makes of the lease events of each task."""
        if self._input.archive is not None:
            rows = self._input.events(self._spark).select(*columns)
            return rows.mapInArrow(_shaped(function, schema), _ddl(schema))
        tasks = self._history.event_tasks()
        return self._of_tasks(self._history.events, tasks, columns, function, schema)

    @cached_property
    def _history(self) -> LogHistory:
        return LogHistory(self._input)

    def _of_tasks(
        self,
        store: Store,
        tasks: Sequence[Any],
        columns: Sequence[str],
        function: BatchFunction,
        schema: pa.Schema,
    ) -> DataFrame:
        numbers = self._spark.range(0, len(tasks), 1, min(max(len(tasks), 1), TASKS_MAX))
        read = _reading(store, [*tasks], [*columns], _shaped(function, schema))
        return numbers.mapInArrow(read, _ddl(schema))


def _ddl(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {_DDL[field.type]}" for field in schema)


def _reading(
    store: Store, tasks: list[Any], columns: list[str], function: BatchFunction
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Reads the tasks whose numbers come in."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                rows = store.read(tasks[number], columns)
                yield from function(part.select(columns) for part in rows)

    return run


def _shaped(function: BatchFunction, schema: pa.Schema) -> BatchFunction:
    """The same function; its batches have this very schema, as Spark demands."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in function(batches):
            yield batch.cast(schema) if batch.schema != schema else batch

    return run
