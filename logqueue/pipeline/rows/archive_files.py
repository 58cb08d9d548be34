"""Rows of an archive as Parquet files named by their ranges.

Owns: how rows become files, whichever process writes them. Must not know: pyspark, where the rows
come from, which files count.

A file is a function of what it holds: the same topic and range gives the same bytes, whichever
task writes it how often. It is written beside its place and put there whole; it counts when the
manifest of its epoch names it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.committing import FileWritten, seq_twice
from logqueue.pipeline.archive.manifests import PLACE_COLUMNS, FileEntry, Table
from logqueue.pipeline.storage.checking import unwritable
from logqueue.pipeline.storage.tree import FileTree

FILE_ROWS_MAX: Final = 1_000_000
FILE_BYTES_MAX: Final = 256 << 20
"""Of Arrow columns in memory, about ten times what the file has."""
ROW_GROUP_ROWS: Final = 131_072
DIGEST_PART_BYTES: Final = 1 << 20


@dataclass(slots=True)
class _Gathered:
    """Rows of one topic that make no file yet."""

    slices: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0


def write_batches(
    root: FileTree, table: Table, batches: Iterable[pa.RecordBatch]
) -> Iterator[FileWritten]:
    """Write the rows of a task, a file for each topic, or more when there are very many."""
    gathered: dict[tuple[str, str], _Gathered] = {}
    for batch in batches:
        for key, part in _by_topic(batch):
            whole = gathered.setdefault(key, _Gathered())
            whole.slices.append(part)
            whole.rows += part.num_rows
            whole.bytes += part.nbytes
            if whole.rows >= FILE_ROWS_MAX or whole.bytes >= FILE_BYTES_MAX:
                yield write_rows(root, table, pa.Table.from_batches(gathered.pop(key).slices))
    for whole in gathered.values():
        yield write_rows(root, table, pa.Table.from_batches(whole.slices))


def _by_topic(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, str], pa.RecordBatch]]:
    """The rows of each topic of a batch, in their order."""
    if not batch.num_rows:
        return
    # log_ids alone tell topics apart; names come along, for the key.
    coded = batch.column(batch.schema.get_field_index("log_id")).dictionary_encode()
    topics = batch.column(batch.schema.get_field_index("topic"))
    for code, log_id in enumerate(coded.dictionary.to_pylist()):
        rows = batch if len(coded.dictionary) == 1 else batch.filter(pc.equal(coded.indices, code))
        topic = topics[pc.index(coded.indices, pa.scalar(code, coded.indices.type)).as_py()].as_py()
        yield (topic, log_id), rows


def write_rows(root: FileTree, table: Table, rows: pa.Table) -> FileWritten:
    """Write one file of rows of one topic, in the order of their places, and put it in its place.

    Raises:
        PipelineError: Of `records`, a seq comes twice.
    """
    place = PLACE_COLUMNS[table]
    rows = rows.combine_chunks().sort_by(place)
    runs = require_once(rows.column(place), table, rows)
    topic, log_id = rows.column("topic")[0].as_py(), rows.column("log_id")[0].as_py()
    times = pc.min_max(pc.cast(rows.column("ts"), pa.timestamp("ms", "UTC"), safe=False))
    min_ts, max_ts = (int(times[name].value) for name in ("min", "max"))
    first, last = runs[0][0], runs[-1][1]
    began = pc.cast(rows.column("ts")[0], pa.timestamp("ms", "UTC"), safe=False).value
    path = manifests.file_path(table, topic, log_id, first, last, int(began))

    def fill(draft: str) -> None:
        pq.write_table(
            rows, draft, compression="zstd", row_group_size=ROW_GROUP_ROWS, coerce_timestamps="us"
        )

    path, size, digest = put_file(root, path, fill)
    entry = FileEntry(
        path=path,
        topic=topic,
        log_id=log_id,
        first=first,
        last=last,
        rows=rows.num_rows,
        bytes=size,
        sha256=digest,
        min_ts=min_ts,
        max_ts=max_ts,
        **event_facts(table, rows),
    )
    return FileWritten(entry, runs)


def require_once(
    places: pa.ChunkedArray, table: Table, rows: pa.Table
) -> tuple[tuple[int, int], ...]:
    """Ranges of sorted places without gaps; of events, which share orders, just their span.

    Raises:
        PipelineError: Of `records`, a seq comes twice.
    """
    whole = places.combine_chunks()
    if table != "records":
        return ((whole[0].as_py(), whole[-1].as_py()),)
    steps = pc.pairwise_diff(whole)
    if pc.any(pc.less_equal(steps, 0)).as_py():
        twice = pc.index(pc.less_equal(steps, 0), True).as_py()
        raise seq_twice(rows.column("topic")[0].as_py(), whole[twice].as_py())
    breaks = pc.indices_nonzero(pc.greater(steps, 1)).to_pylist()
    firsts, lasts = [0, *breaks], [*[index - 1 for index in breaks], len(whole) - 1]
    return tuple(
        (whole[first].as_py(), whole[last].as_py())
        for first, last in zip(firsts, lasts, strict=True)
    )


def event_facts(table: Table, rows: pa.Table) -> dict[str, int]:
    """What a manifest says of events besides their range: it spares readers whole files."""
    if table == "records":
        return {"floors": 0}
    jobs = pc.min_max(rows.column("job_seq"))
    return {
        "floors": pc.sum(pc.equal(rows.column("event"), "trimmed")).as_py() or 0,
        "job_first": jobs["min"].as_py() or 0,
        "job_last": jobs["max"].as_py() or 0,
    }


def put_file(root: FileTree, name: str, fill: Callable[[str], None]) -> tuple[str, int, str]:
    """Let a function write a file, and put it in its place; returns its name, bytes and sha256.

    A file that is there already is never written over, as a manifest may name it: when it differs
    (it was written by another version, say), this one gets a name of its own.

    Raises:
        PipelineError: It cannot be written on this machine.
    """
    with root.scratch(name) as draft:
        try:
            fill(draft)
        except OSError as error:
            raise unwritable(root.path(name), error) from error
        digest = sha256_of(draft)
        size = os.stat(draft).st_size
        if root.info(name) is not None and digest_of(root, name) != digest:
            name = name.removesuffix(".parquet") + f"-{digest[:12]}.parquet"
        # The time of an equal file left over is renewed, so that it is not deleted now.
        root.add(draft, name)
    return name, size, digest


def sha256_of(path: str) -> str:
    """The digest of a file of this machine, in hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(DIGEST_PART_BYTES):
            digest.update(part)
    return digest.hexdigest()


def digest_of(root: FileTree, name: str) -> str | None:
    """The digest of a file, in hex; None when it is not there."""
    if root.directory is not None:
        return sha256_of(root.path(name)) if root.info(name) is not None else None
    try:
        return hashlib.sha256(root.read(name)).hexdigest()
    except FileNotFoundError:
        return None
