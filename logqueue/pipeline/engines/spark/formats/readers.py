"""The readers that Spark calls, the same for files and for a server.

Owns: Spark's side of planning and reading: batches, filters that Spark hands over, micro-batches
and their bounds. Must not know: where the log is and how it is fetched; that is a `stores.Store`.

Spark makes a reader on the driver's host, asks it for partitions, and pickles it to the executors
with them. So a store opens nothing before it is asked, and a task carries all that it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logqueue.pipeline.reading.offset_planner import (
    EventsOffsetPlanner,
    Limit,
    OffsetPlanner,
    RecordsOffsetPlanner,
)
from logqueue.pipeline.reading.options import Reading, require_batch, require_stream
from logqueue.pipeline.reading.pushdown import Pushdown
from logqueue.pipeline.stores.store import Snapshot, Store, batch_tasks

if TYPE_CHECKING:
    import pyarrow as pa

RECORDS_DDL = (
    "topic STRING, seq BIGINT, ts TIMESTAMP, tag STRING, key STRING, node STRING, meta STRING, "
    "data {data}, size INT, not_before TIMESTAMP, segment STRING, log_id STRING, "
    "priority INT, `group` STRING"
)
EVENTS_DDL = (
    "topic STRING, lseq BIGINT, ts TIMESTAMP, event STRING, job_seq BIGINT, lease_id STRING, "
    "worker STRING, deadline TIMESTAMP, ready_at TIMESTAMP, reason STRING, detail STRING, "
    "log_id STRING"
)


def ddl(reading: Reading) -> str:
    """The columns that rows have, as Spark's DDL."""
    if reading.events == "leases":
        return EVENTS_DDL
    return RECORDS_DDL.format(data="BINARY" if reading.data == "binary" else "STRING")


class TaskPartition(InputPartition):
    """One task of a store."""

    def __init__(self, task: Any) -> None:
        super().__init__(task)


def _partitions(tasks: Iterable[Any]) -> list[InputPartition]:
    return [TaskPartition(task) for task in tasks]


def _read(store: Store, reading: Reading, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Of no partitions at all, Spark makes one without a value.
    if partition.value is None:
        return iter(())
    batches = store.read(partition.value)
    if reading.times == "all":
        return batches
    from logqueue.pipeline.rows.moments import shown

    return shown(batches)


class BatchReader(DataSourceReader):
    """Reads what is there once."""

    def __init__(self, store: Store, reading: Reading) -> None:
        """Check the options.

        Raises:
            PipelineError: They make no batch.
        """
        require_batch(reading)
        self.store = store
        self.reading = reading
        self.pushdown = Pushdown.of(reading)

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the batch; its ends are fixed here."""
        snapshot = self.store.snapshot()
        return _partitions(batch_tasks(snapshot, self.reading, self.pushdown))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return _read(self.store, self.reading, partition)


class PushingReader(BatchReader):
    """Takes over what filters say of topics, seqs and times.

    A class of its own, since Spark refuses readers that take filters unless its setting
    `spark.sql.python.filterPushdown.enabled` is true.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep what narrows the read, and give back what Spark must still check."""
        seq = "lseq" if self.reading.events == "leases" else "seq"
        for filter in filters:
            reduced = _reduced(self.pushdown, filter, seq)
            if reduced is None:
                yield filter
                continue
            self.pushdown = reduced
            if _column(filter) == "ts":
                # Segments are left out by their times; rows are not looked at one by one.
                yield filter


def _column(filter: Filter) -> str:
    attribute: tuple[str, ...] = getattr(filter, "attribute", ())
    return attribute[0] if len(attribute) == 1 else ""


def _reduced(pushdown: Pushdown, filter: Filter, seq: str) -> Pushdown | None:
    """A narrower read that still has every row the filter lets through; None if it says nothing."""
    column, value = _column(filter), getattr(filter, "value", None)
    if column == "topic":
        if isinstance(filter, In):
            return pushdown.topics_in(frozenset(map(str, filter.value)))
        if isinstance(filter, EqualTo):
            return pushdown.topics_in(frozenset((str(value),)))
        return None
    if column == seq and isinstance(value, int) and not isinstance(value, bool):
        bounds = _bounds(filter, value)
        return pushdown.seqs(*bounds) if bounds else None
    if column == "ts" and isinstance(value, datetime):
        # Times in the log are whole ms.
        exact = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        micros = round(exact.timestamp() * 1_000_000)
        bounds = _bounds(filter, micros)
        return pushdown.micros(*bounds) if bounds else None
    return None


def _bounds(filter: Filter, value: int) -> tuple[int | None, int | None] | None:
    """First and last whole number that a comparison lets through; None means no bound."""
    if isinstance(filter, EqualTo):
        return value, value
    if isinstance(filter, GreaterThan):
        return value + 1, None
    if isinstance(filter, GreaterThanOrEqual):
        return value, None
    if isinstance(filter, LessThan):
        return None, value - 1
    if isinstance(filter, LessThanOrEqual):
        return None, value
    return None


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes, micro-batch by micro-batch."""

    def __init__(self, store: Store, reading: Reading) -> None:
        """Check the options.

        Raises:
            PipelineError: A stream cannot begin there.
        """
        require_stream(reading)
        self.store = store
        self.reading = reading
        self._planner: OffsetPlanner
        if reading.events == "leases":
            self._planner = EventsOffsetPlanner(reading)
        else:
            self._planner = RecordsOffsetPlanner(reading)
        self._target: dict[str, Any] | None = None

    def _available(self, snapshot: Snapshot) -> Any:
        if self.reading.events == "leases":
            return snapshot.available_events(settled=True)
        return snapshot.available()

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        return self._planner.initial(self._available(self.store.snapshot()))

    def getDefaultReadLimit(self) -> ReadLimit:
        """The bound of a micro-batch that the options ask for."""
        if self.reading.max_records is not None:
            return ReadMaxRows(self.reading.max_records)
        if self.reading.max_bytes is not None:
            return ReadMaxBytes(self.reading.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the micro-batch from `start` ends."""
        bound = Limit()
        if isinstance(limit, ReadMaxRows):
            bound = Limit(rows=limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            bound = Limit(bytes=limit.max_bytes)
        available = self._available(self.store.snapshot())
        return self._planner.latest(start, available, bound, self._target)

    def reportLatestOffset(self) -> dict[str, Any]:
        """The end of what is there; Spark shows it as the backlog of a query."""
        return self._planner.end(self._available(self.store.snapshot()))

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of a run at what is there now."""
        self._target = self.reportLatestOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch, from its offsets only."""
        snapshot = self.store.snapshot()
        available: Any
        if self.reading.events == "leases":
            available = snapshot.available_events(settled=False)
        else:
            available = snapshot.available()
        ranges = self._planner.between(start, end, available)
        return _partitions(snapshot.tasks(ranges, Pushdown.of(self.reading)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return _read(self.store, self.reading, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: how far a query has read is known to its checkpoint only, and Spark says
        it one micro-batch late."""

    def stop(self) -> None:
        """Nothing is open."""


def reader(store: Store, reading: Reading) -> BatchReader:
    """The batch reader for these options."""
    return PushingReader(store, reading) if reading.pushdown else BatchReader(store, reading)
