"""Rows in packs: all of a job in one part, floors in every one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from logqueue.pipeline.lifecycle.job_history import TRIMMED
from logqueue.pipeline.rows import packs
from logqueue.pipeline.rows.fold_rows import ROWS_SCHEMA

LOGS, JOBS, FLOORS, PARTS = 3, 5000, 7, 5


def test_rows_come_out_of_packs_as_they_went_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows of each job, in batches that are put into packs several at a time."""
    monkeypatch.setattr(packs, "CHUNK_ROWS", 2000)
    rows = [
        (f"log{n % LOGS}", n // LOGS, order, 1 + order, n, 0, f"w{n}", f"{n}", None, None)
        for order in (0, 1)
        for n in range(JOBS)
    ]
    floors = [("log0", n, n, TRIMMED, n, 0, None, None, "limits", None) for n in range(FLOORS)]
    made: dict[int, list[pa.RecordBatch]] = {}
    for some in packs.packed_by_part(map(batch, chunks([*rows, *floors], 700)), PARTS):
        for part in range(PARTS):
            its = pc.equal(some.column("part"), part)
            made.setdefault(part, []).append(some.filter(its))
    found = []
    jobs: set[tuple[object, ...]] = set()
    for part in range(PARTS):
        group, passed = packs.unpacked(made[part])
        listed = [tuple(row.values()) for some in group.parts for row in plain(some)]
        assert group.rows == len(listed) > len(rows) // PARTS // 2
        assert [tuple(row.values()) for some in passed for row in plain(some)] == floors
        its_jobs = {row[:2] for row in listed}
        assert not its_jobs & jobs
        jobs |= its_jobs
        found += listed
    assert sorted(found, key=str) == sorted(rows, key=str)


def chunks(rows: list[tuple[object, ...]], size: int) -> list[list[tuple[object, ...]]]:
    return [rows[first : first + size] for first in range(0, len(rows), size)]


def batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, ROWS_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS_SCHEMA)


def plain(rows: object) -> list[dict[str, object]]:
    assert isinstance(rows, pa.RecordBatch)
    found: list[dict[str, object]] = rows.to_pylist()
    return found
