"""What a log or a server holds, for jobs on this machine.

Owns: its tables in parts. Must not know: any job, DuckDB.

Both tables are of one moment: what comes to the log later is in neither. The server's key travels
with the parts, and is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.engines.duckdb.parts import InputPart
from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.reading.planning import SegmentTask, weight
from logqueue.pipeline.stores.log_history import LogHistory
from logqueue.pipeline.stores.store import Store

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
        self._history = LogHistory(place)
        self._found: dict[str, list[InputPart]] = {}

    def span(self, end: int | None) -> Span:
        """See `LocalInput`."""
        return self._history.span(end)

    def record_parts(self, data: str) -> list[InputPart]:
        """See `LocalInput`."""
        if data not in self._found:
            store, reading = self._history.store(data=data)
            self._found[data] = _parts(store, self._history.record_tasks(reading))
        return self._found[data]

    def event_parts(self) -> list[InputPart]:
        """See `LocalInput`."""
        if "leases" not in self._found:
            self._found["leases"] = _parts(self._history.events, self._history.event_tasks())
        return self._found["leases"]


def _parts(store: Store, tasks: Sequence[Any]) -> list[InputPart]:
    """A part per segment: what is smaller does not lose time at the end."""
    found: list[InputPart] = []
    for task in tasks:
        if isinstance(task, SegmentTask):
            found += [SegmentPart(weight(read), store, SegmentTask((read,))) for read in task.reads]
        else:
            found.append(SegmentPart(PAGES_BYTES, store, task))
    return found
