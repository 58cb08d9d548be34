"""Reading tasks: from segments to rows, and what to do when a segment has gone meanwhile.

Owns: one read after the other, the second try with a fresh look at the log, and what is then lost.
Must not know: pyspark, whether segments are files or come over HTTP.

A segment can disappear between planning and reading: the log drops what it has rewritten. Then the
log is looked at once more. If the segment is there by now (in an archive) it is read as planned;
else its content is planned again, and its live records are found where they were rewritten. What
is found nowhere is a loss, and so is a segment that disappears a second time; of that one the
live records may still come another way (`Segments.live`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading.available import LossPolicy, Range
from logqueue.pipeline.reading.options import Reading, Selection
from logqueue.pipeline.reading.planning import SegmentTask, Survey, number_of
from logqueue.segments import ranges as rg
from logqueue.segments.index import SegmentDamaged
from logqueue.segments.plan import SegmentRead, TopicRead

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SegmentGone(Exception):
    """A segment does not exist, or was dropped."""


class Segments(Protocol):
    """Where segments come from."""

    def fetch(self, log: str, segment: int, length: int) -> bytes:
        """The first `length` bytes of a segment.

        Raises:
            SegmentGone: It is not there.
            PipelineError: It cannot be had.
        """

    def survey(self, selection: Selection) -> Survey:
        """A fresh look at the log."""

    def live(self, topic: TopicRead) -> Iterator[pa.RecordBatch]:
        """The live records of what a read was to take, got in another way; perhaps none."""


def read_task(
    task: SegmentTask,
    segments: Segments,
    reading: Reading,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task; `columns` are those to make, None for all.

    Raises:
        DataLossError: Something is gone, and losses are not accepted.
        PipelineError: A segment is damaged, or cannot be had.
    """
    losses = LossPolicy(reading.fail_on_data_loss)
    for read in task.reads:
        try:
            data, sources = _fetch(read, segments)
        except SegmentGone:
            yield from _once_more(read, segments, reading, losses, columns)
            continue
        yield from rows(read, data, sources, reading, columns)


def _fetch(read: SegmentRead, segments: Segments) -> tuple[bytes, dict[int, bytes]]:
    """The bytes of a read and of its source segments: all before the first row is given."""
    data = segments.fetch(read.log, read.segment, read.bytes)
    return data, {
        source.segment: segments.fetch("jobs", source.segment, source.bytes)
        for source in read.source_segments
    }


def rows(
    read: SegmentRead,
    data: bytes,
    sources: dict[int, bytes],
    reading: Reading,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a read; `columns` are those to make, None for all.

    Raises:
        PipelineError: The bytes are damaged, or no text where text is asked for.
    """
    from logqueue.pipeline.rows.segment_batches import NotText, event_batches, record_batches

    try:
        if reading.events == "leases":
            is_bounded = (reading.start.at_ms, reading.end.at_ms) != (None, None)
            for batch in event_batches(data, read, columns=None if is_bounded else columns):
                within = _within(batch, reading) if is_bounded else batch
                if within.num_rows:
                    yield within if columns is None else within.select(_in_order(within, columns))
        else:
            yield from record_batches(
                data, read, sources.__getitem__, data_as=reading.data, columns=columns
            )
    except SegmentDamaged as error:
        raise PipelineError(
            f"{error}. `logqueue check` tells more; a copy in an archive or a backup "
            "can be read in its place"
        ) from error
    except NotText as error:
        raise PipelineError(str(error)) from error


def _in_order(batch: pa.RecordBatch, columns: Sequence[str]) -> list[str]:
    """Some columns of a batch, in its order."""
    return [name for name in batch.schema.names if name in columns]


def first_from(read: SegmentRead, segments: Segments, reading: Reading, at_ms: int) -> int | None:
    """The lowest seq of a read that was taken in at a time or later; None when there is none.

    Raises:
        SegmentGone: The segment is not there.
        PipelineError: It is damaged, or cannot be had.
    """
    import pyarrow.compute as pc

    found: int | None = None
    data, sources = _fetch(read, segments)
    for batch in rows(read, data, sources, reading, ("seq", "ts")):
        later = batch.filter(pc.greater_equal(batch.column("ts"), _moment(at_ms)))
        hit = pc.min(later.column("seq"))
        if hit.is_valid:
            found = hit.as_py() if found is None else min(found, hit.as_py())
    return found


def _moment(at_ms: int) -> pa.Scalar:
    import pyarrow as pa

    return pa.scalar(_EPOCH + timedelta(milliseconds=at_ms), pa.timestamp("us", tz="UTC"))


def _within(batch: pa.RecordBatch, reading: Reading) -> pa.RecordBatch:
    """The rows between the times that are asked for."""
    import pyarrow.compute as pc

    for at_ms, keeps in ((reading.start.at_ms, pc.greater_equal), (reading.end.at_ms, pc.less)):
        if at_ms is not None:
            batch = batch.filter(keeps(batch.column("ts"), _moment(at_ms)))
    return batch


def _once_more(
    read: SegmentRead,
    segments: Segments,
    reading: Reading,
    losses: LossPolicy,
    columns: Sequence[str] | None,
) -> Iterator[pa.RecordBatch]:
    """A read whose segment was not there."""
    names = tuple(sorted({topic.name for topic in read.topics}))
    survey = segments.survey(Selection(names=names))
    if reading.events == "leases":
        yield from _events_once_more(read, segments, reading, losses, columns)
        return
    wanted: dict[int, rg.Ranges] = {}
    for topic in read.topics:
        available = survey.available_instance(number_of(topic.log_id))
        for first, last in topic.ranges:
            losses.of_range(Range(topic.name, topic.log_id, first, last + 1), available.gaps)
        wanted[topic.topic] = rg.union(topic.ranges, topic.moved)
    for replanned in survey.record_reads(wanted):
        try:
            data, sources = _fetch(replanned, segments)
        except SegmentGone:
            for topic in replanned.topics:
                losses.report(
                    f"{_shown(topic)} of topic '{topic.name}' are gone: segment {replanned.name} "
                    "was dropped while it was read"
                )
                for batch in segments.live(topic):
                    yield batch if columns is None else batch.select(_in_order(batch, columns))
            continue
        yield from rows(replanned, data, sources, reading, columns)


def _events_once_more(
    read: SegmentRead,
    segments: Segments,
    reading: Reading,
    losses: LossPolicy,
    columns: Sequence[str] | None,
) -> Iterator[pa.RecordBatch]:
    try:
        data = segments.fetch(read.log, read.segment, read.bytes)
    except SegmentGone:
        losses.report(f"the job events of segment {read.name} are gone")
        return
    yield from rows(read, data, {}, reading, columns)


def _shown(topic: TopicRead) -> str:
    seqs = rg.union(topic.ranges, topic.moved)
    return f"seqs {seqs[0][0]} to {seqs[-1][1]}"
