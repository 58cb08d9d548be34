"""Neighbouring files of an archive merged into one, by any process.

Owns: how rows of some files become one file. Must not know: which files are to be merged, manifests
of epochs, pyspark. It runs on the driver or in executors, so pyarrow is imported at the top.

Files hold neighbouring ranges, so they are copied row group by row group; only files whose ranges
overlap are read as a whole and sorted. So a merge needs memory for a few row groups, or for one
file, whatever the size of the new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from logqueue.pipeline.archive.manifests import PLACE_COLUMNS, FileEntry, Table
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.rows.archive_files import (
    ROW_GROUP_ROWS,
    digest_of,
    event_facts,
    put_file,
    require_once,
)
from logqueue.pipeline.storage.tree import FileTree

GROUP_BYTES: Final = 128 << 20
"""Of Arrow columns in memory that make a row group, if they are fewer rows than it may have."""


class Merged(msgspec.Struct, frozen=True):
    """A new file, and the paths of those it replaces."""

    made: FileEntry
    gone: list[str]


def merge_group(
    root: FileTree, table: Table, group: Sequence[FileEntry], suffix: str
) -> list[Merged]:
    """Merge neighbouring files of one topic and day; those of another shape stay apart.

    Args:
        group: In the order of their ranges.
        suffix: Follows the range in the name of the new file.

    Raises:
        PipelineError: A file is not what its manifest says, or the new one cannot be written.
    """
    alike: list[list[FileEntry]] = []
    shape: pa.Schema | None = None
    for entry in group:
        _require_whole(root, entry)
        schema = pq.read_schema(root.source(entry.path))
        if shape is not None and schema.equals(shape):
            alike[-1].append(entry)
        else:
            alike.append([entry])
        shape = schema
    return [
        Merged(_merged(root, table, entries, suffix), [entry.path for entry in entries])
        for entries in alike
        if len(entries) > 1
    ]


def _merged(root: FileTree, table: Table, entries: Sequence[FileEntry], suffix: str) -> FileEntry:
    one = entries[0]
    first, last = min(entry.first for entry in entries), max(entry.last for entry in entries)
    name = f"{first:020d}-{last:020d}-{quote(one.log_id, safe='')}{suffix}.parquet"

    facts: list[dict[str, int]] = []

    def fill(draft: str) -> None:
        with pq.ParquetWriter(
            draft, pq.read_schema(root.source(one.path)), compression="zstd",
            coerce_timestamps="us",
        ) as writer:  # fmt: skip
            for rows in _row_groups(root, table, entries):
                writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
                facts.append(event_facts(table, rows))

    path, size, digest = put_file(root, f"{os.path.dirname(one.path)}/{name}", fill)
    return FileEntry(
        path=path,
        topic=one.topic,
        log_id=one.log_id,
        first=first,
        last=last,
        rows=sum(entry.rows for entry in entries),
        bytes=size,
        sha256=digest,
        min_ts=min(entry.min_ts for entry in entries),
        max_ts=max(entry.max_ts for entry in entries),
        **_together(facts),
    )


def _together(facts: Sequence[dict[str, int]]) -> dict[str, int]:
    """What a manifest says of events, of the row groups of one file."""
    how: dict[str, Callable[..., int]] = {"floors": sum, "job_first": min, "job_last": max}
    return {name: how[name](part[name] for part in facts) for name in facts[0]}


def _row_groups(root: FileTree, table: Table, entries: Sequence[FileEntry]) -> Iterator[pa.Table]:
    """All rows in order, in tables of about a row group."""
    waiting: list[pa.Table] = []
    count = size = 0
    for part in _parts(root, table, entries):
        waiting.append(part)
        count, size = count + part.num_rows, size + part.nbytes
        if count >= ROW_GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, count, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _parts(root: FileTree, table: Table, entries: Sequence[FileEntry]) -> Iterator[pa.Table]:
    place = PLACE_COLUMNS[table]
    for overlapping in _overlapping(entries):
        files = [pq.ParquetFile(root.source(entry.path)) for entry in overlapping]
        if len(files) == 1:
            for number in range(files[0].num_row_groups):
                yield files[0].read_row_group(number)
            continue
        rows = pa.concat_tables([file.read() for file in files]).combine_chunks().sort_by(place)
        require_once(rows.column(place), table, rows)
        yield rows


def _overlapping(entries: Sequence[FileEntry]) -> Iterator[list[FileEntry]]:
    """Runs of files whose ranges overlap; most are of one file."""
    run: list[FileEntry] = []
    for entry in sorted(entries, key=lambda entry: (entry.first, entry.last)):
        if run and entry.first > max(known.last for known in run):
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


def _require_whole(root: FileTree, entry: FileEntry) -> None:
    """Refuse a file that is not the one its manifest names.

    Raises:
        PipelineError: It is missing or damaged.
    """
    digest = digest_of(root, entry.path)
    if digest != entry.sha256:
        raise PipelineError(
            f"{root.path(entry.path)} is {'damaged' if digest else 'missing'}: its manifest has "
            "another sha256, and it was not merged; restore the file from a backup"
        )
