"""What a log or a server holds, for jobs on this machine.

Owns: one look at both logs, its tables in parts, and the span from indexes. Must not know: any job,
DuckDB.

Both tables are of one moment: what comes to the log later is in neither. The server's key travels
with the parts, and is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.engines.duckdb.parts import InputPart
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
class SegmentPart(InputPart):
    """Rows of a log's segments, or of pages of a server."""

    store: Store
    task: Any

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """See `InputPart`."""
        return self.store.read(self.task, columns)


class LogContent:
    """What a log or a server holds, at one moment."""

    def __init__(self, place: InputPlace) -> None:
        """Look at it.

        Raises:
            PipelineError: There is no log, or it cannot be read.
        """
        self._place = place
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
