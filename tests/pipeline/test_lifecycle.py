"""The tables of jobs and attempts, against a queue that was played by hand."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logqueue.pipeline.engines.duckdb import lifecycle
from logqueue.pipeline.engines.duckdb.lifecycle import run_lifecycle
from logqueue.pipeline.engines.duckdb.workers import WorkerPool
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle import publishing, tables
from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.rows import shuffle
from logqueue.pipeline.storage.opening import open_tree
from tests.house import ROOT
from tests.pipeline.histories import History, HistoryPart, table_rows
from tests.spark.reference import START, plays

END = START + 260_000_000


def history(cases: int) -> History:
    played = plays(cases)
    return History(
        [row for play in played for row in play.records],
        [row for play in played for row in play.events],
    )


@pytest.fixture
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs on disk, groups and tasks of few rows."""
    monkeypatch.setattr(shuffle, "RUN_ROWS", 500)
    monkeypatch.setattr(shuffle, "SEQS_PER_BUCKET", 3)
    monkeypatch.setattr(shuffle, "GROUP_ROWS_MIN", 200)
    monkeypatch.setattr(shuffle, "GROUP_ROWS_MAX", 150)
    monkeypatch.setattr(shuffle, "GROUP_BYTES_MAX", 20_000)
    monkeypatch.setattr(lifecycle, "ROWS_PER_TASK_MAX", 1000)


@pytest.mark.usefixtures("in_small_pieces")
def test_random_histories_come_out_as_they_were_played(tmp_path: Path) -> None:
    played = plays(300)
    told = History(
        [row for play in played for row in play.records],
        [row for play in played for row in play.events],
    )
    run_lifecycle(told, str(tmp_path), end=str(END))
    found = [
        [{n: value for n, value in row.items() if n != "date"} for row in table_rows(to, kind)]
        for to, kind in ((str(tmp_path), tables.JOBS), (str(tmp_path), tables.ATTEMPTS))
    ]
    jobs = {(row["log_id"], row["seq"]): row for row in found[0]}
    attempts = {(row["log_id"], row["lease_id"]): row for row in found[1]}
    assert (len(jobs), len(attempts)) == (len(found[0]), len(found[1]))
    for play in played:
        true_jobs, true_attempts = play.truth(END)
        if not play.events:
            continue
        for row in true_jobs:
            assert jobs.pop((row["log_id"], row["seq"])) == row
        for row in true_attempts:
            assert attempts.pop((row["log_id"], row["lease_id"])) == row
    assert not jobs and not attempts


class Pickled(WorkerPool):
    """Does in this process what others would do, with what they would get."""

    def parallel(self, size: int, pieces: int = 2) -> int:
        return 2

    def map(
        self, work: Callable[[Any], Any], pieces: Iterable[Any], size: int, count: int = 2
    ) -> Iterator[Any]:
        for piece in pieces:
            yield pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(piece)))))


def tables_of(to: str) -> list[list[dict[str, Any]]]:
    return [table_rows(to, kind) for kind in (tables.JOBS, tables.ATTEMPTS)]


