"""A running server as a store: what is there by segments and by pages, and the rows of a task.

Owns: requests for segments, their lists and pages, and what the server refuses. Must not know:
engines, how indexes become tasks, how rows are written.

`transport=segments` fetches the log's own segments: every record the log still has is a row, acked
and deleted ones too. `transport=pages` asks for `diff` pages: live records only, without `key`,
`not_before` and `segment`. `auto` takes segments, and pages for what cannot come that way: topics
of the class `ephemeral`, which are in no log, and keys that are limited to name prefixes, which may
not see the log.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from logqueue.client import Client, ConnectionFailed
from logqueue.client.calls import Call, reading
from logqueue.client.log_calls import LogName, segment_page
from logqueue.errors import (
    Forbidden,
    LogqueueError,
    RangeNotSatisfiable,
    SegmentNotFound,
    TopicNotFound,
    Unauthorized,
    quoted,
)
from logqueue.pipeline.archive.moment import LogMoment
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading.available import (
    AvailableEvents,
    AvailableRange,
    LossPolicy,
    Piece,
    Range,
)
from logqueue.pipeline.reading.options import LiveOptions, Reading, Selection
from logqueue.pipeline.reading.planning import SegmentTask, Survey
from logqueue.pipeline.reading.pushdown import Pushdown
from logqueue.pipeline.rows import paging
from logqueue.pipeline.rows.fetching import SegmentGone, read_task
from logqueue.pipeline.rows.snapshots import LogSnapshot
from logqueue.segments.index import SegmentIndex
from logqueue.segments.plan import TopicRead
from logqueue.shapes import TopicEntry

if TYPE_CHECKING:
    import pyarrow as pa

FETCH_BYTES = 16 << 20
"""Bytes of one request for a part of a segment."""

NAMES_ASKED_MAX = 64
"""Topics that are asked for one by one; more of them are looked up in the list of all."""


class ListedIndex(SegmentIndex, omit_defaults=True):
    """An index as the list of segments tells it."""

    damage: str | None = None


class IndexPage(msgspec.Struct):
    """A page of the list of segments; see `logqueue.shapes.SegmentPage`."""

    log_id: str
    order: int
    segments: list[ListedIndex]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class PagesTask:
    """Live records of one topic that one task reads page by page."""

    topic: str
    log: str
    first: int
    end: int


class LiveStore:
    """A server. Picklable; every snapshot and every task has a client of its own."""

    def __init__(self, given: LiveOptions) -> None:
        self.given = given

    def snapshot(self) -> LiveSnapshot:
        """What is there now.

        Raises:
            PipelineError: The server refuses, or cannot be reached.
        """
        with self._client() as client:
            return _take_snapshot(self, client)

    def moment(self, events: Reading | None) -> LogMoment:
        """Both logs at one moment: nothing is in it that the other log may still lack.

        Args:
            events: How job events are read, None when they are not; this store says how records
                are.

        Raises:
            PipelineError: The server refuses, or cannot be reached.
        """
        reading, transport = self.given.reading, self.given.transport
        survey, order = Survey([], [], reading.selection), 0
        logged: Mapping[str, AvailableRange] | None = None
        with self._client() as client:
            segments = LiveSegments(client, self.given)
            try:
                if transport != "pages":
                    # In this order: the leases log then has all that goes with the jobs log.
                    jobs, order = segments.indexes("jobs")
                    leases = segments.indexes("leases")[0] if events is not None else []
                    survey = Survey(jobs, leases, reading.selection)
                    logged = survey.available()
            except Forbidden:
                if transport == "segments" or events is not None:
                    raise
            paged = _paged(client, reading.selection, logged)
        _require_segments(transport, paged)
        pages = LiveSnapshot(self, None, paged)
        return LogMoment(survey, order, reading, events, paged, pages.page_tasks)

    def snapshot_with(self, records: LiveStore) -> tuple[LiveSnapshot, LiveSnapshot]:
        """One moment for both tables: of records as another store reads them, and of job events.

        Raises:
            PipelineError: The server refuses, or cannot be reached.
        """
        with self._client() as client:
            events = _take_snapshot(self, client)
            assert events.log is not None
            log = events.log.read_as(records.given.reading, _Reopening(records))
            paged = _paged(client, records.given.reading.selection, log.available())
            return LiveSnapshot(records, log, paged), events

    def read(
        self, task: SegmentTask | PagesTask, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a task, over one connection; `columns` are those to make, None for all."""
        with self._client() as client:
            segments = LiveSegments(client, self.given)
            if isinstance(task, PagesTask):
                losses = LossPolicy(self.given.reading.fail_on_data_loss)
                for batch in segments.pages(task, losses):
                    names = batch.schema.names if columns is None else columns
                    yield batch.select([name for name in batch.schema.names if name in names])
            else:
                yield from read_task(task, segments, self.given.reading, columns)

    @contextmanager
    def _client(self) -> Iterator[Client]:
        with sentences(self.given), Client(self.given.url, self.given.token or "") as client:
            yield client


