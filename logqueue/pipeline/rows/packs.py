"""Rows of records and events in packs by part of the jobs, to travel through a shuffle unread.

Owns: which part a job is in, and packs of rows. Must not know: what carries packs, what rows mean.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from logqueue.pipeline.lifecycle.job_history import TRIMMED
from logqueue.pipeline.rows.fold_rows import ROWS_SCHEMA
from logqueue.pipeline.rows.job_columns import Longs
from logqueue.pipeline.rows.shuffle import Group, one_batch

CHUNK_ROWS = 500_000
CHUNK_BYTES = 128 << 20
"""As many rows are put into packs at once."""

NEIGHBOURS = 64
"""So many jobs in a row are in one part."""

PACKS_SCHEMA = pa.schema([("part", pa.int32()), ("pack", pa.binary())])


def packed_by_part(batches: Iterable[pa.RecordBatch], parts: int) -> Iterator[pa.RecordBatch]:
    """Packs of rows: all of a job are in one part, and floors in every one.

    Args:
        batches: Rows in the columns of `fold_rows.ROWS_SCHEMA`, in any order.
        parts: How many.

    Returns:
        Batches of `PACKS_SCHEMA`.
    """
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield _packs(one_batch(pending), parts)
            pending, rows, size = [], 0, 0
    if pending:
        yield _packs(one_batch(pending), parts)


def unpacked(packs: Iterable[pa.RecordBatch]) -> tuple[Group, list[pa.RecordBatch]]:
    """The rows of one part, and the floors."""
    group, floors = Group(), []
    for batch in packs:
        for pack in batch.column("pack"):
            with pa.ipc.open_stream(pack.as_buffer()) as reader:
                for rows in reader:
                    if rows.column("kind")[0].as_py() == TRIMMED:
                        floors.append(rows)
                    else:
                        group.rows += rows.num_rows
                        group.size += rows.nbytes
                        group.parts.append(rows)
    return group, floors


def _packs(rows: pa.RecordBatch, parts: int) -> pa.RecordBatch:
    is_floor = rows.column("kind").to_numpy() == TRIMMED
    found: list[tuple[int, bytes]] = []
    if is_floor.any():
        floors = _pack(rows.filter(pa.array(is_floor)))
        found += [(part, floors) for part in range(parts)]
        rows = rows.filter(pa.array(~is_floor))
    part_of = _parts_of(rows, parts)
    order = np.argsort(part_of, kind="stable")
    ends = np.searchsorted(part_of[order], np.arange(parts + 1))
    rows = rows.take(pa.array(order))
    for part in np.flatnonzero(np.diff(ends)).tolist():
        first, end = ends[part : part + 2].tolist()
        found.append((part, _pack(rows.slice(first, end - first))))
    numbers, packs = ([*its] for its in zip(*found, strict=True))
    columns = [pa.array(numbers, pa.int32()), pa.array(packs, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=PACKS_SCHEMA)


def _parts_of(rows: pa.RecordBatch, parts: int) -> Longs:
    """The part of each row: neighbours are spread evenly, whatever seqs there are."""
    logs = rows.column("log_id")
    salts = [zlib.crc32(log_id.encode()) for log_id in logs.dictionary.to_pylist()]
    salt = np.array(salts, np.uint64)[logs.indices.to_numpy()]
    mixed = (rows.column("seq").to_numpy().astype(np.uint64) // np.uint64(NEIGHBOURS)) ^ salt
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    found: Longs = ((mixed >> np.uint64(32)) % np.uint64(parts)).astype(np.int64)
    return found


def _pack(rows: pa.RecordBatch) -> bytes:
    columns = [
        # A slice has the words of the whole.
        column.cast(pa.string()).dictionary_encode()
        if pa.types.is_dictionary(field.type) and len(column.dictionary) > len(column)
        else column
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, ROWS_SCHEMA, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=ROWS_SCHEMA))
    found: bytes = sink.getvalue().to_pybytes()
    return found
