"""What a job reads on this machine: records, job events and the rows of the fold, without Spark.

Owns: the same tables and rows from a log, a server or an archive, decoded in worker processes where
there is much. Must not know: any job, DuckDB, how any of these is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.engines.duckdb.workers import WorkerPool
from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.stores.archive_store import SeqBuckets
from logqueue.pipeline.stores.contents import content_of, fold_parts_of
from logqueue.pipeline.stores.parts import FoldPart, InputPart

if TYPE_CHECKING:
    import pyarrow as pa

    from logqueue.pipeline.stores.archive_content import ArchiveContent
    from logqueue.pipeline.stores.log_content import LogContent


class LocalInput:
    """A place to read from, looked at once.

    Attributes:
        place: Which one.
    """

    def __init__(
        self, place: InputPlace, pool: WorkerPool | None = None, *, whole_runs: bool = False
    ) -> None:
        """Nothing is read yet.

        Args:
            pool: Decodes what is much; without one, all is done in this process.
            whole_runs: Of an archive, leave out what an interrupted run has written.
        """
        self.place = place
        self._whole_runs = whole_runs
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

    def only_record_parts(self, data: str = "none") -> Sequence[InputPart]:
        """The same where job events are not asked for: a key that is limited to name prefixes may
        read records, and not the log."""
        if self.place.archive is not None:
            return self.record_parts(data)
        from logqueue.pipeline.stores.log_content import only_records

        return only_records(self.place, data)

    def event_parts(self) -> Sequence[InputPart]:
        """Job events in parts."""
        return self._content.event_parts()

    def records(
        self, columns: Sequence[str] | None = None, data: str = "string"
    ) -> Iterator[pa.RecordBatch]:
        """Records, in the columns of `RECORDS_SCHEMA` or some of them."""
        return self.read(self.record_parts(data), columns)

    def events(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Job events, in the columns of `EVENTS_SCHEMA` or some of them."""
        return self.read(self.event_parts(), columns)

    def read(
        self, parts: Sequence[InputPart], columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some parts of a table."""
        return _shown(self._read(parts, columns))

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

    def fold_parts(
        self, span: Span, *, from_ms: int | None = None, jobs: SeqBuckets | None = None
    ) -> Sequence[FoldPart]:
        """Records and events of a range as rows; see `fold_parts_of`."""
        return fold_parts_of(self._content, span, from_ms=from_ms, jobs=jobs)

    @cached_property
    def _content(self) -> LogContent | ArchiveContent:
        return content_of(self.place, whole_runs=self._whole_runs)


def _shown(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from logqueue.pipeline.rows.moments import shown

    return shown(batches)


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