@contextmanager
def sentences(given: LiveOptions) -> Generator[None, None, None]:
    """Turns refusals of the server into sentences that name the option to change."""
    try:
        yield
    except Unauthorized as error:
        raise PipelineError(
            f"{given.url} does not take the key: give one in option token or tokenFile"
        ) from error
    except Forbidden as error:
        advice = "" if given.transport != "segments" else "; transport=pages needs less"
        raise PipelineError(f"{given.url}: the key may not do this: {error}{advice}") from error
    except ConnectionFailed as error:
        raise PipelineError(
            f"option url: {given.url} cannot be reached: {error.message}"
        ) from error
    except LogqueueError as error:
        raise PipelineError(f"{given.url} refuses: {error.message}") from error


class LiveSegments:
    """Segments over HTTP, in requests that are safe to make again."""

    def __init__(self, client: Client, given: LiveOptions) -> None:
        self._client = client
        self._given = given

    def fetch(self, log: str, segment: int, length: int) -> bytes:
        """The first `length` bytes of a segment.

        Raises:
            SegmentGone: The server has it no more.
            LogqueueError: It refuses, or cannot be reached.
        """
        name = f"{log}-{segment}"
        parts = []
        try:
            for start in range(0, length, FETCH_BYTES):
                stop = min(start + FETCH_BYTES, length)
                part = self._client.segment(name, start=start, stop=stop)
                if len(part) != stop - start:
                    raise SegmentGone(f"{name} ends before byte {stop}")
                parts.append(part)
        except (SegmentNotFound, RangeNotSatisfiable) as error:
            raise SegmentGone(name) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def survey(self, selection: Selection) -> Survey:
        """A fresh snapshot of the log."""
        jobs, _ = self.indexes("jobs")
        leases, _ = self.indexes("leases") if self._wants_leases else ([], 0)
        return Survey(jobs, leases, selection)

    def indexes(self, log: LogName) -> tuple[list[SegmentIndex], int]:
        """The indexes of a log's segments, and the first order that may be missing in them."""
        found: list[SegmentIndex] = []
        cursor: str | None = None
        while True:
            page = self._client.perform(index_page(log, cursor))
            found.extend(page.segments)
            # Pages before this one hold sealed segments.
            order = page.order
            for index in page.segments:
                _require_whole(index)
            cursor = page.next_cursor
            if not cursor:
                return found, order

    @property
    def _wants_leases(self) -> bool:
        return self._given.reading.events == "leases"

    def snapshot(self, selection: Selection) -> tuple[Survey, int | None]:
        """A fresh snapshot, and the end of what is certain of job events."""
        jobs, order = self.indexes("jobs")
        if not self._wants_leases:
            return Survey(jobs, [], selection), None
        leases, other = self.indexes("leases")
        return Survey(jobs, leases, selection), min(order, other)

    def live(self, topic: TopicRead) -> Iterator[pa.RecordBatch]:
        """The live records of a range by pages."""
        for first, last in [*topic.ranges, *topic.moved]:
            task = PagesTask(topic.name, topic.log_id, first, last + 1)
            yield from self.pages(task, LossPolicy(fail=False))

    def pages(self, task: PagesTask, losses: LossPolicy) -> Iterator[pa.RecordBatch]:
        """The live records of a task by pages.

        Raises:
            DataLossError: Some went by a cap or a TTL, or the topic is another one by now.
        """
        from logqueue.pipeline.rows.segment_batches import RECORDS_SCHEMA

        reading = self._given.reading
        self._require_same(task, losses)
        found = paging.read(
            self._client,
            task.topic,
            task.first,
            task.end,
            log_id=task.log,
            schema=RECORDS_SCHEMA(reading.data),
            with_data=reading.data != "none",
        )
        try:
            for item in found:
                if isinstance(item, paging.PageGap):
                    losses.report(
                        f"seqs {item.first} to {item.last} of topic '{task.topic}' are gone: they "
                        "were removed by a cap or a TTL, or the topic was recreated"
                    )
                    continue
                yield item
        except TopicNotFound:
            losses.report(f"topic {quoted(task.topic)} was deleted while it was read")
            return
        self._require_same(task, losses)

    def _require_same(self, task: PagesTask, losses: LossPolicy) -> None:
        try:
            log = self._client.topic(task.topic, touch=False).log_id
        except TopicNotFound:
            log = "none"
        if log != task.log:
            what = f"seqs {task.first} to {task.end - 1} of topic {quoted(task.topic)}"
            losses.report(f"{what}: the topic was deleted or recreated while it was read")


