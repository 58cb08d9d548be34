"""What an archive of Parquet files holds, for jobs that read it in parts.

Owns: files of a table as parts. Must not know: any job, any engine, how an archive is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logqueue.pipeline.archive.manifests import FileEntry, Table
from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.storage.tree import FileTree
from logqueue.pipeline.stores.archive_store import ArchiveStore, SeqBuckets
from logqueue.pipeline.stores.parts import InputPart, PartBounds

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_BATCH = 65_536

PART_BYTES = 32 << 20
"""Small files are read together, up to about so many bytes."""


@dataclass(frozen=True)
class FilesPart(InputPart):
    """Rows of some files of an archive.

    Attributes:
        tree: Where they are.
        table: Which table they are of.
        names: Below the root.
        data: string, binary or none: what the column `data` holds.
    """

    tree: FileTree
    table: Table
    names: tuple[str, ...]
    data: str = "none"

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """See `InputPart`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from logqueue.pipeline.rows.moments import restored
        from logqueue.pipeline.rows.segment_batches import EVENTS_SCHEMA, RECORDS_SCHEMA

        schema = EVENTS_SCHEMA
        if self.table == "records":
            schema = RECORDS_SCHEMA(self.data)  # type: ignore[arg-type]
        fields = [field for field in schema if columns is None or field.name in columns]
        for name in self.names:
            with pq.ParquetFile(self.tree.source(name)) as file:
                kept = set(file.schema_arrow.names)
                if self.data == "none":
                    kept.discard("data")
                asked = [field.name for field in fields if field.name in kept]
                for batch in file.iter_batches(ROWS_PER_BATCH, columns=asked):
                    arrays = [
                        batch.column(field.name).cast(field.type)
                        if field.name in kept
                        else pa.nulls(batch.num_rows, field.type)
                        for field in fields
                    ]
                    rows = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
                    yield restored(rows)


class ArchiveContent:
    """What an archive holds of some topics."""

    def __init__(self, place: InputPlace, *, whole_runs: bool) -> None:
        """Nothing is read yet; see `ArchiveStore`."""
        self._store = ArchiveStore(place, whole_runs=whole_runs)

    def span(self, end: int | None) -> Span:
        """The range of history that is there; see `LocalInput.span`."""
        return self._store.span(end)

    def record_parts(
        self, data: str, *, from_ms: int | None = None, jobs: SeqBuckets | None = None
    ) -> list[InputPart]:
        """Records in parts: of files that have a row of some time or later, and of some jobs."""
        return self._parts("records", data, from_ms, jobs)

    def event_parts(
        self, *, from_ms: int | None = None, jobs: SeqBuckets | None = None
    ) -> list[InputPart]:
        """Job events in parts; see `record_parts`."""
        return self._parts("lease_events", "none", from_ms, jobs)

    def _parts(
        self, table: Table, data: str, from_ms: int | None, jobs: SeqBuckets | None
    ) -> list[InputPart]:
        groups: list[list[FileEntry]] = []
        size = PART_BYTES
        for entry in self._store.entries(table, from_ms=from_ms, jobs=jobs):
            if size >= PART_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(entry)
            size += entry.bytes
        return [self._part(table, entries, data) for entries in groups]

    def _part(self, table: Table, entries: Sequence[FileEntry], data: str) -> InputPart:
        bounds = PartBounds(
            frozenset(entry.topic for entry in entries),
            min(entry.min_ts for entry in entries),
            max(entry.max_ts for entry in entries),
        )
        size = sum(entry.bytes for entry in entries)
        names = tuple(entry.path for entry in entries)
        return FilesPart(size, bounds, self._store.tree, table, names, data)
