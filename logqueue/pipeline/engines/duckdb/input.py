"""What a job reads on this machine: records, job events and the rows of the fold, without Spark.

Owns: one look at a log, a server or an archive, and its content in parts that worker processes
decode. Must not know: any job, DuckDB.

Both tables are of one moment: what comes to the log later is in neither. A part is pickled to the
process that reads it; the server's key travels with it, and is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.engines.duckdb.workers import WorkerPool
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.reading import options
from logqueue.pipeline.reading.options import Reading
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.reading.planning import SegmentTask, weight
from logqueue.pipeline.stores import spans
from logqueue.pipeline.stores.store import Store, batch_tasks
from logqueue.segments.plan import SegmentRead

if TYPE_CHECKING:
    import pyarrow as pa

PAGES_BYTES = 16 << 20
"""What reading by pages is taken to be worth: it is the server that has the work."""


@dataclass(frozen=True)
class InputPart:
    """A part of a table.

    Attributes:
        size: Bytes to read for it.
    """

    size: int

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Its rows in the columns of the table; `columns` are those to make, None for all."""
        raise NotImplementedError


@dataclass(frozen=True)
class SegmentPart(InputPart):
    """Rows of a log's segments, or of pages of a server."""

    store: Store
    task: Any

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """See `InputPart`."""
        return self.store.read(self.task, columns)


@dataclass(frozen=True)
class FoldPart:
    """A part of the rows of the fold, in the columns of `fold_rows.ROWS_SCHEMA`; not sorted.

    Attributes:
        table: "records" or "lease_events".
        part: What it is made of.
        queues: The log ids of queues.
        end: Of the range, ms since the epoch.
    """

    table: str
    part: InputPart
    queues: frozenset[str]
    end: int

    @property
    def size(self) -> int:
        """Bytes to read for it."""
        return self.part.size

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its rows."""
        from logqueue.pipeline.rows import fold_rows

        is_records = self.table == "records"
        make = fold_rows.of_records if is_records else fold_rows.of_events
        for batch in self.part.batches(
            fold_rows.RECORD_COLUMNS if is_records else fold_rows.EVENT_COLUMNS
        ):
            rows = make(batch, self.queues, self.end)
            if rows.num_rows:
                yield rows


@dataclass(frozen=True)
class FloorPart:
    """The rows of the fold about jobs below floors; see `fold_rows.of_floors`."""

    parts: tuple[InputPart, ...]
    first_seqs: dict[str, int]
    end: int

    @property
    def size(self) -> int:
        """Bytes to read for it."""
        return sum(part.size for part in self.parts)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its rows."""
        from logqueue.pipeline.rows import fold_rows

        events = (batch for part in self.parts for batch in part.batches(fold_rows.FLOOR_COLUMNS))
        return fold_rows.of_floors(events, self.first_seqs, self.end)


