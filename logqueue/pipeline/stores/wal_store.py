"""The segments in directories and replicas as a store: what is there, and the rows of a task.

Owns: files as a store, and which job events of a log that is being written are certain. Must not
know: engines, HTTP, where the files are, how indexes become tasks.

A server may be writing there. What it has not written whole yet is not there yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from logqueue.events import Checkpointed, decode
from logqueue.pipeline.archive.moment import LogMoment
from logqueue.pipeline.reading.options import OfflineOptions, Reading, Selection
from logqueue.pipeline.reading.planning import SegmentTask, Survey
from logqueue.pipeline.rows.fetching import read_task
from logqueue.pipeline.rows.snapshots import LogSnapshot
from logqueue.pipeline.stores.log_files import LogFiles
from logqueue.segments.catalog import Catalog
from logqueue.segments.index import SegmentIndex
from logqueue.segments.payloads import payloads
from logqueue.segments.plan import TopicRead

if TYPE_CHECKING:
    import pyarrow as pa

STOP_FRAMES_MAX = 1000
"""Frames of the last checkpoint, each of a thousand topics, that are looked through for its end."""

LEASES_SETTLED_MS = 2000
"""How long ago the last event must be for both logs to be complete: a server hands the leases log
to the system every 100 ms."""

LEASES_WRITTEN_S = 0.25
"""After so long, what had happened is in the leases log, too."""


class WalStore:
    """The segments in some directories. Picklable; keeps nothing open."""

    def __init__(self, given: OfflineOptions) -> None:
        self.given = given
        self._files = LogFiles(given.paths)

    def snapshot(self) -> LogSnapshot:
        """What is there now.

        Raises:
            PipelineError: There is no log, or one that is damaged or cannot be read.
        """
        catalog = self._files.catalog()
        return LogSnapshot(
            self._survey(catalog, self.given.reading.selection),
            self.given.reading,
            ", ".join(self.given.paths),
            self,
            _settled_end(catalog, self._files),
        )

    def snapshot_with(self, records: WalStore) -> tuple[LogSnapshot, LogSnapshot]:
        """One moment for both tables: of records as another store reads them, and of job events.

        A server hands the leases log to the system a moment after the jobs log. So of a log that is
        being written, the leases log is looked at once more, and what it has beyond the jobs log is
        left out: both end at the same transaction.

        Raises:
            PipelineError: There is no log, or one that is damaged or cannot be read.
        """
        catalog = self._files.catalog()
        end: int | None = None
        if _settled_end(catalog, self._files) is not None:
            end = _end(catalog.jobs_indexes)[0] + 1
            time.sleep(LEASES_WRITTEN_S)
            catalog = catalog._replace(leases=self._files.catalog().leases)
        survey = self._survey(catalog, self.given.reading.selection)
        where = ", ".join(self.given.paths)
        events = LogSnapshot(survey, self.given.reading, where, self, end)
        return events.read_as(records.given.reading, records), events

    def read(
        self, task: SegmentTask, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a task; `columns` are those to make, None for all."""
        return read_task(task, self, self.given.reading, columns)

    def moment(
        self, events: Reading | None, pause: Callable[[float], None] = time.sleep
    ) -> LogMoment:
        """Both logs at one moment: nothing is in it that the other log may still lack.

        Args:
            events: How job events are read, None when they are not; this store says how records
                are.
            pause: Waits so many seconds: of a log that is being written to, the leases log is
                looked at once more when it is complete.
        """
        catalog = self._files.catalog()
        ends = [_end(catalog.jobs_indexes)[0], _end(catalog.leases_indexes)[0]]
        leases, order = catalog.leases_indexes, max(ends) + 1
        if _settled_end(catalog, self._files) is not None:
            pause(LEASES_SETTLED_MS / 1000)
            later = self._files.catalog()
            leases = later.leases_indexes
            if _end(later.jobs_indexes)[0] != ends[0]:
                order = ends[0] + 1
        survey = Survey(catalog.jobs_indexes, leases, self.given.reading.selection)
        return LogMoment(survey, order, self.given.reading, events)

    # -- segments --------------------------------------------------------------------------------

    def fetch(self, log: str, segment: int, length: int) -> bytes:
        """The first bytes of a segment.

        Raises:
            SegmentGone: It is not there.
            PipelineError: It cannot be read.
        """
        return self._files.fetch(log, segment, length)

    def survey(self, selection: Selection) -> Survey:
        """A fresh snapshot of the log."""
        return self._survey(self._files.catalog(), selection)

    def live(self, topic: TopicRead) -> Iterator[pa.RecordBatch]:
        """Nothing: files are all there is."""
        return iter(())

    def _survey(self, catalog: Catalog, selection: Selection) -> Survey:
        return Survey(catalog.jobs_indexes, catalog.leases_indexes, selection)


def _settled_end(catalog: Catalog, files: LogFiles) -> int | None:
    """First order of which one of the logs may still lack something; None when there is none.

    Lease events reach their file a moment after the job events that came with them. So, of a log
    that is being written to, only what both logs have passed is certain.
    """
    ends = [_end(indexes) for indexes in (catalog.jobs_indexes, catalog.leases_indexes)]
    newest = max((at for _, at in ends), default=0)
    if not 0 <= time.time() * 1000 - newest < LEASES_SETTLED_MS or _is_stopped(catalog, files):
        return None
    return min(order for order, _ in ends) + 1


def _is_stopped(catalog: Catalog, files: LogFiles) -> bool:
    """Whether the jobs log ends as an orderly stop leaves it: with a segment of nothing but a
    checkpoint that says so."""
    if not catalog.jobs:
        return True
    file = catalog.jobs[-1]
    index = file.index
    if index.topics or index.last_frame - index.first_frame >= STOP_FRAMES_MAX:
        return False
    data = files.fetch("jobs", file.segment, index.bytes)
    frames = [*payloads(data, file.path, length=index.bytes, checksum=index.crc32)]
    events = decode(frames[-1][1]).events if frames else []
    return any(isinstance(event, Checkpointed) and event.clean for event in events)


def _end(indexes: list[SegmentIndex]) -> tuple[int, int]:
    """The last order of a log and the time of its last event."""
    last = [index for index in indexes if index.last_frame >= index.first_frame]
    return (last[-1].last_order, last[-1].last_at) if last else (0, 0)
