"""What a log or a server holds, for jobs that read it in parts.

Owns: its tables in parts. Must not know: any job, any engine.

Both tables are of one moment: what comes to the log later is in neither. The server's key travels
with the parts, and is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.reading.planning import SegmentTask, Survey, weight
from logqueue.pipeline.stores.archive_store import SeqBuckets
from logqueue.pipeline.stores.log_history import LogHistory
from logqueue.pipeline.stores.parts import InputPart, PartBounds
from logqueue.pipeline.stores.store import Store
from logqueue.segments.index import SegmentIndex
from logqueue.segments.plan import SegmentRead

if TYPE_CHECKING:
    import pyarrow as pa

Indexes = Mapping[tuple[str, int], SegmentIndex]

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
        self._history = LogHistory(place)
        self._found: dict[str, list[InputPart]] = {}

    def span(self, end: int | None) -> Span:
        """See `LocalInput`."""
        return self._history.span(end)

    def record_parts(
        self, data: str, *, from_ms: int | None = None, jobs: SeqBuckets | None = None
    ) -> list[InputPart]:
        """Records in parts; those without a row of `from_ms` or later, or of `jobs`, too."""
        if data not in self._found:
            store, reading = self._history.store(data=data)
            tasks = self._history.record_tasks(reading)
            self._found[data] = _parts(store, tasks, partial(_record_bounds, self._indexes))
        return self._found[data]

    def event_parts(
        self, *, from_ms: int | None = None, jobs: SeqBuckets | None = None
    ) -> list[InputPart]:
        """See `record_parts`."""
        if "leases" not in self._found:
            tasks = self._history.event_tasks()
            self._found["leases"] = _parts(self._history.events, tasks, self._event_bounds)
        return self._found["leases"]

    @cached_property
    def _indexes(self) -> Indexes:
        return _by_segment(self._history.survey)

    def _event_bounds(self, read: SegmentRead) -> PartBounds:
        """What a read of job events may have."""
        index = self._indexes[read.log, read.segment]
        names = frozenset(topic.name for topic in read.topics)
        return PartBounds(names, index.first_at, index.last_at)


def only_records(place: InputPlace, data: str) -> list[InputPart]:
    """Records of a log or a server without a look at job events.

    Args:
        data: string, binary or none: what the column `data` holds.

    Raises:
        PipelineError: There is no log, or it cannot be read.
    """
    store, tasks, survey = LogHistory(place).only_records(data)
    return _parts(store, tasks, partial(_record_bounds, _by_segment(survey) if survey else {}))


def _by_segment(survey: Survey) -> Indexes:
    return {(index.log, index.segment): index for index in (*survey.jobs, *survey.leases)}


def _record_bounds(indexes: Indexes, read: SegmentRead) -> PartBounds:
    """What a read of records may have, by the index of its segment."""
    wanted = {topic.topic for topic in read.topics}
    parts = [part for part in indexes[read.log, read.segment].topics if part.topic in wanted]
    firsts = [part.first_ts for part in parts if part.rows]
    firsts += [part.moved_first_ts for part in parts if part.moved_rows]
    lasts = [max(part.last_ts, part.moved_last_ts) for part in parts]
    names = frozenset(topic.name for topic in read.topics)
    return PartBounds(names, min(firsts, default=0), max(lasts, default=0))


def _parts(
    store: Store, tasks: Sequence[Any], bounds: Callable[[SegmentRead], PartBounds]
) -> list[InputPart]:
    """A part per segment: what is smaller does not lose time at the end."""
    found: list[InputPart] = []
    for task in tasks:
        if isinstance(task, SegmentTask):
            found += [
                SegmentPart(weight(read), bounds(read), store, SegmentTask((read,)))
                for read in task.reads
            ]
        else:
            found.append(SegmentPart(PAGES_BYTES, None, store, task))
    return found
