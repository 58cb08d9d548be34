"""Tables of reports on their way from tasks to files.

Owns: what a task does with its rows, and how a table is made of what tasks report. Must not
know: what a report says. Tasks run in executors, so pyarrow is imported at the top.

A task with few rows sends them along with its result; one with many writes them into files of its
own. So a small table is one file, sorted; a large one is a directory of files of that name, and the
driver never has its rows:

    to/report_latency.parquet                                   small
    to/report_workers.parquet/part-00003-41-9f0a61c2.parquet    large; sorted within each file
    to/_parts-9f0a61c2/...                                      the same until all tasks are done;
                                                                not in an object store
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.reports.export import formats_of, write_rows
from logqueue.pipeline.reports.production import PAGE_ROWS_MAX, MadeTable
from logqueue.pipeline.storage.checking import SHARED
from logqueue.pipeline.storage.tree import FileTree

if TYPE_CHECKING:
    from pyspark.sql import Row

PACK_BYTES: Final = 256 << 10
"""Up to so many bytes of rows, a task sends them along with its result."""
PART_DDL: Final = "rows BIGINT, pack BINARY, files ARRAY<STRING>"
"""What a task reports: how many rows, and either the rows, as an Arrow stream, or its files."""

Batches = Iterable[pa.RecordBatch]


def write_part(
    tree: FileTree, name: str, schema: pa.Schema, formats: Sequence[str], run: str
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The task that takes rows of a table.

    Args:
        tree: Where the files of the report are.
        name, schema: Of the table.
        formats: Of its files.
        run: Part of the names of files.
    """

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        coming = (batch.cast(schema) for batch in batches if batch.num_rows)
        held, size = [], 0
        for batch in coming:
            held.append(batch)
            size += batch.nbytes
            if size > PACK_BYTES:
                break
        else:
            if held:
                yield _reported(sum(batch.num_rows for batch in held), _packed(held, schema), [])
            return
        rows = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in chain(held, coming):
                rows += batch.num_rows
                yield batch

        context = TaskContext.get()
        number, attempt = (
            (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
        )
        part = _part_name(tree, run, f"{number:05}-{attempt}")
        write_rows(tree, name, schema, counted(), formats, part)
        yield _reported(rows, None, [part.format(name=name, format=kind) for kind in formats])

    return task


def _part_name(tree: FileTree, run: str, part: str) -> str:
    """The name of a task's file; two tries of a task have two names."""
    # In a directory, the name may be that of the file of a smaller table from a run before.
    staged = "" if tree.directory is None else f"_parts-{run}/"
    return f"{staged}{{name}}.{{format}}/part-{part}-{run}.{{format}}"


def _reported(rows: int, pack: bytes | None, files: list[str]) -> pa.RecordBatch:
    columns = [pa.array([rows], pa.int64()), pa.array([pack], pa.binary()), pa.array([files])]
    columns[2] = columns[2].cast(pa.list_(pa.string()))
    return pa.RecordBatch.from_arrays(columns, ["rows", "pack", "files"])


def _packed(batches: list[pa.RecordBatch], schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


# -- on the driver ---------------------------------------------------------------------------------


def gathered(
    tree: FileTree,
    kind: TableKind,
    schema: pa.Schema,
    formats: Sequence[str],
    reported: Sequence[Row],
    run: str,
) -> tuple[MadeTable, list[str]]:
    """A table of what its tasks have reported.

    Returns:
        The table; and of a table that is not in memory, the names of its Parquet files, which may
        not have been asked for.

    Raises:
        PipelineError: The driver does not see the files of the tasks, or cannot write its own.
    """
    rows = sum(row["rows"] for row in reported)
    packs = [pa.ipc.open_stream(row["pack"]).read_all() for row in reported if row["pack"]]
    files = [name for row in reported for name in row["files"]]
    _require_seen(tree, files)
    asked = formats_of(kind.name, formats)
    if rows > PAGE_ROWS_MAX:
        if packs:
            part = _part_name(tree, run, "rest")
            few = _in_order([schema.empty_table(), *packs], kind).to_batches()
            every = dict.fromkeys(["parquet", *asked])
            write_rows(tree, kind.name, schema, few, [*every], part)
            files += [part.format(name=kind.name, format=name) for name in every]
        placed = _in_place(tree, kind, asked, files)
        kept = placed if "parquet" in asked else files
        table = MadeTable(rows, [tree.path(name) for name in placed], None)
        return table, [name for name in kept if name.endswith(".parquet")]
    parts = [
        pq.read_table(tree.source(name)).cast(schema) for name in files if name.endswith(".parquet")
    ]
    table = _in_order([schema.empty_table(), *packs, *parts], kind)
    for name in dict.fromkeys(["parquet", *asked]):
        tree.remove([file.name for file in tree.files(f"{kind.name}.{name}/")])
    written = write_rows(tree, kind.name, schema, table.to_batches(), asked)
    return MadeTable(rows, written, table), []


def _in_order(parts: list[pa.Table], kind: TableKind) -> pa.Table:
    table = pa.concat_tables(parts)
    return table.sort_by([(name, "ascending") for name in kind.order]).combine_chunks()


def _in_place(
    tree: FileTree, kind: TableKind, formats: Sequence[str], files: Sequence[str]
) -> list[str]:
    """Put the files of tasks where readers look for them, in place of those of a run before; gives
    their names there."""
    placed = []
    for name in formats:
        folder = f"{kind.name}.{name}"
        mine = [file for file in files if file.endswith(f".{name}")]
        old = {file.name for file in tree.files(f"{folder}/")}
        tree.remove(sorted((old | _single(tree, folder)) - set(mine)))
        for file in mine:
            to = f"{folder}/{file.rpartition('/')[2]}"
            if file != to:
                tree.add(tree.path(file), to)
            placed.append(to)
    return placed


def _single(tree: FileTree, name: str) -> set[str]:
    """The file of a smaller table, if there is one."""
    if tree.directory is not None and os.path.isdir(tree.path(name)):
        return set()
    return {name}


def clear_up(tree: FileTree, run: str, kind: TableKind, kept: Collection[str]) -> None:
    """Remove what tasks have written for a table and is in no table: tries that failed, and rows
    that fit into one file; but for some files."""
    staged = [file.name for file in tree.files(f"_parts-{run}/") if file.name not in kept]
    tree.remove(name for name in staged if name.split("/")[1].startswith(f"{kind.name}."))


def _require_seen(tree: FileTree, files: Sequence[str]) -> None:
    for name in files:
        if tree.info(name) is None:
            raise PipelineError(
                f"{name}, which a task has written, is not in {tree.url} on the machine of the "
                f"driver: executors write to disks of their own. Give {SHARED}"
            )
