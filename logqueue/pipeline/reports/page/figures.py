"""The tables of a report, gathered into what a page can show.

Owns: reading columns of Arrow tables, steps of time, sums over topics. Must not know: HTML, words.

All work over many rows is Arrow's; what comes out is small: a value per topic and step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.reports.page.steps import Steps, Values, steps_over

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[str, ...]
Rows = list[dict[str, Any]]

SUMMED = "sum"
HIGHEST = "max"
LOWEST = "min"
USUAL = "approximate_median"
NULL = "\x00"
"""A null in the key of a series."""


class Figures:
    """Tables by name; one that is missing counts as one without rows.

    Attributes:
        steps: The one time axis.
    """

    def __init__(
        self,
        tables: Mapping[str, pa.Table],
        *,
        start: int | None = None,
        end: int | None = None,
        bucket: int | None = None,
    ) -> None:
        import pyarrow.compute as pc

        self._tables = {name: _in_milliseconds(made) for name, made in tables.items()}
        times: set[int] = set()
        for made in self._tables.values():
            if "bucket" in made.column_names:
                times.update(t for t in pc.unique(made["bucket"]).to_pylist() if t is not None)
        self._times = times, bucket, start, end
        self.steps: Steps = steps_over(times, bucket=bucket, start=start, end=end)

    def in_steps(self, most: int) -> Figures:
        """The same tables on a time axis of up to so many steps."""
        times, bucket, start, end = self._times
        other = copy(self)
        other.steps = steps_over(times, bucket=bucket, start=start, end=end, most=most)
        return other

    @property
    def start(self) -> int:
        """Where the range begins, ms since the epoch."""
        given = self._times[2]
        return self.steps.start if given is None else given

    @property
    def end(self) -> int:
        """Where the range ends."""
        given = self._times[3]
        return self.steps.end if given is None else given

    def between(
        self, name: str, period: tuple[int, int], by: Sequence[str], how: Mapping[str, str]
    ) -> dict[Key, dict[str, Any]]:
        """As `totals`, of the buckets that begin in a stretch of time; `USUAL` is the median."""
        import pyarrow.compute as pc

        made = self._of(name, None)
        if made is None:
            return {}
        at = made["bucket"]
        made = made.filter(pc.and_(pc.greater_equal(at, period[0]), pc.less(at, period[1])))
        return _grouped(made, by, how)

    def has(self, name: str) -> bool:
        """Whether a table is there and has rows."""
        return name in self._tables and self._tables[name].num_rows > 0

    def rows(
        self,
        name: str,
        *,
        order: Sequence[tuple[str, str]] = (),
        most: int | None = None,
        topic: str | None = None,
    ) -> Rows:
        """Rows of a table, ordered by columns (`ascending` or `descending`), the first `most`."""
        made = self._of(name, topic)
        if made is None:
            return []
        if order:
            made = made.sort_by(list(order))
        return list(made.slice(0, most).to_pylist())

    def whole_range(self, name: str) -> Rows:
        """The rows of a table that cover all buckets together."""
        import pyarrow.compute as pc

        made = self._of(name, None)
        return [] if made is None else list(made.filter(pc.is_null(made["bucket"])).to_pylist())

    def count(self, name: str, topic: str | None = None) -> int:
        """How many rows a table has."""
        made = self._of(name, topic)
        return 0 if made is None else int(made.num_rows)

    def totals(
        self, name: str, by: Sequence[str], how: Mapping[str, str]
    ) -> dict[Key, dict[str, Any]]:
        """One value per column and key: `how` names sum, max or min for each column."""
        made = self._of(name, None)
        if made is None:
            return {}
        return _grouped(made, by, how)

    def over_time(
        self,
        name: str,
        by: Sequence[str],
        how: Mapping[str, str],
        keys: Sequence[Key] | None = None,
    ) -> dict[Key, dict[str, Values]]:
        """One value per step for each column and key.

        Summed columns have 0 in a step without a bucket, the others None. With `keys`, values of
        the first columns of `by`, only rows that have these.
        """
        import pyarrow as pa

        made = self._of(name, None)
        if made is not None and keys is not None:
            if not keys:
                return {}
            names = by[: len(keys[0])]
            columns = zip(*keys, strict=True)
            wanted = pa.table(
                {n: pa.array(of, pa.string()) for n, of in zip(names, columns, strict=True)}
            )
            made = made.join(wanted, list(names), join_type="inner")
        return self._gathered(made, by, how)

    def over_time_for_all(
        self, name: str, of_topics: Mapping[str, str], how: Mapping[str, str]
    ) -> dict[str, Values]:
        """One value per step per column: first over the topics, bucket by bucket, then in time.

        Values of one moment are added over topics before the maximum over time is taken:
        topics need not have their highest together.
        """
        made = self._of(name, None)
        if made is None:
            return {}
        buckets = made.group_by("bucket").aggregate(list(of_topics.items()))
        names = {f"{column}_{kind}": column for column, kind in of_topics.items()}
        buckets = buckets.rename_columns([names.get(n, n) for n in buckets.column_names])
        return self._gathered(buckets, [], how).get((), {})

    def distinct_over_time(self, name: str, column: str) -> Values:
        """How many different values a column has in the lowest bucket of each step."""
        made = self._of(name, None)
        if made is None:
            return [None] * self.steps.count
        counted = made.group_by("bucket").aggregate([(column, "count_distinct")])
        counted = counted.rename_columns(["bucket", column])
        found = self._gathered(counted, [], {column: LOWEST}).get((), {})
        return found.get(column, [None] * self.steps.count)

    def _gathered(
        self, made: pa.Table | None, by: Sequence[str], how: Mapping[str, str]
    ) -> dict[Key, dict[str, Values]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        if made is None:
            return {}
        steps = self.steps
        made = made.filter(pc.is_valid(made["bucket"]))
        offset = pc.subtract(made["bucket"], pa.scalar(steps.start, pa.int64()))
        placed = made.append_column("#", pc.divide(offset, pa.scalar(steps.width, pa.int64())))
        grouped = placed.group_by([*by, "#"]).aggregate(list(how.items()))
        found: dict[Key, dict[str, Values]] = {}
        for row in grouped.to_pylist():
            place = row["#"]
            if not 0 <= place < steps.count:
                continue
            key = tuple(NULL if row[column] is None else str(row[column]) for column in by)
            series = found.get(key)
            if series is None:
                series = found[key] = {
                    column: [0.0 if kind == SUMMED else None] * steps.count
                    for column, kind in how.items()
                }
            for column, kind in how.items():
                value = row[f"{column}_{kind}"]
                if value is not None:
                    series[column][place] = float(value)
        return found

    def _of(self, name: str, topic: str | None) -> pa.Table | None:
        import pyarrow.compute as pc

        made = self._tables.get(name)
        if made is None or made.num_rows == 0:
            return None
        if topic is None:
            return made
        made = made.filter(pc.equal(made["topic"], topic))
        return made if made.num_rows else None


def _grouped(
    made: pa.Table, by: Sequence[str], how: Mapping[str, str]
) -> dict[Key, dict[str, Any]]:
    grouped = made.group_by(list(by)).aggregate(list(how.items()))
    return {
        tuple(str(row[column]) for column in by): {
            column: row[f"{column}_{kind}"] for column, kind in how.items()
        }
        for row in grouped.to_pylist()
    }


def _in_milliseconds(made: pa.Table) -> pa.Table:
    """Times as whole milliseconds since the epoch."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, column in enumerate(made.schema):
        if pa.types.is_timestamp(column.type):
            times = made[place].cast(pa.timestamp("us", tz=column.type.tz), safe=False)
            numbers = pc.divide(times.cast(pa.int64()), 1000)
            made = made.set_column(place, column.name, numbers)
    return made
