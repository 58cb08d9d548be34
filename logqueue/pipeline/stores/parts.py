"""Parts of what a job reads, each read by whatever process it is given to.

Owns: parts of tables, and of the rows of the fold. Must not know: where rows come from, engines. A
part can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PartBounds:
    """What all rows of a part have in common.

    Attributes:
        topics: Names that they are of.
        first_ms, last_ms: Times that they are between, both included.
    """

    topics: frozenset[str]
    first_ms: int
    last_ms: int


@dataclass(frozen=True)
class InputPart:
    """A part of a table.

    Attributes:
        size: Bytes to read for it.
        bounds: What its rows have in common, where that is known.
    """

    size: int
    bounds: PartBounds | None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Its rows in the columns of the table; `columns` are those to make, None for all."""
        raise NotImplementedError


@dataclass(frozen=True)
class FoldPart:
    """A part of the rows of the fold, in the columns of `fold_rows.ROWS_SCHEMA`; not sorted, and
    floors as they are.

    Attributes:
        table: "records" or "lease_events".
        part: What it is made of.
        queues: The log ids of queues.
        end: Of the range, ms since the epoch.
    """

    table: str
    part: InputPart
    queues: frozenset[str]
    end: int

    @property
    def size(self) -> int:
        """Bytes to read for it."""
        return self.part.size

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its rows."""
        from logqueue.pipeline.rows import fold_rows

        is_records = self.table == "records"
        make = fold_rows.of_records if is_records else fold_rows.of_events
        for batch in self.part.batches(
            fold_rows.RECORD_COLUMNS if is_records else fold_rows.EVENT_COLUMNS
        ):
            rows = make(batch, self.queues, self.end)
            if rows.num_rows:
                yield rows
