"""How reports are made and written, on any engine.

Owns: what a run writes besides its tables: the page and the Markdown document, from tables of a
bounded size; its summary. Must not know: an engine, how a report is computed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.reports.export import (
    checked_formats,
    formats_of,
    write_markdown,
    write_rows,
)
from logqueue.pipeline.reports.idle_buckets import with_idle_buckets
from logqueue.pipeline.reports.page_options import PLAIN_PAGE, PageOptions
from logqueue.pipeline.reports.queries.sources import ReportScope
from logqueue.pipeline.reports.selection import ON_DEMAND, RANGE_KEY, ReportSelection
from logqueue.pipeline.storage.tree import FileTree

if TYPE_CHECKING:
    import pyarrow as pa

LIFECYCLE_FOLDER: Final = "lifecycle"
PAGE_FILE: Final = "report.html"
PAGE_ROWS_MAX: Final = 200_000
"""Rows of a table that may be in memory at once; of a larger one, page and Markdown document show
longer buckets."""


@dataclass(frozen=True)
class MadeTable:
    """A table that was made.

    Attributes:
        rows: How many it has.
        files: That were written.
        table: The table itself, sorted; None when it has more than `PAGE_ROWS_MAX` rows.
    """

    rows: int
    files: list[str]
    table: pa.Table | None


Shortener = Callable[[TableKind, int, int], "pa.Table"]
"""Reads the first rows of a table that was made, in longer buckets; see `queries.shorter`. Takes
the length of the buckets, ms, and how many rows."""


def scope_of(span: Span | None, what: ReportSelection) -> ReportScope:
    """The range and buckets of a run."""
    start, end = (span.start, span.end) if span is not None else (0, 0)
    return ReportScope(start, end, what.bucket, what.rules)


def schema_of(kind: TableKind, scope: ReportScope) -> pa.Schema:
    """The schema of a report's table, with the range that it is of."""
    head = {"v": 1, "start_ms": scope.start, "end_ms": scope.end, "bucket_ms": scope.bucket}
    return kind.arrow().with_metadata({RANGE_KEY: json.dumps(head).encode()})


def write_table(
    tree: FileTree, kind: TableKind, table: pa.Table, scope: ReportScope, formats: Sequence[str]
) -> MadeTable:
    """Write a report's table that is in memory.

    Raises:
        PipelineError: A file cannot be written.
    """
    schema = schema_of(kind, scope)
    table = table.replace_schema_metadata(schema.metadata)
    chosen = formats_of(kind.name, formats)
    files = write_rows(tree, kind.name, schema, table.to_batches(), chosen)
    return MadeTable(table.num_rows, files, table)


def table_formats(formats: Sequence[str]) -> list[str]:
    """The formats asked for without html.

    Raises:
        PipelineError: There is no such format.
    """
    try:
        return checked_formats(name for name in formats if name != "html")
    except PipelineError as error:
        raise PipelineError(f"{error} and html") from None


def finish(
    made: Mapping[str, MadeTable],
    scope: ReportScope,
    span: Span | None,
    tree: FileTree,
    formats: Sequence[str],
    shorten: Shortener,
    look: PageOptions = PLAIN_PAGE,
) -> list[str]:
    """Write the Markdown document and the page, where they are asked for.

    Returns:
        All files of the run.

    Raises:
        PipelineError: One cannot be written.
    """
    files = [file for table in made.values() for file in table.files]
    if not {"md", "html"} & set(formats):
        return files
    topics = len(span.queues) if span is not None else 0
    shown, bucket = page_tables(made, scope, topics, shorten)
    if "md" in formats:
        files.append(write_markdown(shown, tree))
    if "html" in formats:
        from logqueue.pipeline.reports.report_page import page

        start, end = (datetime.fromtimestamp(at / 1000, UTC) for at in (scope.start, scope.end))
        text = page(
            shown,
            title="Queues",
            range=(start, end),
            bucket_ms=bucket,
            zone=look.zone,
            dashboard=look.dashboard,
        )
        tree.replace(PAGE_FILE, text.encode())
        files.append(tree.path(PAGE_FILE))
    return files


def page_tables(
    made: Mapping[str, MadeTable], scope: ReportScope, topics: int, shorten: Shortener
) -> tuple[dict[str, pa.Table], int]:
    """The tables that page and Markdown document are made from, and the length of the longest
    buckets in them, ms. The backlog has a row for each of its buckets."""
    large = [tables.BY_NAME[name] for name, table in made.items() if table.table is None]
    large = [kind for kind in large if kind.name not in ON_DEMAND]
    shown = {name: table.table for name, table in made.items() if table.table is not None}
    length = scope.bucket * _times_over(made, scope, topics)
    shorter: dict[str, pa.Table] = {}
    lengths: dict[str, int] = {}
    # The length that every table fits with, found with one after another; then all in that length.
    for kind in (*large, *large):
        while lengths.get(kind.name) != length:
            made_now = shorten(kind, length, PAGE_ROWS_MAX + 1)
            shorter[kind.name], lengths[kind.name] = made_now, length
            is_over = "bucket" in kind.names and made_now.num_rows > PAGE_ROWS_MAX
            if is_over and length < scope.length:
                length *= 2
    shown |= {name: table.slice(0, PAGE_ROWS_MAX) for name, table in shorter.items()}
    if "report_backlog" in shown:
        shown["report_backlog"] = with_idle_buckets(
            shown["report_backlog"], end=scope.end, bucket=scope.bucket, length=length
        )
    return {name: shown[name] for name in made if name in shown}, length


def _times_over(made: Mapping[str, MadeTable], scope: ReportScope, topics: int) -> int:
    """How many times as long as the report's buckets must be in which all tables have few enough
    rows, a power of two; the backlog has a row for each, whatever happens in it."""
    rows = [table.rows for table in made.values() if table.table is None]
    if "report_backlog" in made:
        rows.append(topics * (scope.length // scope.bucket + 1))
    times = 1
    while max(rows, default=0) > PAGE_ROWS_MAX * times and scope.bucket * times < scope.length:
        times *= 2
    return times


def summary_of(
    span: Span | None, what: ReportSelection, made: Mapping[str, MadeTable], files: list[str]
) -> dict[str, Any]:
    """What a run says of itself, without the place it wrote to."""
    return {
        "job": "report",
        "range": span.description() if span is not None else {},
        "topics": sorted({queue.topic for queue in span.queues}) if span is not None else [],
        "bucket_ms": what.bucket,
        "rows": {name: table.rows for name, table in made.items()},
        "files": files,
    }


def part(share: float | None, start: float) -> float | None:
    """The share of the whole job when this half of it is so far."""
    return None if share is None else start + share / 2
