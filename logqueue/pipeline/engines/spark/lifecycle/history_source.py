"""What a job on Spark asks of its input, and how tasks read parts of it.

Owns: the protocol `HistorySource`, and rows of parts. Must not know: which inputs there are, what
is made of history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from logqueue.pipeline.engines.spark.formats.tasks import of_items
from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.stores.archive_store import SeqBuckets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Function = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

TASK_BYTES: Final = 8 << 20
"""Small parts are read together, up to about so many bytes."""


class HistorySource(Protocol):
    """Where records and events come from; `inputs.Input` is one."""

    def span(self, end: int | None) -> Span:
        """What there is to read; what is later than `end` (ms since the epoch) does not count."""

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
        """What a function makes, task by task, of rows in the columns of `fold_rows.ROWS_SCHEMA`.

        Args:
            span: Of this input, or some queues of it.
            ddl: The columns that the function makes.
            from_ms: Parts without a row of this time or later, ms since the epoch, may be left out.
            jobs: Parts without a row of these jobs may be left out.
        """


def of_parts(spark: SparkSession, parts: Sequence[Any], function: Function, ddl: str) -> DataFrame:
    """What a function makes of rows that tasks read themselves; see `HistorySource.fold_rows`.

    Args:
        parts: Have `size`, in bytes, and `batches()`; can be pickled.
    """

    def read(number: int, some: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        return function(rows for part in some for rows in part.batches())

    return of_items(spark, _together(parts), read, ddl)


def _together(parts: Sequence[Any]) -> list[list[Any]]:
    tasks: list[list[Any]] = []
    size = TASK_BYTES
    for part in parts:
        if size + part.size > TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(part)
        size += part.size
    return tasks
