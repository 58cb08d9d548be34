"""What DuckDB and Spark write differently in SQL; everything else in a report is the same text.

Owns: a handful of functions, each by name. Must not know: any report, how a query is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

KLL_K = 4096
"""Size of a sketch on Spark. Percentiles of up to so many values are exact; of more, the rank is
right to 0.13 % (with 99 % confidence), whatever the number of values."""


def broadcast(*names: str) -> str:
    """A hint, behind SELECT: relations that are small enough to be sent to each task, so that the
    large one beside them is not shuffled. DuckDB sees a comment."""
    return f"/*+ BROADCAST({', '.join(names)}) */"


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

    def steps(self, source: str, columns: str, fields: Sequence[str]) -> str:
        """A relation with a row per step of a job: `columns` of the job and `fields` of the step,
        such as `step_at`, of the next one (`next_at`) and of the one behind it (`after_at`)."""

    def element(self, items: str, place: int) -> str:
        """An element of a list, counted from 1, or from -1 backwards; null where there is none."""

    def streamed(self, name: str, text: str) -> str:
        """A relation of a WITH clause whose rows are made for each of its readers, and never
        kept."""


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

    def steps(self, source: str, columns: str, fields: Sequence[str]) -> str:
        """See Dialect."""
        # A step is looked up by its place: zipping shifted lists copies them.
        taken = ", ".join(
            f"steps[place + {ahead}].{field} AS {name}" for name, ahead, field in _parts(fields)
        )
        return (
            f"(SELECT {columns}, {taken} FROM (SELECT {columns}, steps, "
            f"unnest(range(1, len(steps) + 1)) AS place FROM {source}))"
        )

    def element(self, items: str, place: int) -> str:
        """See Dialect."""
        return f"{items}[{place}]"

    def streamed(self, name: str, text: str) -> str:
        """See Dialect."""
        return f"{name} AS NOT MATERIALIZED ({text})"


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

    def steps(self, source: str, columns: str, fields: Sequence[str]) -> str:
        """See Dialect."""
        # Fields one by one: the others are not even read from the files.
        lists = ", ".join(
            f"slice(steps.{field}, {ahead + 1}, size(steps)) AS {name}"
            if ahead
            else f"steps.{field} AS {name}"
            for name, ahead, field in _parts(fields)
        )
        taken = ", ".join(f"z.{name} AS {name}" for name in fields)
        return (
            f"(SELECT {columns}, {taken} FROM (SELECT {columns}, "
            f"explode(arrays_zip({', '.join(fields)})) AS z "
            f"FROM (SELECT {columns}, {lists} FROM {source})))"
        )

    def element(self, items: str, place: int) -> str:
        """See Dialect."""
        return f"try_element_at({items}, {place})"

    def streamed(self, name: str, text: str) -> str:
        """See Dialect."""
        return f"{name} AS ({text})"


def _parts(fields: Sequence[str]) -> list[tuple[str, int, str]]:
    """Each field with how many steps ahead it is, and its name in a step."""
    return [
        (name, ("step", "next", "after").index(name.partition("_")[0]), name.partition("_")[2])
        for name in fields
    ]


DUCKDB = DuckDb()
SPARK = SparkSql()