class LocalInput:
    """A place to read from, looked at once.

    Attributes:
        place: Which one.
    """

    def __init__(self, place: InputPlace, pool: WorkerPool | None = None) -> None:
        """Nothing is read yet.

        Args:
            pool: Decodes what is much; without one, all is done in this process.
        """
        self.place = place
        self._pool = pool if pool is not None else WorkerPool(1)

    # -- what there is ---------------------------------------------------------------------------

    def span(self, end: int | None = None) -> Span:
        """The range of history that is there, without reading every row.

        Args:
            end: Where it ends, ms since the epoch; None for the last record or event.

        Raises:
            PipelineError: There is nothing to read from, or it cannot be read.
        """
        return self._content.span(end)

    # -- tables ----------------------------------------------------------------------------------

    def record_parts(self, data: str = "none") -> Sequence[InputPart]:
        """Records in parts.

        Args:
            data: string, binary or none: what the column `data` holds.
        """
        return self._content.record_parts(data)

    def event_parts(self) -> Sequence[InputPart]:
        """Job events in parts."""
        return self._content.event_parts()

    def records(
        self, columns: Sequence[str] | None = None, data: str = "string"
    ) -> Iterator[pa.RecordBatch]:
        """Records, in the columns of `RECORDS_SCHEMA` or some of them."""
        return self._read(self.record_parts(data), columns)

    def events(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Job events, in the columns of `EVENTS_SCHEMA` or some of them."""
        return self._read(self.event_parts(), columns)

    def _read(
        self, parts: Sequence[InputPart], columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        size = sum(part.size for part in parts)
        if self._pool.parallel(size, len(parts)) == 1:
            for part in parts:
                yield from part.batches(columns)
            return
        work = partial(_encoded, columns=columns)
        for found in self._pool.map(work, parts, size, len(parts)):
            yield from _decoded(found)

    # -- rows of the fold ------------------------------------------------------------------------

    def fold_parts(self, span: Span) -> Sequence[FoldPart | FloorPart]:
        """The rows that the fold of jobs takes, in parts that can be pickled; see
        `history_batches.folder`. They come in no order.

        Args:
            span: Of this input.
        """
        queues = frozenset(queue.log_id for queue in span.queues)
        found: list[FoldPart | FloorPart] = [
            FoldPart(table, part, queues, span.end)
            for table, parts in (
                ("records", self.record_parts()),
                ("lease_events", self.event_parts()),
            )
            for part in parts
        ]
        first_seqs = {q.log_id: q.first_seq for q in span.queues if q.floors and q.records}
        if first_seqs:
            parts = tuple(self._content.floor_parts(frozenset(first_seqs)))
            found.append(FloorPart(parts, first_seqs, span.end))
        return found

    def rows(self, span: Span) -> Iterator[pa.RecordBatch]:
        """The same rows, one batch after the other."""
        for part in self.fold_parts(span):
            yield from part.batches()

    @cached_property
    def _content(self) -> _LogContent | Any:
        if self.place.archive is not None:
            raise PipelineError("an archive cannot be read on DuckDB yet")
        return _LogContent(self.place, self._pool)


class _LogContent:
    """What a log or a server holds, at one moment."""

    def __init__(self, place: InputPlace, pool: WorkerPool) -> None:
        self._place = place
        self._pool = pool
        self._tasks: dict[str, list[InputPart]] = {}
        self._records, self._records_reading = self._store(data="none")
        self._events, self._events_reading = self._store(events="leases")
        self._snapshots = self._events.snapshot_with(self._records)

    def _store(self, **further: str) -> tuple[Any, Reading]:
        given = {**self._place.source_options(), **further}
        if self._place.url is not None:
            from logqueue.pipeline.stores.live_store import LiveStore

            live = options.live(given)
            return LiveStore(live), live.reading
        from logqueue.pipeline.stores.wal_store import WalStore

        files = options.offline(given)
        return WalStore(files), files.reading

    def span(self, end: int | None) -> Span:
        """See `LocalInput`."""
        _, snapshot = self._snapshots
        log = getattr(snapshot, "log", snapshot)
        survey = log.survey
        records = spans.record_extents(
            survey, _reads(self.record_parts("none")), self._reader(self._records), end
        )
        for part in self.record_parts("none"):
            if isinstance(part, SegmentPart) and not isinstance(part.task, SegmentTask):
                spans.add_records(records, part.batches(spans.RECORD_COLUMNS), end)
        events = spans.event_extents(
            survey, _reads(self.event_parts()), self._reader(self._events), end
        )
        return spans.span_of(records, events, spans.topics_named(survey), end)

    def _reader(self, store: Store) -> Callable[[Sequence[SegmentRead]], Iterator[pa.RecordBatch]]:
        is_events = store is self._events
        columns = spans.EVENT_COLUMNS if is_events else spans.RECORD_COLUMNS

        def rows(reads: Sequence[SegmentRead]) -> Iterator[pa.RecordBatch]:
            for read in reads:
                yield from store.read(SegmentTask((read,)), columns)

        return rows

    def record_parts(self, data: str) -> list[InputPart]:
        """See `LocalInput`."""
        if data not in self._tasks:
            snapshot, _ = self._snapshots
            store, reading = self._store(data=data)
            self._tasks[data] = _parts(store, batch_tasks(snapshot, reading))
        return self._tasks[data]

    def event_parts(self) -> list[InputPart]:
        """See `LocalInput`."""
        if "leases" not in self._tasks:
            _, snapshot = self._snapshots
            tasks = batch_tasks(snapshot, self._events_reading, settled=True)
            self._tasks["leases"] = _parts(self._events, tasks)
        return self._tasks["leases"]

    def floor_parts(self, log_ids: frozenset[str]) -> Iterator[InputPart]:
        """Parts of job events that may tell of floors of some topics."""
        _, snapshot = self._snapshots
        survey = getattr(snapshot, "log", snapshot).survey
        with_floors = {
            index.segment
            for index in survey.jobs
            for part in index.topics
            if part.log_id in log_ids and (part.floors or not part.events_first_ts)
        }
        for part in self.event_parts():
            assert isinstance(part, SegmentPart)
            if any(read.log == "jobs" and read.segment in with_floors for read in part.task.reads):
                yield part


def _parts(store: Store, tasks: Sequence[Any]) -> list[InputPart]:
    """A part per segment: what is smaller does not lose time at the end."""
    found: list[InputPart] = []
    for task in tasks:
        if isinstance(task, SegmentTask):
            found += [SegmentPart(weight(read), store, SegmentTask((read,))) for read in task.reads]
        else:
            found.append(SegmentPart(PAGES_BYTES, store, task))
    return found


def _reads(parts: Sequence[InputPart]) -> list[SegmentRead]:
    """Reads of segments; of what comes by pages the log does not tell."""
    return [
        read
        for part in parts
        if isinstance(part, SegmentPart) and isinstance(part.task, SegmentTask)
        for read in part.task.reads
    ]


def _encoded(part: InputPart, columns: Sequence[str] | None) -> bytes | None:
    """The rows of a part as an Arrow stream; None without any."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    writer: Any = None
    for batch in part.batches(columns):
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
    if writer is None:
        return None
    writer.close()
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _decoded(stream: bytes | None) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if stream is not None:
        with pa.ipc.open_stream(stream) as reader:
            yield from reader
