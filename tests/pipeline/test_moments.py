"""Times that no calendar has: null in rows, counted, whatever number the API has accepted."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logqueue import events as ev
from logqueue.pipeline.engines.duckdb.input import LocalInput
from logqueue.pipeline.engines.duckdb.sql import run_query
from logqueue.pipeline.reading.calendar import FIRST_MS, LAST_MS
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.rows.moments import Moments, archived, bounds, restored, shown
from tests.spark.crafted import CraftedLog, appended

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EDGES = (1, 999, LAST_MS, LAST_MS + 1, (1 << 63) // 1000, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
times = st.one_of(st.sampled_from(EDGES), st.integers(0, (1 << 64) - 1), st.integers(0, 10**15))


def as_shown(ms: int) -> datetime | None:
    return EPOCH + timedelta(milliseconds=ms) if 0 < ms <= LAST_MS else None


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_bounds_are_those_of_python(unit: str) -> None:
    kind = pa.timestamp(unit, tz="UTC")
    first, last = bounds(unit)
    for number in (first, last):
        assert pa.array([number], pa.int64()).cast(kind)[0].as_py() is not None
    if unit != "ns":
        assert EPOCH + timedelta(milliseconds=FIRST_MS) == datetime.min.replace(tzinfo=UTC)
        for number in (first - 1, last + 1):
            with pytest.raises((OverflowError, ValueError)):
                pa.array([number], pa.int64()).cast(kind)[0].as_py()


@given(st.lists(st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.just(0))))
def test_any_number_is_shown_or_null(numbers: list[int | None]) -> None:
    column = pa.array(numbers, pa.int64()).view(pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"n": pa.array(numbers, pa.int64()), "at": column})
    moments = Moments()
    found = moments.shown(batch.slice(1) if numbers else batch)
    first, last = bounds("us")
    gone = 0
    for number, value in zip(numbers[1:], found.column("at").to_pylist(), strict=True):
        is_shown = number is not None and first <= number <= last
        assert value == (EPOCH + timedelta(microseconds=number or 0) if is_shown else None)
        gone += number is not None and not is_shown
    assert moments.dropped.total() == gone
    assert found.column("n").to_pylist() == numbers[1:]


@pytest.mark.parametrize("seed", [1, 2])
def test_every_not_before_that_the_api_accepts_reads(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = Random(seed)
    due = [*EDGES, *(chance.getrandbits(chance.randint(1, 64)) for _ in range(200))]
    with CraftedLog(tmp_path) as log:
        log.topic(1, "q", type="queue")
        for seq, ms in enumerate(due, 1):
            log.log(appended(log.at, 1, seq, 1, not_before=ms))
            if chance.random() < 0.3:
                log.log(ev.JobsRetimed(log.at, 1, [seq], ms, "delayed"))
    source = LocalInput(InputPlace(path=str(tmp_path), topics=("q",)))
    with caplog.at_level(logging.WARNING):
        rows = [row for batch in source.records() for row in batch.to_pylist()]
    assert [row["not_before"] for row in rows] == [as_shown(ms) for ms in due]
    gone = sum(ms > LAST_MS for ms in due)
    assert f"{gone} times in column not_before are outside of the years 1 to 9999" in caplog.text
    answer = run_query(
        InputPlace(path=str(tmp_path), topics=("q",)),
        "select not_before, ts + interval 9000 years as far from records order by seq",
        limit=1000,
    )
    assert answer.rows == [(as_shown(ms), None) for ms in due]
    retimed = [row for batch in source.events() for row in batch.to_pylist()]
    assert retimed
    for row in retimed:
        ms = due[row["job_seq"] - 1]
        assert row["ready_at"] == (as_shown(ms) if ms > log.at else None)


@given(st.lists(st.one_of(st.none(), st.integers(0, (1 << 63) // 1000 - 1), times), min_size=1))
def test_an_archive_shows_a_time_and_knows_that_it_was_later(due: list[int | None]) -> None:
    us = [None if ms is None else min(ms, (1 << 63) // 1000 - 1) * 1000 for ms in due]
    column = pa.array(us, pa.int64()).view(pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"at": column})
    [kept] = archived([batch])
    kept.column("at").to_pylist()
    back = restored(kept).column("at").view(pa.int64()).to_pylist()
    for before, after in zip(us, back, strict=True):
        is_later = before is not None and before > LAST_MS * 1000 + 999
        assert after == ((LAST_MS + 1) * 1000 if is_later else before)
    [again] = shown([restored(kept)])
    [first] = shown([batch])
    assert again == first


def test_batches_without_such_times_pass_as_they_are() -> None:
    batch = pa.record_batch({"at": pa.array([1, None], pa.timestamp("ms"))})
    [same] = shown([batch])
    assert same is batch