def _require_whole(index: ListedIndex) -> None:
    if index.damage is not None:
        raise PipelineError(
            f"segment {index.log}-{index.segment} of the server is damaged: {index.damage}; "
            "`logqueue check` tells more"
        )


def index_page(log: LogName, cursor: str | None) -> Call[IndexPage]:
    """A page of the list of all segments, read as indexes."""
    (request,) = segment_page(log, cursor=cursor, page_size=1000).requests
    return reading(request, IndexPage)


# -- one snapshot of the server --------------------------------------------------------------------


class LiveSnapshot:
    """What a server has at one moment: topics by segments, and topics by pages."""

    def __init__(
        self, store: LiveStore, log: LogSnapshot | None, paged: Mapping[str, AvailableRange]
    ) -> None:
        self.where = store.given.url
        self._store = store
        self._log = log
        self._paged = paged

    @property
    def log(self) -> LogSnapshot | None:
        """What the segments say; None where the key may not see them."""
        return self._log

    def available(self) -> Mapping[str, AvailableRange]:
        """The topics that are asked for and that exist, by name."""
        by_segments = self._log.available() if self._log is not None else {}
        return dict(sorted({**by_segments, **self._paged}.items()))

    def older(self) -> Sequence[AvailableRange]:
        """Instances of these topics that were deleted and recreated since, as far as the log still
        tells of them."""
        return self._log.older() if self._log is not None else []

    def available_events(self, *, settled: bool) -> AvailableEvents:
        """The job events of all topics, as far as the list of segments is certain."""
        assert self._log is not None
        return self._log.available_events(settled=True)

    def seq_at(self, topic: AvailableRange, at_ms: int) -> int:
        """The first seq taken in at a time or later; one behind the highest when there is none."""
        with self._store._client() as client, suppress(TopicNotFound):
            found = client.seq_at(topic.name, at_ms)
            is_certain = topic.name in self._paged or found.previous_seq + 1 == found.seq
            if found.log_id == topic.log and is_certain:
                return min(found.seq, topic.next)
        # What was removed in between may have been taken in since then.
        if self._log is None or topic.is_paged:
            return topic.next
        return self._log.seq_at(topic, at_ms)

    def tasks(self, ranges: Sequence[Range], pushdown: Pushdown) -> list[SegmentTask | PagesTask]:
        """The ranges as work for executors."""
        by_pages = [range for range in ranges if self._is_paged(range)]
        tasks: list[SegmentTask | PagesTask] = []
        if self._log is not None:
            others = [range for range in ranges if not self._is_paged(range)]
            tasks.extend(self._log.tasks(others, pushdown))
        for wanted in by_pages:
            tasks.extend(self.page_tasks(wanted))
        return tasks

    def _is_paged(self, wanted: Range) -> bool:
        available = self._paged.get(wanted.topic)
        return available is not None and available.log == wanted.log

    def page_tasks(self, wanted: Range) -> Iterator[PagesTask]:
        """A range in parts of about the bytes that are asked for."""
        reading = self._store.given.reading
        available = self._paged[wanted.topic]
        size = available.bytes(wanted.first, wanted.end)
        count = max(-(-size // reading.partition_bytes), reading.min_partitions)
        # Live records come between the ends of what is held.
        first = max(wanted.first, available.pieces[0].first if available.pieces else wanted.first)
        bounds = [first + (wanted.end - first) * n // count for n in range(count + 1)]
        bounds[0] = wanted.first
        for low, high in pairwise(bounds):
            if low < high:
                yield PagesTask(wanted.topic, wanted.log, low, high)


def _take_snapshot(store: LiveStore, client: Client) -> LiveSnapshot:
    given = store.given
    reading = given.reading
    segments = LiveSegments(client, given)
    log: LogSnapshot | None = None
    if given.transport != "pages":
        try:
            survey, end = segments.snapshot(reading.selection)
            log = LogSnapshot(survey, reading, given.url, _Reopening(store), end)
        except Forbidden:
            if given.transport == "segments" or reading.events == "leases":
                raise
    if reading.events == "leases":
        return LiveSnapshot(store, log, {})
    logged = log.available() if log is not None else None
    paged = _paged(client, reading.selection, logged)
    _require_segments(given.transport, paged)
    return LiveSnapshot(store, log, paged)


def _require_segments(transport: str, paged: Mapping[str, AvailableRange]) -> None:
    if paged and transport == "segments":
        raise PipelineError(
            f"topic '{next(iter(paged))}' is of the class ephemeral, so it is in no segment: read "
            "it with transport=auto or transport=pages"
        )


def _paged(
    client: Client, selection: Selection, logged: Mapping[str, AvailableRange] | None
) -> dict[str, AvailableRange]:
    """The topics that are read by pages: ephemeral ones, or all when the log may not be seen."""
    names: Sequence[str] = selection.names
    if selection.pattern is not None or len(names) > NAMES_ASKED_MAX:
        names = [
            entry.topic
            for entry in client.topics()
            if selection.fits(entry.topic) and not _is_surely_logged(entry, logged)
        ]
    found: dict[str, AvailableRange] = {}
    for name in names:
        try:
            state = client.topic(name, touch=False)
        except TopicNotFound:
            continue
        if logged is not None and state.config.durability != "ephemeral":
            continue
        pieces = []
        if state.count:
            pieces = [Piece(state.earliest_seq, state.head_seq, state.count, state.bytes)]
        first = max(state.earliest_seq, 1)
        found[name] = AvailableRange(
            name, state.log_id, state.head_seq + 1, pieces, [], True, first
        )
    return found


def _is_surely_logged(entry: TopicEntry, logged: Mapping[str, AvailableRange] | None) -> bool:
    """Whether a topic need not be asked for its class, which the list of topics leaves out."""
    if logged is None:
        return False
    available = logged.get(entry.topic)
    return entry.durable or (available is not None and bool(available.pieces))


class _Reopening:
    """Segments for a snapshot that is asked again after its client was closed."""

    def __init__(self, store: LiveStore) -> None:
        self._store = store

    def fetch(self, log: str, segment: int, length: int) -> bytes:
        with self._store._client() as client:
            return LiveSegments(client, self._store.given).fetch(log, segment, length)

    def survey(self, selection: Selection) -> Survey:
        with self._store._client() as client:
            return LiveSegments(client, self._store.given).survey(selection)

    def live(self, topic: TopicRead) -> Iterator[pa.RecordBatch]:
        with self._store._client() as client:
            yield from LiveSegments(client, self._store.given).live(topic)
