"""What a log or a server holds at one moment: the tasks of both tables, and the range of history.

Owns: one look at both logs, and the span from their indexes. Must not know: engines, any job.

Both tables are of one moment: what comes to the log later is in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.reading import options
from logqueue.pipeline.reading.options import Reading
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.reading.planning import SegmentTask, Survey
from logqueue.pipeline.stores import spans
from logqueue.pipeline.stores.store import Store, batch_tasks
from logqueue.segments.plan import SegmentRead

if TYPE_CHECKING:
    import pyarrow as pa


class LogHistory:
    """Both tables of a log or a server, at one moment.

    Attributes:
        events: Where job events come from.
    """

    def __init__(self, place: InputPlace) -> None:
        """Nothing is read yet."""
        self._place = place
        self._records, _ = self.store(data="none")
        self.events, self._events_reading = self.store(events="leases")

    @cached_property
    def _snapshots(self) -> tuple[Any, Any]:
        """Both tables at the moment when either is first asked for."""
        found: tuple[Any, Any] = self.events.snapshot_with(self._records)
        return found

    def only_records(self, data: str) -> tuple[Any, list[Any], Survey | None]:
        """Records without a look at job events: their store, the tasks that give them, and what the
        indexes say, where they may be seen."""
        store, reading = self.store(data=data)
        snapshot = store.snapshot()
        log = getattr(snapshot, "log", snapshot)
        return store, batch_tasks(snapshot, reading), log.survey if log is not None else None

    def store(self, **further: str) -> tuple[Any, Reading]:
        """The place with further options, and how it is read then."""
        given = {**self._place.source_options(), **further}
        if self._place.url is not None:
            from logqueue.pipeline.stores.live_store import LiveStore

            live = options.live(given)
            return LiveStore(live), live.reading
        from logqueue.pipeline.stores.wal_store import WalStore

        files = options.offline(given)
        return WalStore(files), files.reading

    @property
    def survey(self) -> Survey:
        """What the indexes say."""
        _, snapshot = self._snapshots
        survey: Survey = getattr(snapshot, "log", snapshot).survey
        return survey

    def record_tasks(self, reading: Reading) -> list[Any]:
        """The tasks that give all records."""
        return batch_tasks(self._snapshots[0], reading)

    def event_tasks(self) -> list[Any]:
        """The tasks that give all job events."""
        return batch_tasks(self._snapshots[1], self._events_reading, settled=True)

    def span(self, end: int | None) -> Span:
        """The range of history that is there; rows are looked at only where indexes do not tell.

        Args:
            end: Where it ends, ms since the epoch; None for the last record or event.

        Raises:
            PipelineError: The log cannot be read.
        """
        survey = self.survey
        tasks = self.record_tasks(self._records.given.reading)
        reader = _reader(self._records, spans.RECORD_COLUMNS)
        records = spans.record_extents(survey, _reads(tasks), reader, end)
        for task in tasks:
            if not isinstance(task, SegmentTask):
                batches = self._records.read(task, spans.RECORD_COLUMNS)
                spans.add_records(records, batches, end)
        reader = _reader(self.events, spans.EVENT_COLUMNS)
        events = spans.event_extents(survey, _reads(self.event_tasks()), reader, end)
        return spans.span_of(records, events, spans.topics_named(survey), end)


def _reader(
    store: Store, columns: Sequence[str]
) -> Callable[[Sequence[SegmentRead]], Iterator[pa.RecordBatch]]:
    def rows(reads: Sequence[SegmentRead]) -> Iterator[pa.RecordBatch]:
        for read in reads:
            yield from store.read(SegmentTask((read,)), columns)

    return rows


def _reads(tasks: Sequence[Any]) -> list[SegmentRead]:
    """Reads of segments; of what comes by pages the log does not tell."""
    return [read for task in tasks if isinstance(task, SegmentTask) for read in task.reads]
