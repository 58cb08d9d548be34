"""What became of every job, against a queue that was played by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from logqueue.pipeline.engines.spark.lifecycle import job as lifecycle
from logqueue.pipeline.engines.spark.lifecycle.history_range import read_span
from logqueue.pipeline.errors import PipelineError, message_of
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.lifecycle.job_history import EVENTS, JobTimeline
from logqueue.pipeline.lifecycle.publishing import opened_target
from logqueue.pipeline.lifecycle.span import Span
from tests.spark.folded import fold
from tests.spark.histories import Row, Told
from tests.spark.reference import START, plays

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

END = START + 260_000_000


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows with times as ms since the epoch, and steps as tuples; without the day."""
    made: list[dict[str, Any]] = []
    for row in frame.collect():
        told = {name: plain(value) for name, value in row.asDict().items() if name != "date"}
        if "steps" in told:
            told["steps"] = [tuple(plain(part) for part in step) for step in row["steps"]]
        made.append(told)
    return made


def plain(value: Any) -> Any:
    return round(value.timestamp() * 1000) if hasattr(value, "timestamp") else value


def test_random_histories_come_out_as_they_were_played(spark: SparkSession) -> None:
    played = plays(300)
    told = Told(
        [row for play in played for row in play.records],
        [row for play in played for row in play.events],
    )
    records, events = told.records(spark), told.events(spark)
    span = read_span(records, events, END)
    folded = fold(records, events, span)
    jobs = {(row["log_id"], row["seq"]): row for row in rows_of(folded.jobs)}
    attempts = {(row["log_id"], row["lease_id"]): row for row in rows_of(folded.attempts)}
    for play in played:
        true_jobs, true_attempts = play.truth(END)
        if not play.events:
            continue
        for row in true_jobs:
            assert jobs.pop((row["log_id"], row["seq"])) == row
        for row in true_attempts:
            assert attempts.pop((row["log_id"], row["lease_id"])) == row
    assert not jobs and not attempts


def as_of(told: Told, until: int) -> Told:
    """A history as it was at some time."""

    def before(rows: list[Row]) -> list[Row]:
        return [row for row in rows if row["ts"] <= until]

    return Told(before(told.record_rows), before(told.event_rows))


