"""The range of history that a log holds, from the indexes of its segments.

Owns: what of it the indexes tell, and which rows have to be looked at where they do not. Must not
know: engines, how rows are read.

Indexes tell lowest and highest times of the records and job events of each topic. Rows are read
only where that is not enough: where the range ends inside a segment, where a segment has records
that are read from another one, and where the index is of an early version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logqueue.pipeline.lifecycle.span import QueueSpan, Span
from logqueue.pipeline.reading.planning import Survey, number_of
from logqueue.segments.index import SegmentIndex, TopicPart
from logqueue.segments.plan import SegmentRead, TopicRead

if TYPE_CHECKING:
    import pyarrow as pa

ReadRows = Callable[[Sequence[SegmentRead]], Iterable["pa.RecordBatch"]]
"""The rows of some reads, in at least the columns `SPAN_COLUMNS` of their table."""

RECORD_COLUMNS = ("seq", "ts", "log_id")
EVENT_COLUMNS = ("ts", "event", "log_id")


@dataclass
class Extent:
    """What there is of one topic in one table.

    Attributes:
        start, end: Lowest and highest time, ms since the epoch; 0 without rows.
        first_seq: Of records, the lowest seq; 0 without any.
        floors: Of job events, how many are of the kind "trimmed".
    """

    rows: int = 0
    start: int = 0
    end: int = 0
    first_seq: int = 0
    floors: int = 0

    def add(self, other: Extent) -> None:
        """Take in rows beside these."""
        if not other.rows:
            return
        if not self.rows:
            self.start, self.end, self.first_seq = other.start, other.end, other.first_seq
        self.rows += other.rows
        self.floors += other.floors
        self.start = min(self.start, other.start)
        self.end = max(self.end, other.end)
        self.first_seq = min(self.first_seq, other.first_seq)


Extents = dict[str, Extent]
"""By log_id."""


def record_extents(
    survey: Survey, reads: Sequence[SegmentRead], rows_of: ReadRows, end: int | None = None
) -> Extents:
    """What some reads of records hold.

    Args:
        survey: What the reads were planned with.
        rows_of: Called with the parts of reads of which the indexes do not tell enough.
        end: What is later does not count, ms since the epoch; None for all there is.
    """
    parts = _parts(survey.jobs)
    return _extents(
        reads,
        lambda read, topic: _of_records(topic, parts[read.segment][topic.topic], end),
        lambda left: _counted_records(rows_of(left), end),
    )


def add_records(found: Extents, batches: Iterable[pa.RecordBatch], end: int | None) -> None:
    """Take in records that are in no segment."""
    for log_id, extent in _counted_records(batches, end):
        found.setdefault(log_id, Extent()).add(extent)


def add_events(found: Extents, batches: Iterable[pa.RecordBatch], end: int | None) -> None:
    """Take in job events of which no index tells."""
    for log_id, extent in _counted_events(batches, end):
        found.setdefault(log_id, Extent()).add(extent)


def event_extents(
    survey: Survey, reads: Sequence[SegmentRead], rows_of: ReadRows, end: int | None = None
) -> Extents:
    """What some reads of job events hold; see `record_extents`."""
    indexes = {(index.log, index.segment): index for index in [*survey.jobs, *survey.leases]}
    parts = {"jobs": _parts(survey.jobs), "leases": _parts(survey.leases)}
    return _extents(
        reads,
        lambda read, topic: _of_events(
            read,
            indexes[read.log, read.segment],
            parts[read.log][read.segment][topic.topic],
            end,
        ),
        lambda left: _counted_events(rows_of(left), end),
    )


def span_of(
    records: Extents,
    events: Extents,
    topics: Callable[[str], tuple[str, bool]],
    end: int | None = None,
) -> Span:
    """The range of what was found.

    Args:
        topics: By log_id, the name of the topic and whether it is a queue.
        end: Where the range ends if not with the last row.
    """
    both = [extent for extent in (*records.values(), *events.values()) if extent.rows]
    queues, others = [], 0
    for log_id in sorted({*records, *events}):
        record, event = records.get(log_id, Extent()), events.get(log_id, Extent())
        if not record.rows and not event.rows:
            continue
        name, is_queue = topics(log_id)
        if not is_queue and not event.rows:
            others += 1
            continue
        queues.append(
            QueueSpan(log_id, name, record.first_seq, record.rows, event.rows, event.floors)
        )
    last = max((extent.end for extent in both), default=0)
    return Span(
        min((extent.start for extent in both), default=0),
        last if end is None else end,
        tuple(sorted(queues, key=lambda queue: (queue.topic, queue.log_id))),
        others,
    )


def _parts(indexes: Sequence[SegmentIndex]) -> dict[int, dict[int, TopicPart]]:
    return {index.segment: {part.topic: part for part in index.topics} for index in indexes}


def _extents(
    reads: Sequence[SegmentRead],
    indexed: Callable[[SegmentRead, TopicRead], Extent | None],
    counted: Callable[[Sequence[SegmentRead]], Iterator[tuple[str, Extent]]],
) -> Extents:
    """Extents as the indexes tell them, and counted for the rest."""
    from msgspec.structs import replace

    found: Extents = {}
    left = []
    for read in reads:
        unclear = []
        for topic in read.topics:
            extent = indexed(read, topic)
            if extent is None:
                unclear.append(topic)
            else:
                found.setdefault(topic.log_id, Extent()).add(extent)
        if unclear:
            left.append(replace(read, topics=unclear))
    for log_id, extent in counted(left) if left else ():
        found.setdefault(log_id, Extent()).add(extent)
    return found


def _of_records(topic: TopicRead, part: TopicPart, end: int | None) -> Extent | None:
    if topic.moved or topic.ranges != part.ranges:
        return None
    if end is not None and part.last_ts > end:
        return Extent() if part.first_ts > end else None
    return Extent(part.rows, part.first_ts, part.last_ts, topic.ranges[0][0])


def _of_events(
    read: SegmentRead, index: SegmentIndex, part: TopicPart, end: int | None
) -> Extent | None:
    is_whole = read.first_order <= index.first_order and index.last_order <= read.last_order
    if not is_whole or not part.events_first_ts:
        return None
    if end is not None and part.events_last_ts > end:
        return Extent() if part.events_first_ts > end else None
    return Extent(part.events, part.events_first_ts, part.events_last_ts, floors=part.floors)


def _counted_records(
    batches: Iterable[pa.RecordBatch], end: int | None
) -> Iterator[tuple[str, Extent]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        kept = pa.Table.from_batches([_until(batch, end).select(list(RECORD_COLUMNS))])
        times = pc.cast(kept.column("ts"), pa.int64())
        sums = (
            kept.set_column(1, "ts", times)
            .group_by("log_id")
            .aggregate([("ts", "min"), ("ts", "max"), ("seq", "min"), ("seq", "count")])
        )
        for row in sums.to_pylist():
            yield (
                row["log_id"],
                Extent(
                    row["seq_count"], row["ts_min"] // 1000, row["ts_max"] // 1000, row["seq_min"]
                ),
            )


def _counted_events(
    batches: Iterable[pa.RecordBatch], end: int | None
) -> Iterator[tuple[str, Extent]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        kept = pa.Table.from_batches([_until(batch, end).select(list(EVENT_COLUMNS))])
        times = pc.cast(kept.column("ts"), pa.int64())
        floors = pc.cast(pc.equal(kept.column("event"), "trimmed"), pa.int64())
        sums = kept.set_column(0, "ts", times).set_column(1, "event", floors)
        for row in (
            sums.group_by("log_id")
            .aggregate([("ts", "min"), ("ts", "max"), ("ts", "count"), ("event", "sum")])
            .to_pylist()
        ):
            yield row["log_id"], Extent(
                row["ts_count"], row["ts_min"] // 1000, row["ts_max"] // 1000,
                floors=row["event_sum"],
            )  # fmt: skip


def _until(batch: pa.RecordBatch, end: int | None) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    if end is None:
        return batch
    bound = pa.scalar(end * 1000, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return batch.filter(pc.less_equal(batch.column("ts"), bound))


def topics_named(survey: Survey) -> Callable[[str], tuple[str, bool]]:
    """Names and kinds of the topics of a log, by log_id, as `span_of` asks for them."""
    known = survey.known

    def named(log_id: str) -> tuple[str, bool]:
        number = number_of(log_id)
        return known.name(number), known.is_queue(number)

    return named