@pytest.mark.usefixtures("in_small_pieces")
def test_going_on_from_the_last_run_gives_what_a_whole_run_gives(tmp_path: Path) -> None:
    all_of_it = history(60)
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    with pytest.raises(PipelineError, match="no finished run to go on from"):
        run_lifecycle(all_of_it, parts, since="last")
    times = sorted(event["ts"] for event in all_of_it.event_rows)
    early = times[-len(times) // 3]
    first = run_lifecycle(all_of_it.as_of(early), parts)
    with pytest.raises(PipelineError, match="leaves a hole behind the last run"):
        run_lifecycle(all_of_it, parts, since=str(END))
    last = run_lifecycle(all_of_it, parts, since="last", pool=Pickled())
    complete = run_lifecycle(all_of_it, whole)
    assert last["range"] == complete["range"]
    assert last["since"] == first["range"]["end"]
    assert 0 < last["rows"]["jobs"] < complete["rows"]["jobs"]
    assert tables_of(parts) == tables_of(whole)
    with pytest.raises(PipelineError, match="before the last run did"):
        run_lifecycle(all_of_it.as_of(early), parts, since="last")
    versions = [publishing.published(open_tree(to)) for to in (whole, parts)]
    assert versions[0] is not None and versions[1] is not None
    assert versions[0].facts == versions[1].facts


def test_only_days_that_hold_changed_jobs_are_written_again(tmp_path: Path) -> None:
    day = 86_400_000

    def job(seq: int, *, is_acked: bool = True) -> History:
        at, of = START + seq * day, {"topic": "t", "log_id": "l", "job_seq": seq, "worker": "w"}
        claimed = {"event": "claimed", "lease_id": f"{seq}", "deadline": at + day, "ts": at + 1}
        events = [{**of, "lseq": 2 * seq, **claimed}]
        if is_acked:
            events.append({**of, "lseq": 2 * seq + 1, "event": "acked", "ts": at + 2})
        return History([{"topic": "t", "log_id": "l", "seq": seq, "ts": at}], events)

    def of(*jobs: History) -> History:
        records = [row for each in jobs for row in each.record_rows]
        return History(records, [row for each in jobs for row in each.event_rows])

    run_lifecycle(of(job(1), job(2), job(3, is_acked=False)), str(tmp_path))
    before = {file.name for file in _version(tmp_path).files if file.day}
    renewed = run_lifecycle(of(*map(job, (1, 2, 3, 4))), str(tmp_path), since="last")
    assert renewed["rows"] == {"jobs": 2, "attempts": 2}
    after = {file.name for file in _version(tmp_path).files if file.day}
    kept = {name.split("/")[1] for name in before & after}
    assert len(before) == 6 and len(after) == 8 and len(kept) == 2
    assert [row["state"] for row in table_rows(str(tmp_path), tables.JOBS)] == ["acked"] * 4


def test_a_topic_becomes_a_queue_between_two_runs(tmp_path: Path) -> None:
    records = [{"topic": "t", "log_id": "l", "seq": seq, "ts": START + seq} for seq in (1, 2)]
    of_other = {"topic": "u", "log_id": "m", "event": "acked", "job_seq": 1, "lseq": 1}
    event = {**of_other, "ts": START}
    assert run_lifecycle(History(records, [event]), str(tmp_path))["rows"]["jobs"] == 1
    claimed = {**event, "topic": "t", "log_id": "l", "lseq": 2, "ts": START + 9}
    renewed = run_lifecycle(History(records, [event, claimed]), str(tmp_path), since="last")
    assert renewed["rows"]["jobs"] == 2 and renewed["topics"] == ["t", "u"]
    assert len(table_rows(str(tmp_path), tables.JOBS)) == 3


def test_rows_that_are_gone_from_the_history_stay_in_the_tables(tmp_path: Path) -> None:
    all_of_it = history(20)
    times = sorted(event["ts"] for event in all_of_it.event_rows)
    early = all_of_it.as_of(times[len(times) // 2])
    run_lifecycle(early, str(tmp_path))
    ended = [row for row in table_rows(str(tmp_path), tables.JOBS) if row["finished_at"]]
    end = early.span(None).end
    later = [row for row in all_of_it.event_rows if row["ts"] > end]
    run_lifecycle(History([], later), str(tmp_path), since="last")
    jobs = table_rows(str(tmp_path), tables.JOBS)
    touched = {(row["log_id"], row["job_seq"]) for row in later}
    stay = [row for row in ended if (row["log_id"], row["seq"]) not in touched]
    assert stay and all(row in jobs for row in stay)


def test_what_is_later_than_the_end_does_not_count(tmp_path: Path) -> None:
    all_of_it = history(30)
    times = sorted(event["ts"] for event in all_of_it.event_rows)
    until = times[len(times) // 2]
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    run_lifecycle(all_of_it, one, end=str(until))
    run_lifecycle(all_of_it.as_of(until), other, end=str(until))
    assert tables_of(one) == tables_of(other)


def test_nothing_to_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="neither a record nor an event"):
        run_lifecycle(History([], []), str(tmp_path))
    with pytest.raises(PipelineError, match="holds no finished tables"):
        table_rows(str(tmp_path), tables.JOBS)


def test_a_run_that_fails_changes_nothing(tmp_path: Path) -> None:
    class Breaks(HistoryPart):
        def batches(self) -> Iterator[pa.RecordBatch]:
            yield from super().batches()
            raise PipelineError("the server is gone")

    class Broken(History):
        def fold_parts(self, span: Span, **which: Any) -> Sequence[HistoryPart]:
            return [Breaks(part.rows) for part in super().fold_parts(span, **which)]

    all_of_it = history(10)
    run_lifecycle(all_of_it, str(tmp_path))
    before = tables_of(str(tmp_path))
    with pytest.raises(PipelineError, match="the server is gone"):
        run_lifecycle(Broken([], all_of_it.event_rows), str(tmp_path))
    assert tables_of(str(tmp_path)) == before
    assert not [path for path in tmp_path.glob("_staging/**/*") if path.is_file()]


RUN = """
import os, signal, sys
from logqueue.pipeline.engines.duckdb import lifecycle
from logqueue.pipeline.engines.duckdb.workers import WorkerPool
from tests.pipeline.test_lifecycle import history

def note(what, share):
    if share and share > 0.6:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    lifecycle.ROWS_PER_TASK_MAX = 1000
    with WorkerPool(2, worthwhile=0) as pool:
        lifecycle.run_lifecycle(history(40), sys.argv[1], since="last", note=note, pool=pool)
"""


@pytest.mark.usefixtures("in_small_pieces")
def test_a_killed_run_leaves_no_process_and_no_change(tmp_path: Path) -> None:
    """It is killed when some files are staged."""
    all_of_it = history(40)
    whole, to = str(tmp_path / "whole"), str(tmp_path / "to")
    run_lifecycle(all_of_it, whole)
    times = sorted(event["ts"] for event in all_of_it.event_rows)
    run_lifecycle(all_of_it.as_of(times[len(times) // 2]), to)
    before = tables_of(to)
    (tmp_path / "run.py").write_text(RUN)
    # The pipe ends when its last writer has: the worker processes inherit it.
    killed = subprocess.run(
        [sys.executable, str(tmp_path / "run.py"), to],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert list(tmp_path.glob("to/_staging/**/*.parquet"))
    assert tables_of(to) == before
    run_lifecycle(all_of_it, to, since="last")
    assert tables_of(to) == tables_of(whole)
    assert not (tmp_path / "to" / "_staging").exists()


def test_progress_rises_to_its_end(tmp_path: Path) -> None:
    noted: list[float | None] = []
    run_lifecycle(history(10), str(tmp_path), note=lambda _, share: noted.append(share))
    assert noted[-1] == 1.0 and noted == sorted(share or 0.0 for share in noted)


def _version(to: Path) -> publishing.Published:
    found = publishing.published(open_tree(str(to)))
    assert found is not None
    return found
