"""Files of a good size: whatever parts rows come in, few files hold them all."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logqueue.pipeline.rows import file_sizes
from logqueue.pipeline.rows.file_sizes import (
    FILE_BYTES,
    DayFile,
    DayKey,
    Gathering,
    SizedFiles,
    neighbours,
)

DAYS = 40


def rows_of(chance: random.Random, count: int) -> pa.Table:
    """Rows whose files are about as large as their columns."""
    return pa.table({"n": [chance.getrandbits(62) for _ in range(count)]})


def keys(name: str = "jobs") -> list[DayKey]:
    return [DayKey(name, date(2026, 1 + n // 28, 1 + n % 28)) for n in range(DAYS)]


def test_a_day_has_one_small_file_at_most(tmp_path: Path) -> None:
    chance = random.Random(7)

    def path(key: DayKey, number: int) -> str:
        return str(tmp_path / key.name / str(key.day) / f"{number}.parquet")

    files = SizedFiles(path, file_bytes=4096)
    sent: Counter[DayKey] = Counter()
    total = 0
    made: list[DayFile] = []
    for _ in range(300):
        key = chance.choice(keys()[:5] if chance.random() < 0.5 else keys())
        rows = rows_of(chance, chance.randint(0, 300))
        sent[key] += rows.num_rows
        total += sum(n.as_py() for n in rows["n"])
        made += files.add(key, rows)
    made += files.rest()
    assert sum(1 for file in made if file.bytes < 4096) <= DAYS
    found: Counter[DayKey] = Counter()
    read = 0
    for file in made:
        table = pq.read_table(file.path)
        assert (table.num_rows, Path(file.path).stat().st_size) == (file.rows, file.bytes)
        found[file.key] += file.rows
        read += sum(n.as_py() for n in table["n"])
    assert found == +sent and read == total
    assert len(list(tmp_path.rglob("*"))) == 1 + len(found) + len(made), "and nothing is left over"


def test_a_failed_task_leaves_no_part(tmp_path: Path) -> None:
    files = SizedFiles(lambda key, number: str(tmp_path / f"{key.day}-{number}"), file_bytes=1)
    files._gathering = Gathering(10, 1 << 20)
    [made] = files.add(keys()[0], rows_of(random.Random(1), 10))
    files._file_bytes = FILE_BYTES
    assert [*files.add(keys()[1], rows_of(random.Random(1), 10))] == []
    files.abandon()
    assert [str(path) for path in tmp_path.iterdir()] == [made.path]


def test_what_waits_is_bounded_over_all_days() -> None:
    gathering = Gathering(1_000_000, 1 << 30, total_bytes=100_000)
    chance = random.Random(3)
    waiting = 0
    for turn in range(200):
        rows = rows_of(chance, 1000)
        waiting += rows.nbytes
        for _, part in gathering.add(keys()[turn % DAYS], rows):
            waiting -= part.nbytes
        assert waiting <= 100_000
    assert sum(part.nbytes for _, part in gathering.rest()) == waiting


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([5], [range(1)]),
        ([100, 1, 1], [range(1), range(1, 3)]),
        ([4, 4, 4, 4, 4], [range(2), range(2, 4), range(4, 5)]),
        ([1] * 25, [range(10), range(10, 20), range(20, 25)]),
    ],
)
def test_neighbours_are_merged_up_to_the_target(sizes: list[int], groups: list[range]) -> None:
    assert neighbours(sizes, 10) == groups


def test_years_of_days_are_not_open_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_sizes, "OPEN_FILES", 7)
    chance, files = random.Random(7), SizedFiles(lambda key, n: str(tmp_path / f"{key.day}-{n}"))
    made: list[DayFile] = []
    for key in (*keys(), *keys()):
        made += files.add(key, rows_of(chance, 3))
    for file in files.rest():
        made.append(file)
        assert len([*tmp_path.glob("*.part")]) <= 7
    assert sum(file.rows for file in made) == 2 * DAYS * 3
    assert {file.key for file in made} == {*keys()}
    assert all(pq.read_metadata(file.path).num_rows == file.rows for file in made)
