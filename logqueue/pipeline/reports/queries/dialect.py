"""What DuckDB and Spark write differently in SQL; everything else in a report is the same text.

Owns: a handful of functions, each by name. Must not know: any report, how a query is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

KLL_K = 16_384
"""Size of a sketch on Spark. Percentiles of up to so many values are exact; of more, the rank is
right to 0.04 % (with 99 % confidence), whatever the number of values."""


class Dialect(Protocol):
    """The functions that have another name, or another form, in each engine."""

    def name(self, text: str) -> str:
        """A name that may be a word of SQL."""

    def millis(self, time: str) -> str:
        """A TIMESTAMP as ms since the epoch."""

    def timestamp(self, millis: str) -> str:
        """Ms since the epoch as a TIMESTAMP."""

    def whole(self, value: str, by: int | str) -> str:
        """Integer division of numbers that are not negative."""

    def quantiles(self, value: str, shares: Mapping[str, float]) -> str:
        """Aggregates, as columns: the smallest value that each share of the values does not
        exceed; null without values."""

    def series(self, first: str, last: str, step: int) -> str:
        """A row for each number from `first` to `last`; stands alone in a select list."""

    def steps(self, source: str, columns: str) -> str:
        """A relation with a row per step of a job: `columns` of the job, the step as `step`, the
        next one as `next` and the one behind it as `after`."""

    def element(self, items: str, place: int) -> str:
        """An element of a list, counted from 1, or from -1 backwards; null where there is none."""


class DuckDb:
    """DuckDB's."""

    def name(self, text: str) -> str:
        """See Dialect."""
        return f'"{text}"'

    def millis(self, time: str) -> str:
        """See Dialect."""
        return f"epoch_ms({time})"

    def timestamp(self, millis: str) -> str:
        """See Dialect."""
        return f"epoch_ms({millis})"

    def whole(self, value: str, by: int | str) -> str:
        """See Dialect."""
        return f"(({value}) // ({by}))"

    def quantiles(self, value: str, shares: Mapping[str, float]) -> str:
        """See Dialect."""
        every = f"quantile_disc({value}, [{', '.join(map(str, shares.values()))}])"
        return ", ".join(f"{every}[{place}] AS {name}" for place, name in enumerate(shares, 1))

    def series(self, first: str, last: str, step: int) -> str:
        """See Dialect."""
        return f"unnest(range({first}, {last} + 1, {step}))"

    def steps(self, source: str, columns: str) -> str:
        """See Dialect."""
        # A step is looked up by its place: zipping shifted lists copies them three times.
        return (
            f"(SELECT {columns}, steps[place] AS step, steps[place + 1] AS next, "
            f"steps[place + 2] AS after FROM (SELECT {columns}, steps, "
            f"unnest(range(1, len(steps) + 1)) AS place FROM {source}))"
        )

    def element(self, items: str, place: int) -> str:
        """See Dialect."""
        return f"{items}[{place}]"


class SparkSql:
    """Spark's."""

    def name(self, text: str) -> str:
        """See Dialect."""
        return f"`{text}`"

    def millis(self, time: str) -> str:
        """See Dialect."""
        return f"unix_millis({time})"

    def timestamp(self, millis: str) -> str:
        """See Dialect."""
        return f"timestamp_millis({millis})"

    def whole(self, value: str, by: int | str) -> str:
        """See Dialect."""
        return f"(({value}) DIV ({by}))"

    def quantiles(self, value: str, shares: Mapping[str, float]) -> str:
        """See Dialect."""
        asked = ", ".join(f"{share}D" for share in shares.values())
        sketch = f"kll_sketch_agg_bigint({value}, {KLL_K})"
        every = f"kll_sketch_get_quantile_bigint({sketch}, array({asked}))"
        return ", ".join(
            f"CASE WHEN count({value}) > 0 THEN {every}[{place}] END AS {name}"
            for place, name in enumerate(shares)
        )

    def series(self, first: str, last: str, step: int) -> str:
        """See Dialect."""
        return f"explode(sequence({first}, {last}, {step}L))"

    def steps(self, source: str, columns: str) -> str:
        """See Dialect."""
        return (
            f"(SELECT {columns}, z.steps AS step, z.next AS next, z.after AS after "
            f"FROM (SELECT {columns}, explode(arrays_zip(steps, next, after)) AS z "
            f"FROM (SELECT {columns}, steps, slice(steps, 2, size(steps)) AS next, "
            f"slice(steps, 3, size(steps)) AS after FROM {source})))"
        )

    def element(self, items: str, place: int) -> str:
        """See Dialect."""
        return f"try_element_at({items}, {place})"


DUCKDB = DuckDb()
SPARK = SparkSql()
