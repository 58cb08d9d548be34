"""What an archive of Parquet files holds, for jobs on this machine.

Owns: files of a table as parts, and the span from what manifests say of files. Must not know: any
job, DuckDB, how an archive is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.manifests import FileEntry, Table
from logqueue.pipeline.engines.duckdb.parts import InputPart
from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.storage.tree import FileTree
from logqueue.pipeline.stores import spans
from logqueue.pipeline.stores.spans import Extent, Extents

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
                    yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


class ArchiveContent:
    """What an archive holds of some topics."""

    def __init__(self, place: InputPlace) -> None:
        """Nothing is read yet."""
        assert place.archive is not None
        self._tree = open_tree(place.archive)
        self._selects = _selection(place)

    def span(self, end: int | None) -> Span:
        """The range of history that is there; see `LocalInput.span`."""
        records = self._extents("records", end)
        events = self._extents("lease_events", end)
        names = {
            entry.log_id: entry.topic
            for table in manifests.TABLES
            for entry in self._entries(table)
        }
        return spans.span_of(records, events, lambda log_id: (names[log_id], False), end)

    def record_parts(self, data: str) -> list[InputPart]:
        """See `LocalInput`."""
        return self._parts("records", data)

    def event_parts(self) -> list[InputPart]:
        """See `LocalInput`."""
        return self._parts("lease_events", "none")

    @cached_property
    def _entries(self) -> Callable[[Table], list[FileEntry]]:
        @cache
        def entries(table: Table) -> list[FileEntry]:
            every = manifests.live_entries(self._tree, table)
            return [entry for entry in every if self._selects(entry.topic)]

        return entries

    def _parts(self, table: Table, data: str) -> list[InputPart]:
        parts: list[InputPart] = []
        names: list[str] = []
        size = 0
        for entry in self._entries(table):
            names.append(entry.path)
            size += entry.bytes
            if size >= PART_BYTES:
                parts.append(FilesPart(size, self._tree, table, tuple(names), data))
                names, size = [], 0
        if names:
            parts.append(FilesPart(size, self._tree, table, tuple(names), data))
        return parts

    def _extents(self, table: Table, end: int | None) -> Extents:
        found: Extents = {}
        unclear: list[str] = []
        for entry in self._entries(table):
            extent = _extent(entry, table, end)
            if extent is None:
                unclear.append(entry.path)
            else:
                found.setdefault(entry.log_id, Extent()).add(extent)
        part = FilesPart(0, self._tree, table, tuple(unclear))
        if table == "records":
            spans.add_records(found, part.batches(spans.RECORD_COLUMNS), end)
        else:
            spans.add_events(found, part.batches(spans.EVENT_COLUMNS), end)
        return found


def _extent(entry: FileEntry, table: Table, end: int | None) -> Extent | None:
    """What a file holds by its manifest; None where its rows have to be looked at."""
    if end is not None and entry.max_ts > end:
        return Extent() if entry.min_ts > end else None
    if table == "records":
        return Extent(entry.rows, entry.min_ts, entry.max_ts, entry.first)
    return None


def _selection(place: InputPlace) -> Callable[[str], bool]:
    """Whether a topic is asked for."""
    if place.topics:
        return frozenset(place.topics).__contains__
    if place.pattern is None:
        return lambda topic: True
    pattern = re.compile(place.pattern)
    return lambda topic: pattern.fullmatch(topic) is not None
