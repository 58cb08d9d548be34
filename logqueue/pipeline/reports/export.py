"""Report tables as files: Parquet, CSV, JSON, and one Markdown document.

Owns: how a value is written in each format, files that appear whole. Must not know: how a table
came to be, Spark, HTML (the page is `report_page`).

All formats hold the same rows and the same numbers; only the Markdown document is a choice of them.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from logqueue.errors import quoted
from logqueue.pipeline.archive.atomic_file import write_file, write_text
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reports.markdown_report import markdown

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


def write_tables(
    tables: Mapping[str, pa.Table], to: str, formats: Iterable[str] = ("parquet",)
) -> list[str]:
    """Write tables into a directory, a file per table and format.

    Parquet keeps the metadata of a table, such as the range it is of; JSON repeats it. CSV follows
    RFC 4180; a text that begins with `=`, `+`, `-`, `@`, a tab, a return or an apostrophe gets an
    apostrophe before it, so that no spreadsheet takes it for a formula. Null is an empty cell.
    Times are ISO 8601 in UTC. A table `event_log` is written as CSV whatever the formats.

    Args:
        tables: By name, which is the name of the files.
        to: The directory; made if missing. Each file appears whole or not at all.
        formats: Any of `FORMATS`.

    Returns:
        The files written, in the order of tables and formats.

    Raises:
        PipelineError: There is no such format, or a file cannot be written.
    """
    chosen = list(dict.fromkeys(formats))
    for name in chosen:
        if name not in FORMATS:
            raise PipelineError(
                f"there is no format {quoted(name)}; there are {', '.join(FORMATS)}"
            )
    writers: dict[str, Callable[[str, pa.Table, str], None]] = {
        "parquet": _write_parquet,
        "csv": _write_csv,
        "json": _write_json,
    }
    files: list[str] = []
    try:
        for name, table in tables.items():
            wanted = [kind for kind in chosen if kind in writers]
            if name in ALWAYS_CSV and "csv" not in wanted:
                wanted.append("csv")
            for kind in wanted:
                path = os.path.join(to, f"{name}.{kind}")
                writers[kind](name, table, path)
                files.append(path)
        if "md" in chosen:
            path = os.path.join(to, MARKDOWN_FILE)
            write_text(path, markdown(tables, {n: description_of(t) for n, t in tables.items()}))
            files.append(path)
    except OSError as failure:
        place = failure.filename2 or failure.filename or to
        raise PipelineError(
            f"cannot write {place}: {failure.strerror}; make room or choose another directory"
        ) from failure
    return files


def description_of(table: pa.Table) -> dict[str, Any]:
    """What a table says about itself, such as `range`; {} when it says nothing."""
    metadata = table.schema.metadata or {}
    return {
        key[len(METADATA_PREFIX) :].decode(): json.loads(value)
        for key, value in sorted(metadata.items())
        if key.startswith(METADATA_PREFIX)
    }


def _write_parquet(name: str, table: pa.Table, path: str) -> None:
    import pyarrow.parquet as pq

    write_file(path, lambda beside: pq.write_table(table, beside, compression="zstd"))


def _write_csv(name: str, table: pa.Table, path: str) -> None:
    def fill(beside: str) -> None:
        with open(beside, "w", encoding="utf-8", newline="") as opened:
            writer = csv.writer(opened, lineterminator="\r\n")
            writer.writerow(table.column_names)
            for batch in table.to_batches(ROWS_AT_ONCE):
                writer.writerows(zip(*map(_cells, batch.columns), strict=True))

    write_file(path, fill)


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


def _write_json(name: str, table: pa.Table, path: str) -> None:
    """One document: what the table is, then its rows, one on a line."""
    head = {"table": name, **description_of(table), "columns": table.column_names}

    def fill(beside: str) -> None:
        with open(beside, "w", encoding="utf-8", newline="") as opened:
            opened.write(json.dumps(head, ensure_ascii=False)[:-1] + ', "rows": [')
            between = "\n"
            for batch in table.to_batches(ROWS_AT_ONCE):
                for row in _for_json(batch).to_pylist():
                    line = json.dumps(_without_nan(row), ensure_ascii=False, default=_text)
                    opened.write(between + line)
                    between = ",\n"
            opened.write("\n]}\n")

    write_file(path, fill)


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
