"""Files of a good size: rows by table and day, gathered until they fill row groups and files.

Owns: how large a file is, when gathered rows are written, the bound on what is gathered. Must not
know: engines, what rows say, how files are published. Runs in executors, so pyarrow is imported at
the top.

A table by day is cut into (day, bucket): a file takes rows until it has `FILE_BYTES`, then the next
one begins. So a day has one small file at most, however many parts its rows come
in. What is gathered is bounded over all days, so that the days of years can be written at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FILE_BYTES: Final = 64 << 20
"""Of a file as it is on disk, at least, where there is that much."""
GROUP_ROWS: Final = 131_072
GROUP_BYTES: Final = 32 << 20
"""Of Arrow columns that make a row group, whichever of the two comes first."""
OPEN_FILES: Final = 200
"""A task has no more files open at once: systems allow 1024 to a process, or fewer."""
GATHERED_BYTES: Final = 128 << 20
"""Of Arrow columns that wait, over all tables and days."""


class DayKey(NamedTuple):
    """A table and a day of it."""

    name: str
    day: date


def by_day(name: str, rows: pa.Table) -> Iterator[tuple[DayKey, pa.Table]]:
    """Rows of a table by their days, without the column `date`."""
    days = rows["date"].unique().to_pylist()
    for day in days:
        its = rows if len(days) == 1 else rows.filter(pc.equal(rows["date"], day))
        yield DayKey(name, day), its.drop_columns(["date"])


class DayFile(NamedTuple):
    """A file that was written.

    Attributes:
        path: As given by who named it.
        rows, bytes: What is in it.
    """

    key: DayKey
    path: str
    rows: int
    bytes: int


class Gathering:
    """Rows that wait for more of their table and day."""

    def __init__(self, part_rows: int, part_bytes: int, total_bytes: int = GATHERED_BYTES) -> None:
        """Nothing waits.

        Args:
            part_rows, part_bytes: What makes a part, whichever comes first.
            total_bytes: How much may wait in all; beyond it, the largest goes as it is.
        """
        self._part_rows = part_rows
        self._part_bytes = part_bytes
        self._total_bytes = total_bytes
        self._waiting: dict[DayKey, list[pa.Table]] = {}
        self._sizes: dict[DayKey, tuple[int, int]] = {}
        self._total = 0

    def add(self, key: DayKey, rows: pa.Table) -> Iterator[tuple[DayKey, pa.Table]]:
        """Take in rows; gives the parts that are full."""
        if not rows.num_rows:
            return
        self._waiting.setdefault(key, []).append(rows)
        count, size = self._sizes.get(key, (0, 0))
        count, size = count + rows.num_rows, size + rows.nbytes
        self._sizes[key] = count, size
        self._total += rows.nbytes
        if count >= self._part_rows or size >= self._part_bytes:
            yield key, self._take(key)
        while self._total > self._total_bytes:
            largest = max(self._sizes, key=lambda known: self._sizes[known][1])
            yield largest, self._take(largest)

    def rest(self) -> Iterator[tuple[DayKey, pa.Table]]:
        """What still waits, in order."""
        for key in sorted(self._waiting):
            yield key, self._take(key)

    def _take(self, key: DayKey) -> pa.Table:
        _, size = self._sizes.pop(key)
        self._total -= size
        return pa.concat_tables(self._waiting.pop(key))


class SizedFiles:
    """Writes rows by table and day into files of `FILE_BYTES`."""

    def __init__(self, path: Callable[[DayKey, int], str], *, file_bytes: int = FILE_BYTES) -> None:
        """Nothing is written.

        Args:
            path: Names the n-th file (from 0) of a table and day; its directory is made.
            file_bytes: From what size on a file is closed.
        """
        self._path = path
        self._file_bytes = file_bytes
        self._gathering = Gathering(GROUP_ROWS, GROUP_BYTES)
        self._open: dict[DayKey, _OpenFile] = {}
        self._numbers: dict[DayKey, int] = {}

    def add(self, key: DayKey, rows: pa.Table) -> Iterator[DayFile]:
        """Take in rows; gives the files that are full."""
        for part in self._gathering.add(key, rows):
            yield from self._write(*part)

    def rest(self) -> Iterator[DayFile]:
        """Write what still waits; gives all files that are not given yet, in order."""
        for part in self._gathering.rest():
            yield from self._write(*part)
        for key in sorted(self._open):
            yield self._open.pop(key).close()

    def abandon(self) -> None:
        """Close and delete files that are not finished, as the task has failed."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()

    def _write(self, key: DayKey, rows: pa.Table) -> Iterator[DayFile]:
        file = self._open.get(key)
        if file is None:
            if len(self._open) >= OPEN_FILES:
                yield self._open.pop(min(self._open)).close()
            number = self._numbers.get(key, 0)
            self._numbers[key] = number + 1
            file = self._open[key] = _OpenFile(key, self._path(key, number), rows.schema)
        if file.write(rows) >= self._file_bytes:
            yield self._open.pop(key).close()


class _OpenFile:
    """A file that is being written; it gets its name when it is whole."""

    def __init__(self, key: DayKey, path: str, schema: pa.Schema) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._key = key
        self._path = path
        self._part = f"{path}.part"
        self._rows = 0
        self._file = pa.OSFile(self._part, "wb")
        self._writer = pq.ParquetWriter(self._file, schema, compression="zstd", store_schema=False)

    def write(self, rows: pa.Table) -> int:
        """Write a row group; returns the bytes so far."""
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._rows += rows.num_rows
        return int(self._file.tell())

    def close(self) -> DayFile:
        self._writer.close()
        size = int(self._file.tell())
        self._file.close()
        os.replace(self._part, self._path)
        return DayFile(self._key, self._path, self._rows, size)

    def abandon(self) -> None:
        self._writer.close()
        self._file.close()
        os.unlink(self._part)


def neighbours(sizes: Sequence[int], target: int = FILE_BYTES) -> list[range]:
    """Which neighbours make one file each: as few files as possible, none much over the target.

    Args:
        sizes: Bytes of files, in the order of their rows.
        target: Bytes that a file should have.

    Returns:
        Ranges of places, in order, that cover all of them.
    """
    groups: list[range] = []
    first = total = 0
    for place, size in enumerate(sizes):
        if place > first and total + size > target:
            groups.append(range(first, place))
            first, total = place, 0
        total += size
    if sizes:
        groups.append(range(first, len(sizes)))
    return groups
