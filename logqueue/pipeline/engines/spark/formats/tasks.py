"""Functions in tasks of Spark.

Owns: how items reach tasks, and results the driver. Must not know: what is done in tasks.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS_MAX: Final = 10_000


def run_tasks(
    spark: SparkSession,
    function: Callable[[Any], Any],
    items: Sequence[Any],
    per_task: int = 1,
) -> Iterator[Any]:
    """What a function makes of each item, in their order; results are small.

    Args:
        per_task: So many items are one task.
    """
    if not items:
        return iter(())
    rows = of_items(spark, items, _each(function), "id BIGINT, result BINARY", per_task).collect()
    rows = sorted(rows, key=lambda row: int(row["id"]))
    return (pickle.loads(zlib.decompress(row["result"])) for row in rows)


def of_items(
    spark: SparkSession,
    items: Sequence[Any],
    function: Callable[[int, Any], Iterator[pa.RecordBatch]],
    ddl: str,
    per_task: int = 1,
) -> DataFrame:
    """The rows that a function makes of each item and its number.

    Args:
        ddl: Their columns.
        per_task: So many items are one task.
    """
    tasks = min(max(1, -(-len(items) // per_task)), TASKS_MAX)
    return spark.range(0, len(items), 1, tasks).mapInArrow(_numbered(function, [*items]), ddl)


def _numbered(
    function: Callable[[int, Any], Iterator[pa.RecordBatch]], items: list[Any]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from function(number, items[number])

    return run


def _each(function: Callable[[Any], Any]) -> Callable[[int, Any], Iterator[pa.RecordBatch]]:
    def run(number: int, item: Any) -> Iterator[pa.RecordBatch]:
        result = zlib.compress(pickle.dumps(function(item)), 1)
        yield pa.RecordBatch.from_pydict({"id": [number], "result": [result]})

    return run
