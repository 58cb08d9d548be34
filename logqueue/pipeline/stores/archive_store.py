"""An archive of Parquet files as readers see it: which files to read, and the range they hold.

Owns: files by topic and time, and the span, from manifests. Must not know: engines, any job, how an
archive is written.

An archive ends where the last run did that was not interrupted, for all topics that are asked for:
of what came after it, one table may lack what the other one has.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from logqueue.pipeline.archive.contents import Contents, contents
from logqueue.pipeline.archive.manifests import TABLES, FileEntry, Table
from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.stores import spans
from logqueue.pipeline.stores.spans import Extent, Extents

if TYPE_CHECKING:
    import pyarrow as pa


BUCKET_SEQS: Final = 1 << 16
"""Jobs are selected by ranges of so many neighbouring seqs: few numbers for many jobs."""

SeqBuckets = Mapping[str, Sequence[int]]
"""By log_id, which multiples of BUCKET_SEQS have a job that is asked for, ascending."""


class ArchiveStore:
    """The topics that are asked for of an archive."""

    def __init__(self, place: InputPlace, *, whole_runs: bool = False) -> None:
        """Nothing is read yet.

        Args:
            whole_runs: Leave out the files of a run that was interrupted: they may tell of jobs
                whose records had not been archived yet.

        Raises:
            PipelineError: There is no such kind of place.
        """
        assert place.archive is not None
        self._whole_runs = whole_runs
        self.tree = open_tree(place.archive)
        self._selects = _selection(place)

    @cached_property
    def _contents(self) -> Mapping[Table, Contents]:
        # Records last: whatever is in them has its events.
        return {table: contents(self.tree, table) for table in ("lease_events", "records")}

    @cached_property
    def _entries(self) -> Mapping[Table, list[FileEntry]]:
        ends = self._marks if self._whole_runs else {}
        return {
            table: [
                entry
                for entry in held.entries
                if self._selects(entry.topic) and not _is_beyond(entry, ends, held)
            ]
            for table, held in self._contents.items()
        }

    @cached_property
    def _marks(self) -> dict[str, int]:
        """By log_id, up to which time the last whole run has read a topic."""
        found: dict[str, int] = {}
        for held in self._contents.values():
            for log_id, (_, ts) in held.progress.watermarks.items():
                found[log_id] = max(ts, found.get(log_id, 0))
        return found

    def entries(
        self, table: Table, *, from_ms: int | None = None, jobs: SeqBuckets | None = None
    ) -> list[FileEntry]:
        """The files of a table, without those of which the manifests say that no row is asked for.

        Args:
            from_ms: Rows of this time or later, ms since the epoch.
            jobs: Rows of these jobs.

        Raises:
            PipelineError: There is no archive, or a manifest is damaged.
        """
        return [
            entry
            for entry in self._entries[table]
            if (from_ms is None or entry.max_ts >= from_ms)
            and (jobs is None or _holds_any(entry, table, jobs))
        ]

    def topic(self, log_id: str) -> tuple[str, bool]:
        """The name of a topic, and whether it is known to be a queue."""
        found = [held.progress.topics.get(log_id) for held in self._contents.values()]
        known = [topic for topic in found if topic is not None]
        return known[0].topic, any(topic.is_queue for topic in known)

    @cached_property
    def watermark(self) -> int | None:
        """Up to which time both tables are complete, ms since the epoch; None where no run of this
        version has ended."""
        progress = [held.progress for held in self._contents.values()]
        legacy = max(each.legacy_ts for each in progress)
        ends: list[int] = []
        is_known = False
        for log_id in {log_id for each in progress for log_id in each.topics}:
            topics = [each.topics[log_id] for each in progress if log_id in each.topics]
            if any(topic.is_gone or topic.is_paged for topic in topics):
                continue
            if not self._selects(topics[0].topic):
                continue
            if log_id in self._marks:
                is_known = True
                ends.append(self._marks[log_id])
            elif all(topic.is_queue is None for topic in topics):
                ends.append(legacy)
        return min(ends) if is_known else None

    def span(self, end: int | None = None) -> Span:
        """The range of history that is there, from the manifests; rows are looked at only in files
        in which it ends.

        Args:
            end: Where it ends, ms since the epoch; None for the last row up to the watermark.

        Raises:
            PipelineError: There is no archive, or a file of it cannot be read.
        """
        cut = self.watermark if end is None else end
        records, events = (self._extents(table, cut) for table in TABLES)
        return spans.span_of(records, events, self.topic, end)

    def _extents(self, table: Table, end: int | None) -> Extents:
        found: Extents = {}
        unclear: list[FileEntry] = []
        for entry in self._entries[table]:
            extent = _extent(entry, table, end)
            if extent is None:
                unclear.append(entry)
            else:
                found.setdefault(entry.log_id, Extent()).add(extent)
        if table == "records":
            spans.add_records(found, self._rows(unclear, spans.RECORD_COLUMNS), end)
        else:
            spans.add_events(found, self._rows(unclear, spans.EVENT_COLUMNS), end)
        return found

    def _rows(
        self, entries: Sequence[FileEntry], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        for entry in entries:
            with pq.ParquetFile(self.tree.source(entry.path)) as file:
                yield from file.iter_batches(columns=[*columns])


def _is_beyond(entry: FileEntry, marks: Mapping[str, int], held: Contents) -> bool:
    """Whether a file is of a run that did not end."""
    topic = held.progress.topics[entry.log_id]
    if not marks or topic.is_paged or topic.is_queue is None:
        return False
    return entry.min_ts > marks.get(entry.log_id, 0)


def _holds_any(entry: FileEntry, table: Table, jobs: SeqBuckets) -> bool:
    """Whether a file may hold rows of some jobs."""
    buckets = jobs.get(entry.log_id, ())
    if not buckets:
        return False
    first, last = entry.first, entry.last
    if table == "lease_events":
        # A floor ends all jobs up to its own seq.
        first, last = entry.job_first if entry.floors == 0 else 0, entry.job_last
        if last < 0:
            return True  # of an early version
    at = bisect_left(buckets, first // BUCKET_SEQS)
    return at < len(buckets) and buckets[at] <= last // BUCKET_SEQS


def _extent(entry: FileEntry, table: Table, end: int | None) -> Extent | None:
    """What a file holds by its manifest; None where its rows have to be looked at."""
    if end is not None and entry.max_ts > end:
        return Extent() if entry.min_ts > end else None
    if table == "records":
        return Extent(entry.rows, entry.min_ts, entry.max_ts, entry.first)
    if entry.floors < 0:
        return None  # of an early version
    return Extent(entry.rows, entry.min_ts, entry.max_ts, floors=entry.floors)


def _selection(place: InputPlace) -> Callable[[str], bool]:
    """Whether a topic is asked for."""
    if place.topics:
        return frozenset(place.topics).__contains__
    if place.pattern is None:
        return lambda topic: True
    pattern = re.compile(place.pattern)
    return lambda topic: pattern.fullmatch(topic) is not None
