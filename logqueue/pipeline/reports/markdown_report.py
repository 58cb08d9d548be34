"""The report as one Markdown document that reads well as plain text, too.

Owns: which tables, rows and columns are in it, in which order. Must not know: files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.reports.page import numbers

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS = 30
LONGEST_CELL = 200


@dataclass(frozen=True)
class ReportPart:
    """One table of the document.

    Attributes:
        heading: Of its section.
        table: Which one.
        rows: `all`; `whole` for those of the whole range; `last` for the last bucket;
            `sums` for sums per topic.
        order: Columns to sort by, highest first; by default the order of the table.
    """

    heading: str
    table: str
    rows: str = "all"
    order: Sequence[str] = ()


PARTS = (
    ReportPart("What became of jobs", "report_outcomes"),
    ReportPart("In and out", "report_throughput", "sums"),
    ReportPart("Backlog at the end", "report_backlog", "last"),
    ReportPart("How long it took", "report_latency", "whole"),
    ReportPart("Limits", "report_sla_summary"),
    ReportPart("Worst breaches", "report_sla", order=("value_ms",)),
    ReportPart("Ways to fail", "report_failures", order=("n",)),
    ReportPart("Retries", "report_retries"),
    ReportPart("Where the work went", "report_waste", order=("run_ms",)),
    ReportPart("Keys and tags that fail", "report_poison", order=("failures",)),
    ReportPart("Workers", "report_workers", "whole", ("p95_run",)),
    ReportPart("Workers needed", "report_capacity", "whole"),
    ReportPart("Leases that look stuck", "report_stuck", order=("held_ms",)),
    ReportPart("Paths", "report_variants", order=("n",)),
    ReportPart("What follows what", "report_dfg", order=("n",)),
)


def markdown(
    tables: Mapping[str, pa.Table],
    descriptions: Mapping[str, Mapping[str, Any]],
    title: str = "Queues",
) -> str:
    """The document.

    Args:
        tables: By name; those that are missing are left out.
        descriptions: By table, its metadata: `range` with `start_ms`, `end_ms`, `bucket_ms`.
        title: Its heading.
    """
    lines = [f"# {title}", ""]
    spans = [about["range"] for about in descriptions.values() if "range" in about]
    if spans:
        first = spans[0]
        lines += [
            f"From {numbers.moment(first['start_ms'])} to {numbers.moment(first['end_ms'])} UTC, "
            f"in buckets of {numbers.span(first['bucket_ms'])}. Columns in `_ms`, percentiles and "
            "`max` are milliseconds.",
            "",
        ]
    lines += _explained(tables)
    for part in PARTS:
        if part.table in tables:
            lines += _section(part, tables[part.table])
    return "\n".join(lines)


def _explained(tables: Mapping[str, pa.Table]) -> list[str]:
    """What accounts for the worst stretches of time, as a list."""
    found = tables.get("report_explanations")
    if found is None or found.num_rows == 0:
        return []
    lines = [
        f"- {cell(row['sentence'], 600)} ({_moment(row['from_at'])} to {_moment(row['until_at'])})"
        for row in found.sort_by("rank").slice(0, MOST_ROWS).to_pylist()
    ]
    return ["## What went wrong, and why", "", *lines, ""]


def _moment(at: datetime) -> str:
    return numbers.moment(at.timestamp() * 1000)


def _section(part: ReportPart, table: pa.Table) -> list[str]:
    chosen = _chosen(part, table)
    lines = [f"## {part.heading}", ""]
    if chosen.num_rows == 0:
        return [*lines, "Nothing.", ""]
    if part.order:
        chosen = chosen.sort_by([(name, "descending") for name in part.order])
    names = chosen.column_names
    lines.append(f"| {' | '.join(names)} |")
    lines.append(f"|{'|'.join(_rule(chosen.schema.field(name).type) for name in names)}|")
    for row in chosen.slice(0, MOST_ROWS).to_pylist():
        lines.append(f"| {' | '.join(cell(row[name]) for name in names)} |")
    if chosen.num_rows > MOST_ROWS:
        lines += ["", f"{MOST_ROWS} of {chosen.num_rows} rows."]
    return [*lines, ""]


def _chosen(part: ReportPart, table: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    if part.rows == "whole":
        return table.filter(pc.is_null(table["bucket"])).drop_columns(["bucket"])
    if table.num_rows == 0:
        return table
    if part.rows == "last":
        return table.filter(pc.equal(table["bucket"], pc.max(table["bucket"])))
    if part.rows == "sums":
        counted = [name for name in table.column_names if name not in ("topic", "bucket")]
        sums = table.group_by("topic").aggregate([(name, "sum") for name in counted])
        names = {f"{name}_sum": name for name in counted}
        sums = sums.rename_columns([names.get(name, name) for name in sums.column_names])
        return sums.select(["topic", *counted]).sort_by("topic")
    return table


def _rule(kind: pa.DataType) -> str:
    import pyarrow as pa

    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return " ---: " if is_number else " --- "


def cell(value: object, longest: int = LONGEST_CELL) -> str:
    """Any value in a cell: on one line, and nothing in it is markup."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value)
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).replace("+00:00", "Z")
    whole = " ".join(str(value).split())
    whole = whole if len(whole) <= longest else whole[:longest] + "…"
    return whole.translate(_ESCAPES)


_ESCAPES = str.maketrans(
    {mark: f"\\{mark}" for mark in "\\`*_{}[]|#!~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
)
