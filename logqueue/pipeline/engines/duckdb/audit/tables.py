"""Records and lease events of a place in parts, each of which a worker process reads.

Owns: which parts an audit reads, and what a place says of records that it does not have. Must not
know: what is done with rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from logqueue.pipeline.audit.archive import holes
from logqueue.pipeline.engines.duckdb.input import LocalInput
from logqueue.pipeline.engines.duckdb.workers import WorkerPool
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.stores.gaps import gaps_of
from logqueue.pipeline.stores.parts import InputPart
from logqueue.segments.ranges import Ranges


class TableTask(NamedTuple):
    """A part of a table, and the columns that are wanted of it."""

    part: InputPart
    columns: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes to read for it."""
        return self.part.size

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its rows, in these columns and their order."""
        for batch in self.part.batches(self.columns):
            yield batch.select(self.columns)


class PlaceTables:
    """The tables of one place, as of one moment."""

    def __init__(self, place: InputPlace, pool: WorkerPool) -> None:
        """Nothing is read yet."""
        self.place = place
        self._input = LocalInput(place, pool, whole_runs=True)

    def records(self, columns: Sequence[str]) -> list[TableTask]:
        """Tasks that read records."""
        data = "string" if "data" in columns else "none"
        return [TableTask(part, tuple(columns)) for part in self._input.record_parts(data)]

    def events(self, columns: Sequence[str]) -> list[TableTask]:
        """Tasks that read lease events."""
        return [TableTask(part, tuple(columns)) for part in self._input.event_parts()]

    def gaps(self) -> dict[str, Ranges]:
        """Seqs that are not there for a reason, by log_id: of dropped segments, or of holes."""
        archive = self.place.archive
        return gaps_of(self.place) if archive is None else holes(archive)
