"""What a job on Spark asks of its input.

Owns: the protocol `HistorySource`. Must not know: which inputs there are, what is made of history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.stores.archive_store import SeqBuckets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class HistorySource(Protocol):
    """Where records and events come from; `inputs.Input` is one."""

    def span(self, end: int | None) -> Span:
        """What there is to read; what is later than `end` (ms since the epoch) does not count."""

    def records(
        self,
        spark: SparkSession,
        data: str = "string",
        *,
        times: str = "dates",
        from_ms: int | None = None,
        jobs: SeqBuckets | None = None,
    ) -> DataFrame:
        """Records, as the table `records`; perhaps without some that are earlier than `from_ms`, or
        of none of these jobs."""

    def events(
        self,
        spark: SparkSession,
        *,
        times: str = "dates",
        from_ms: int | None = None,
        jobs: SeqBuckets | None = None,
    ) -> DataFrame:
        """Events, as the table `lease_events`; see `records`."""
