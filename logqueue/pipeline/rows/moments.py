"""Times that a calendar has: those outside of the years 1 to 9999 become null, and are counted.

Owns: which times are shown, and the note about those that are not. Must not know: where rows come
from, who shows them.

A record may be delayed until any number of milliseconds; `not_before` 253402300800000 is in the
year 10000. Columns of Arrow and Spark hold such times, but Python has no `datetime` for them, and a
query over one fails. So what people and other programs see has null there. What computes with times
as numbers, such as the replay of jobs, reads them as they are (option `times=all`). Files of an
archive are read by any program, and by the replay: there such times are the last microsecond of the
year 9999, which our readers take for what it is.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from logqueue.pipeline.reading.calendar import BEYOND_US, FIRST_MS, LAST_MS

logger = logging.getLogger("logqueue.pipeline")


class Moments:
    """Takes times that no calendar has out of batches.

    Attributes:
        dropped: How many, by column.
    """

    def __init__(self) -> None:
        """Nothing was dropped yet."""
        self.dropped: Counter[str] = Counter()

    def shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch with null for such times, in all its columns of times."""
        for place, field in enumerate(batch.schema):
            if pa.types.is_timestamp(field.type):
                times = batch.column(place)
                column = self._shown(times, field)
                if column is not times:
                    batch = batch.set_column(place, field, column)
        return batch

    def _shown(self, times: pa.Array, field: pa.Field) -> pa.Array:
        numbers = times.view(pa.int64())
        found = pc.min_max(numbers)
        first, last = bounds(field.type.unit)
        low, high = found["min"].as_py(), found["max"].as_py()
        if low is None or (low >= first and high <= last):
            return times
        is_shown = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
        self.dropped[field.name] += pc.sum(pc.invert(is_shown)).as_py()
        return pc.if_else(is_shown, times, pa.scalar(None, field.type))

    def note(self) -> None:
        """Log how many times were dropped, if any."""
        for name, count in sorted(self.dropped.items()):
            logger.warning(
                "%d times in column %s are outside of the years 1 to 9999: null in the rows",
                count,
                name,
            )


def bounds(unit: str) -> tuple[int, int]:
    """The first and the last time that is shown, as numbers of a unit of Arrow: s, ms, us, ns."""
    if unit == "s":
        return FIRST_MS // 1000, LAST_MS // 1000
    factor = {"ms": 1, "us": 1000, "ns": 1_000_000}[unit]
    return max(FIRST_MS * factor, -(1 << 63)), min(LAST_MS * factor + factor - 1, (1 << 63) - 1)


def archived(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches as an archive has them: later times than a calendar has are `BEYOND_US`; and one note
    at their end."""
    late: Counter[str] = Counter()
    for batch in batches:
        yield _replaced(batch, lambda us: pc.greater(us, LAST_MS * 1000 + 999), BEYOND_US, late)
    for name, count in sorted(late.items()):
        logger.warning(
            "%d times in column %s are after the year 9999: its last microsecond in the archive, "
            "null in rows that are read from it",
            count,
            name,
        )


def restored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of an archive with times that no calendar has where it had them."""
    return _replaced(batch, lambda us: pc.equal(us, BEYOND_US), (LAST_MS + 1) * 1000, Counter())


def _replaced(
    batch: pa.RecordBatch,
    which: Callable[[pa.Array], pa.Array],
    number: int,
    counts: Counter[str],
) -> pa.RecordBatch:
    for place, field in enumerate(batch.schema):
        if not pa.types.is_timestamp(field.type) or field.type.unit != "us":
            continue
        numbers = batch.column(place).view(pa.int64())
        found = which(numbers)
        if pc.any(found).as_py():
            counts[field.name] += pc.sum(found).as_py()
            other = pc.if_else(found, pa.scalar(number, pa.int64()), numbers).view(field.type)
            batch = batch.set_column(place, field, other)
    return batch


def shown(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches with null for times that no calendar has, and one note at their end."""
    moments = Moments()
    for batch in batches:
        yield moments.shown(batch)
    moments.note()
