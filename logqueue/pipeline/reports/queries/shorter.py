"""What a page can hold of a table with too many rows: longer buckets, or the first rows.

Owns: how each column is put together over time, which rows come first. Must not know: who runs it,
the page.

Counts are summed; depths, ages, percentiles and rates keep their highest, so that no peak
disappears.
"""

from __future__ import annotations

from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.reports.queries.dialect import Dialect
from logqueue.pipeline.reports.queries.sources import ReportScope

KEYS = ("topic", "tag", "worker", "metric", "outcome", "reason", "from_ms", "to_ms")
SUMS = (
    "n", "waiting", "appended", "claimed", "acked", "released", "expired", "dead", "dropped",
    "held", "claims", "acks", "failures", "busy_ms", "run_ms", "arrivals",
)  # fmt: skip
LAST = "last_"
"""Begins the names of further columns of the backlog: values of the last row that was taken in."""
DEPTHS = ("ready", "delayed", "in_flight", "held", "oldest_age_ms")


FIRST = {
    "report_failures": "n",
    "report_sla": "value_ms",
    "report_stuck": "held_ms",
    "report_variants": "n",
    "report_poison": "failures",
    "report_workers_by_tag": "claims",
}
"""Tables without buckets, and the column whose highest values come first."""


def shorter(kind: TableKind, rows: str, scope: ReportScope, bucket: int, dialect: Dialect) -> str:
    """The SQL of a table in longer buckets, or of one without buckets with its first rows first;
    the columns are those of the table.

    Of the backlog there are two more, `first_bucket` and `last_bucket`, and the depths of the last
    row that was taken in.

    Args:
        rows: The table, as a relation.
        scope: Of the table.
        bucket: Length of the buckets, ms; a multiple of that of the table.
    """
    if "bucket" not in kind.names:
        first = FIRST.get(kind.name)
        order = f"{first} DESC" if first else ", ".join(map(dialect.name, kind.order))
        return f"SELECT * FROM {rows} AS made ORDER BY {order}"
    at = dialect.millis(dialect.name("bucket"))
    longer = dialect.timestamp(f"({at} - {at} % {bucket})")
    is_depth = kind.name == "report_backlog"
    if is_depth:
        rows = _grown(rows, scope, bucket, dialect)
    parts, keys = [], []
    for place, column in enumerate(kind.columns, 1):
        name = dialect.name(column.name)
        if column.name == "bucket":
            parts.append(f"{longer} AS {name}")
            keys.append(str(place))
        elif column.name in KEYS:
            parts.append(name)
            keys.append(str(place))
        else:
            value = "grown_ms" if is_depth and column.name == DEPTHS[-1] else name
            reduce = "sum" if column.name in SUMS and not is_depth else "max"
            parts.append(f"CAST({reduce}({value}) AS {column.type}) AS {name}")
    if is_depth:
        parts += ["min(bucket) AS first_bucket", "max(bucket) AS last_bucket"]
        parts += [f"max_by({name}, bucket) AS {LAST}{name}" for name in DEPTHS]
    return f"SELECT {', '.join(parts)} FROM {rows} AS made GROUP BY {', '.join(keys)}"


def _grown(rows: str, scope: ReportScope, bucket: int, dialect: Dialect) -> str:
    """The backlog with `grown_ms`: how old the oldest job was when the next row came, or the longer
    bucket ended."""
    at = dialect.millis(dialect.name("bucket"))
    behind = f"least({at} + {scope.bucket}, {scope.end})"
    following = f"lead({at}) OVER (PARTITION BY topic ORDER BY bucket)"
    until = f"least(coalesce({following}, {scope.end}), {at} - {at} % {bucket} + {bucket})"
    grown = f"CASE WHEN ready > 0 THEN greatest({until} - {behind}, 0) ELSE 0 END"
    return f"(SELECT *, oldest_age_ms + {grown} AS grown_ms FROM {rows} AS rows_of_it)"
