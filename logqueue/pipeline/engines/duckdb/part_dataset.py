"""Parts of a table as a dataset that DuckDB scans: only the columns and parts that a query needs.

Owns: what DuckDB asks of a dataset, and which parts a condition excludes. Must not know: queries,
where rows come from.

DuckDB calls `scanner` for each scan of a query, with the columns and the condition that it hands
over; rows are decoded while it reads, so that no more of them are in memory than it works on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from logqueue.pipeline.stores.parts import InputPart, PartBounds

SHOWN_MS_MAX = 253_402_300_799_999
"""The last ms of the year 9999."""

ReadParts = Callable[[Sequence[InputPart], Sequence[str]], Iterator[pa.RecordBatch]]


class PartDataset(ds.Dataset):  # type: ignore[misc]
    """A table in parts."""

    def __init__(
        self, schema: pa.Schema, parts: Callable[[], Sequence[InputPart]], read: ReadParts
    ) -> None:
        """Nothing is read yet.

        Args:
            schema: All columns of the table.
            parts: Gives what it is made of, when it is scanned.
            read: Gives the rows of some parts in some columns, in the order of the schema.
        """
        self._all = schema
        self._parts_of = parts
        self._read = read

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._all

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,
        **further: Any,
    ) -> PartScanner:
        """A scan of some columns and of the rows that fit a condition."""
        shown = [*self._all.names] if columns is None else [*columns]
        # A condition does not say which columns it is about; one more than it needs costs little.
        used = {*re.findall(r"\w+", str(filter))} if filter is not None else set()
        # Without any column there would be no rows either.
        wanted = [name for name in self._all.names if name in used.union(shown)]
        every = self._parts_of()
        parts = every if filter is None else self._needed(every, filter)
        schema = pa.schema([self._all.field(name) for name in shown])
        return PartScanner(schema, self._rows(parts, wanted or [self._all.names[1]], shown, filter))

    def _rows(
        self,
        parts: Sequence[InputPart],
        wanted: Sequence[str],
        shown: Sequence[str],
        filter: ds.Expression | None,
    ) -> Iterator[pa.RecordBatch]:
        for batch in self._read(parts, wanted):
            kept = batch if filter is None else batch.filter(filter)
            yield kept.select(shown)

    def _needed(self, parts: Sequence[InputPart], filter: ds.Expression) -> list[InputPart]:
        """The parts that may have rows which fit a condition."""
        here = fs.LocalFileSystem()
        format = ds.IpcFileFormat()
        # Names of files, none of which is opened: Arrow compares the condition with what is said of
        # each.
        fragments = [
            format.make_fragment(str(place), here, partition_expression=_says(part.bounds))
            for place, part in enumerate(parts)
        ]
        every = ds.FileSystemDataset(fragments, self._all, format, here)
        places = {int(fragment.path) for fragment in every.get_fragments(filter=filter)}
        return [part for place, part in enumerate(parts) if place in places]


class PartScanner:
    """One scan, as far as DuckDB uses scanners of Arrow. Arrow's own read ahead in threads, which
    continue when a query needs no more rows."""

    def __init__(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> None:
        self.projected_schema = schema
        self._rows = rows

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._rows)


def _says(bounds: PartBounds | None) -> ds.Expression:
    """What is true of all rows of a part. Of several topics, Arrow understands a range of names."""
    if bounds is None or not bounds.topics:
        return ds.scalar(True)
    first, last = min(bounds.topics), max(bounds.topics)
    topic, ts = ds.field("topic"), ds.field("ts")
    named = topic == first if first == last else (topic >= first) & (topic <= last)
    if bounds.last_ms > SHOWN_MS_MAX:
        return named  # times that are not shown are null
    return named & (ts >= _moment(bounds.first_ms)) & (ts <= _moment(bounds.last_ms))


def _moment(at_ms: int) -> pa.Scalar:
    return pa.scalar(at_ms * 1000, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
