"""Report tables as files: Parquet, CSV, JSON, and one Markdown document.

Owns: how a value is written in each format, files that appear whole. Must not know: how a table
came to be, Spark, HTML (the page is `report_page`).

All formats hold the same rows and the same numbers; only the Markdown document is a choice of them.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reports.markdown_report import markdown
from logqueue.pipeline.storage.tree import FileTree

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("parquet", "csv", "json", "md")
MARKDOWN_FILE = "report.md"
ALWAYS_CSV = ("event_log",)
"""What tools for process mining open; they read CSV."""
ROWS_AT_ONCE = 65_536
METADATA_PREFIX = b"logqueue."

_FORMULA = r"^([=+\-@\t\r'])"
"""How a text begins that a spreadsheet might run, and the mark we put before such a text: so that
taking away one leading mark gives the text back."""


def checked_formats(formats: Iterable[str]) -> list[str]:
    """Formats of tables, each once.

    Raises:
        PipelineError: There is no such format.
    """
    chosen = list(dict.fromkeys(formats))
    for name in chosen:
        if name not in FORMATS:
            raise PipelineError(
                f"there is no format {quoted(name)}; there are {', '.join(FORMATS)}"
            )
    return chosen


def formats_of(table: str, chosen: Sequence[str]) -> list[str]:
    """The formats that a table is written in when these are asked for."""
    wanted = [kind for kind in chosen if kind in _WRITERS]
    if table in ALWAYS_CSV and "csv" not in wanted:
        wanted.append("csv")
    return wanted


def write_rows(
    tree: FileTree,
    name: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    formats: Sequence[str],
    part: str = "{name}.{format}",
) -> list[str]:
    """Write rows in several formats in one pass over them, none of which stays in memory.

    Parquet keeps the metadata of a table, such as the range it is of; JSON repeats it. CSV follows
    RFC 4180; a text that begins with `=`, `+`, `-`, `@`, a tab, a return or an apostrophe gets an
    apostrophe before it, so that no spreadsheet takes it for a formula. Null is an empty cell.
    Times are ISO 8601 in UTC.

    Args:
        name: Of the table.
        schema: Of the rows, with the table's metadata.
        formats: Any of parquet, csv and json.
        part: The names of the files, from `name` and `format`, below the tree.

    Returns:
        The paths of the files, in the order of formats.

    Raises:
        PipelineError: One cannot be written.
    """
    names = [part.format(name=name, format=kind) for kind in formats]
    try:
        with ExitStack() as drafts:
            paths = [drafts.enter_context(tree.scratch(file)) for file in names]
            with ExitStack() as writers:
                takers = [
                    writers.enter_context(_WRITERS[kind](name, schema, path))
                    for kind, path in zip(formats, paths, strict=True)
                ]
                for batch in batches:
                    for take in takers:
                        take(batch)
            for path, file in zip(paths, names, strict=True):
                tree.add(path, file)
    except OSError as failure:
        raise PipelineError(
            f"cannot write {tree.path(name)}: {failure.strerror or failure}; "
            "make room or choose another directory"
        ) from failure
    return [tree.path(file) for file in names]


def write_markdown(tables: Mapping[str, pa.Table], tree: FileTree) -> str:
    """Write the report as one Markdown document; gives its path.

    Raises:
        PipelineError: It cannot be written.
    """
    content = markdown(tables, {name: description_of(table) for name, table in tables.items()})
    tree.replace(MARKDOWN_FILE, content.encode())
    return tree.path(MARKDOWN_FILE)


def description_of(table: pa.Table | pa.Schema) -> dict[str, Any]:
    """What a table or its schema says about itself, such as `range`; {} when it says nothing."""
    metadata = (table.schema if hasattr(table, "schema") else table).metadata or {}
    return {
        key[len(METADATA_PREFIX) :].decode(): json.loads(value)
        for key, value in sorted(metadata.items())
        if key.startswith(METADATA_PREFIX)
    }


Taker = Callable[["pa.RecordBatch"], None]


@contextmanager
def _parquet_file(name: str, schema: pa.Schema, path: str) -> Iterator[Taker]:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        yield writer.write_batch


@contextmanager
def _csv_file(name: str, schema: pa.Schema, path: str) -> Iterator[Taker]:
    with open(path, "w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\r\n")
        writer.writerow(schema.names)

        def take(batch: pa.RecordBatch) -> None:
            writer.writerows(zip(*map(_cells, batch.columns), strict=True))

        yield take


@contextmanager
def _json_file(name: str, schema: pa.Schema, path: str) -> Iterator[Taker]:
    """One document: what the table is, then its rows, one on a line."""
    head = {"table": name, **description_of(schema), "columns": schema.names}
    with open(path, "w", encoding="utf-8", newline="") as opened:
        opened.write(json.dumps(head, ensure_ascii=False)[:-1] + ', "rows": [')
        between = "\n"

        def take(batch: pa.RecordBatch) -> None:
            nonlocal between
            for row in _for_json(batch).to_pylist():
                line = json.dumps(_without_nan(row), ensure_ascii=False, default=_text)
                opened.write(between + line)
                between = ",\n"

        yield take
        opened.write("\n]}\n")


_WRITERS: dict[str, Callable[[str, pa.Schema, str], AbstractContextManager[Taker]]] = {
    "parquet": _parquet_file,
    "csv": _csv_file,
    "json": _json_file,
}


def _cells(column: pa.Array) -> list[Any]:
    """A column as the cells of a CSV file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_timestamp(kind):
        return list(_iso(column).to_pylist())
    if pa.types.is_string(kind):
        return list(pc.replace_substring_regex(column, _FORMULA, r"'\1").to_pylist())
    if pa.types.is_boolean(kind):
        return [None if value is None else str(value).lower() for value in column.to_pylist()]
    if pa.types.is_floating(kind):
        return [None if value is None else _finite(value) for value in column.to_pylist()]
    if pa.types.is_nested(kind):
        return [None if v is None else json.dumps(v, default=_text) for v in column.to_pylist()]
    return list(column.to_pylist())


def _for_json(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [
        _iso(column) if pa.types.is_timestamp(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _finite(value) if isinstance(value, float) else value for name, value in row.items()
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _iso(column: pa.Array) -> pa.Array:
    """Times as ISO 8601 with microseconds, in UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    utc = column.cast(pa.timestamp("us", tz="UTC"))
    return pc.replace_substring(utc.cast(pa.string()), " ", "T")


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