def test_going_on_from_the_last_run_gives_what_a_whole_run_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    played = plays(40)
    told = Told([r for p in played for r in p.records], [e for p in played for e in p.events])
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    with pytest.raises(PipelineError, match="no finished run to go on from"):
        lifecycle.run_lifecycle(spark, told, parts, since="last")
    times = sorted(event["ts"] for event in told.event_rows)
    early = times[-len(times) // 3]
    first = lifecycle.run_lifecycle(spark, as_of(told, early), parts)
    assert first["rows"]["jobs"] > 0
    old_files = set((tmp_path / "parts" / "jobs").rglob("*.parquet"))
    with pytest.raises(PipelineError, match="leaves a hole behind the last run"):
        lifecycle.run_lifecycle(spark, told, parts, since=str(END))
    last = lifecycle.run_lifecycle(spark, told, parts, since="last")
    complete = lifecycle.run_lifecycle(spark, told, whole)
    assert last["range"] == complete["range"]
    assert 0 < last["rows"]["jobs"] < complete["rows"]["jobs"]
    assert old_files - set((tmp_path / "parts" / "jobs").rglob("*.parquet"))
    assert not (tmp_path / "parts" / "_staging").exists()
    for kind in (tables.JOBS, tables.ATTEMPTS):
        frames = [lifecycle.read_table(spark, folder, kind) for folder in (whole, parts)]
        one, other = (sorted(map(repr, frame.collect())) for frame in frames)
        assert one == other and one
    assert (
        json.loads((tmp_path / "parts" / "_range.json").read_text())["end"]
        == (complete["range"]["end"])
    )
    assert Span.read(whole) == Span.read(parts)


def test_directories_are_local_whatever_the_session_takes_paths_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As where `fs.defaultFS` is HDFS; and names mean themselves, not patterns."""
    played = plays(2)
    told = Told([r for p in played for r in p.records], [e for p in played for e in p.events])
    to = str(tmp_path / "a [b] {c,d}*? %20")
    spark.conf.set("fs.defaultFS", "viewfs://nowhere/")
    try:
        rows = lifecycle.run_lifecycle(spark, told, to)["rows"]
        assert lifecycle.read_table(spark, to, tables.JOBS).count() == rows["jobs"] > 0
        again = lifecycle.run_lifecycle(spark, told, f"file://{to}", since="last")
        assert again["output"] == to
    finally:
        spark.conf.unset("fs.defaultFS")
    assert pq.read_table(Path(to) / "jobs").num_rows == rows["jobs"]


def test_a_place_that_tasks_cannot_write_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """And what was there stays."""
    played = plays(1)
    told = Told([*played[0].records], [*played[0].events])
    with opened_target(str(tmp_path)) as target, pytest.raises(Exception) as failed:
        (tmp_path / "_staging").write_text("in the way")
        span = read_span(told.records(spark, "none"), told.events(spark))
        lifecycle._write_folded(told.records(spark, "none"), told.events(spark), span, target)
    assert "cannot be written on" in message_of(failed.value)
    assert "executors share" in message_of(failed.value)


def test_nothing_to_read_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="neither a record nor an event"):
        lifecycle.run_lifecycle(spark, Told([], []), str(tmp_path))
    with pytest.raises(PipelineError, match="holds no finished tables of jobs"):
        lifecycle.read_table(spark, str(tmp_path), tables.JOBS)


# -- what a played queue does not do: crashes, restarts, a clock that is set back ------------------


def told_of(*events: tuple[Any, ...], end: int = 10_000, appended: int | None = 100) -> JobTimeline:
    """A job from (event, ts) and, as needed, due, worker, lease id, reason, detail."""
    job = JobTimeline()
    if appended is not None:
        job.append(appended, 0)
    for name, ts, *more in events:
        none: list[Any] = [0, None, None, None, None]
        due, worker, lease, reason, detail = [*more, *none[len(more) :]]
        job.take(EVENTS.index(name), ts, due, worker, lease, reason, detail)
    job.close(end)
    return job


def outcomes(job: JobTimeline) -> list[tuple[str, int]]:
    return [(attempt.outcome, attempt.ended_at) for attempt in job.attempts]


def test_a_held_job_that_is_edited_stays_held() -> None:
    job = told_of(("held", 500), ("replaced", 600), ("unheld", 700), appended=100)
    assert [step.activity for step in job.steps][-3:] == ["held", "replaced", "unheld"]
    assert (job.steps[-2].state, job.state) == ("held", "ready")


def test_an_ack_whose_claim_was_lost_ends_the_job_without_an_attempt() -> None:
    job = told_of(("acked", 500, 0, "ant"))
    assert (job.state, job.finished_at, job.attempts, job.variant) == ("acked", 500, [], "acked")


def test_a_claim_over_an_open_lease_shows_that_it_was_lost() -> None:
    job = told_of(("claimed", 200, 9_000, "ant"), ("claimed", 700, 19_500, "bee"))
    assert outcomes(job) == [("lost", 700), ("open", 0)]
    assert (job.variant, job.wasted_ms, job.state) == ("claimed>lost>claimed", 500, "in_flight")


def test_a_word_of_another_worker_shows_it_too() -> None:
    job = told_of(("claimed", 200, 9_000, "ant"), ("acked", 700, 0, "bee"))
    assert outcomes(job) == [("lost", 700)]
    assert job.state == "acked"
    again = told_of(("claimed", 200, 900, "ant"), ("extended", 700, 9_000, "bee"))
    assert outcomes(again) == [("lost", 700)]


def test_a_lease_holds_through_its_deadline_and_not_beyond() -> None:
    assert outcomes(told_of(("claimed", 200, 900, "ant"), end=900)) == [("open", 0)]
    assert outcomes(told_of(("claimed", 200, 900, "ant"), end=901)) == [("expired", 900)]
    acked = told_of(("claimed", 200, 900, "ant"), ("acked", 900, 0, "ant"))
    assert outcomes(acked) == [("acked", 900)]
    longer = told_of(("claimed", 200, 900, "ant"), ("extended", 900, 5_000, "ant"), end=6_000)
    assert (outcomes(longer), longer.attempts[0].overrun_ms) == ([("expired", 5_000)], 4_100)


def test_leases_of_a_lost_record_are_not_those_of_its_successor() -> None:
    job = told_of(("claimed", 40, 900, "ant"), ("released", 50, 0, "ant"), ("acked", 500))
    assert (job.attempts, job.variant) == ([], "acked")


def test_a_clock_that_is_set_back_does_not_turn_a_job_around() -> None:
    job = told_of(("claimed", 900, 5_000, "ant"), ("acked", 300, 0, "ant"))
    assert outcomes(job) == [("acked", 900)]
    assert (job.run_ms, job.finished_at) == (0, 900)


def test_the_lease_of_a_record_that_went_lasts_on() -> None:
    job = told_of(
        ("claimed", 200, 9_000, "ant"), ("expired", 300), ("acked", 400, 0, "ant"), ("trimmed", 500)
    )
    assert outcomes(job) == [("acked", 400)]
    assert (job.state, job.finished_at, job.variant) == ("expired", 300, "claimed>ttl_expired")


def test_a_job_that_is_known_from_events_only() -> None:
    job = told_of(("claimed", 200, 900, "ant"), appended=None)
    assert (job.state, job.first_ready_at, job.began_at) == ("ready", 0, 200)
    assert not told_of(("trimmed", 200), appended=None).is_known


def test_a_variant_does_not_grow_for_ever() -> None:
    back_and_forth = [
        event
        for n in range(30)
        for event in (("claimed", 200 + n, 9_000, "a"), ("released", 200 + n, 0, "a"))
    ]
    variant = told_of(*back_and_forth).variant
    assert variant.endswith(">released>(20 more)") and variant.count(">") == 40


def test_what_a_hold_said_twice_changes() -> None:
    job = told_of(("claimed", 200, 900, "a"), ("held", 300), ("held", 400), ("unheld", 500))
    assert (job.variant, job.deliveries, job.state) == ("claimed>held>unheld", 0, "ready")


def test_a_day_is_few_files_however_many_tasks_fold_it(spark: SparkSession, tmp_path: Path) -> None:
    """Files by table and day, of their size; not one for each task, table and day."""
    day = 86_400_000
    told = Told(
        [
            {"topic": "t", "log_id": "l", "seq": 1 + seq, "ts": START + seq * day // 100}
            for seq in range(600)
        ],
        [
            {"topic": "t", "log_id": "l", "lseq": seq, "ts": START + seq * day // 100 + 1,
             "event": "claimed", "job_seq": 1 + seq, "worker": "w", "lease_id": f"{seq}"}
            for seq in range(600)
        ],
    )  # fmt: skip
    before = lifecycle.ROWS_PER_TASK
    lifecycle.ROWS_PER_TASK = 200
    try:
        done = lifecycle.run_lifecycle(spark, told, str(tmp_path))
    finally:
        lifecycle.ROWS_PER_TASK = before
    assert done["rows"] == {"jobs": 600, "attempts": 600}
    for kind in (tables.JOBS, tables.ATTEMPTS):
        days = [*(tmp_path / kind.name).iterdir()]
        assert 6 <= len(days) <= 7
        assert [len([*found.iterdir()]) for found in days] == [1] * len(days)
