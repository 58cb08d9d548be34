"""The demo as a real process with a real SIGKILL, and its own judgement tried on made-up facts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logqueue import Client
from logqueue.demo.checks import DeadLetter, DemoResults, Kill, Standing, judge
from logqueue.demo.directory import MARKER, NotOurs, fresh
from logqueue.demo.jobs import JobFeed, measure, sample, standard_library, truncated_copies
from logqueue.demo.pipeline import Reckoning
from logqueue.demo.pipeline import judge as judge_log
from logqueue.demo.workers import JOBS, Delivery, Result, Tally
from logqueue.shapes import QueueCounters

DEMO = (sys.executable, "-m", "logqueue.demo")
TIMEOUT_S = 300.0


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def accounted(directory: Path, *arguments: str) -> dict[str, Any]:
    """The report of a run in which the server is killed, once it is known to add up."""
    ended = run_demo("--files", "60", "--json", "--data-dir", str(directory), *arguments)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    report: dict[str, Any] = json.loads(ended.stdout)
    assert report["ok"] and all(check["kept"] for check in report["checks"])
    assert report["results"] + len(report["dead_letters"]) == report["jobs"]
    truncated = [one for one in report["dead_letters"] if one["name"].startswith("truncated/")]
    assert truncated, "what can never be parsed ends as a dead letter"
    assert all(one["reason"].startswith("SyntaxError") for one in truncated)
    assert report["kill"]["held_by_workers"] >= report["kill"]["delivered_again"]
    assert "server killed (SIGKILL)" in ended.stderr
    return report


def test_every_job_is_accounted_for_across_a_sigkill(tmp_path: Path) -> None:
    report = accounted(tmp_path / "demo", "--no-pipeline")
    assert report["pipeline"] is None
    assert not (tmp_path / "demo" / "pipeline").exists()


def test_the_server_stays_up_for_its_dashboard(tmp_path: Path) -> None:
    """Where it was all the time, until the user has seen enough."""
    arguments = ("--ui", "--files", "12", "--workers", "2", "--data-dir", str(tmp_path / "demo"))
    with (
        (tmp_path / "err").open("w+") as err,
        subprocess.Popen(
            [*DEMO, *arguments], stdout=subprocess.PIPE, stderr=err, text=True
        ) as demo,
    ):
        assert demo.stdout is not None
        line = next((line for line in demo.stdout if line.startswith("Dashboard: ")), "")
        url = line.split()[1] if line else ""
        try:
            assert url.endswith("/ui/")
            with Client(url.removesuffix("/ui/")) as client:
                names = {topic.topic for topic in client.topics()}
                assert {JOBS, "mail", "payments.dead"} <= names
        finally:
            demo.send_signal(signal.SIGINT)
        assert demo.wait(TIMEOUT_S) == 0
        err.seek(0)
        assert f"watch it on the dashboard: {url}" in err.read()


@pytest.mark.slow
@pytest.mark.spark
def test_the_log_itself_gives_the_same_account(tmp_path: Path) -> None:
    report = accounted(tmp_path / "demo")
    told = report["pipeline"]
    account = told["audit"]["account"]["by_topic"]["demo.jobs"]
    assert account["appended"] == report["jobs"] and account["unaccounted"] == 0
    assert told["lifecycle"]["rows"]["jobs"] == report["jobs"]
    page = Path(told["report"]).read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and "demo.jobs" in page


def test_a_directory_the_demo_did_not_make_stays_untouched(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine", encoding="utf-8")
    ended = run_demo("--files", "1", "--data-dir", str(tmp_path))
    assert ended.returncode == 2 and "left alone" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_its_own_directory_is_made_anew(tmp_path: Path) -> None:
    directory = fresh(tmp_path / "demo")
    (directory / "old").write_text("from the last run", encoding="utf-8")
    assert [path.name for path in fresh(directory).iterdir()] == [MARKER]
    (tmp_path / "link").symlink_to(directory)
    with pytest.raises(NotOurs):
        fresh(tmp_path / "link")


def test_measuring_counts_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    text = "class A:\n    async def f(self):\n        if self:\n            def g(): pass\nx = 1"
    path.write_text(text, encoding="utf-8")
    found = measure(str(path))
    assert (found.lines, found.functions, found.classes) == (5, 2, 1)


def test_a_sample_is_as_large_as_asked_and_the_truncated_never_parse(tmp_path: Path) -> None:
    everything = standard_library()
    assert len(everything) > 100
    for size in (1, 7, 60):
        assert len(set(sample(everything, size))) == size
    copies = truncated_copies(everything, tmp_path / "truncated")
    assert copies
    for copy in copies:
        with pytest.raises(SyntaxError):
            measure(copy.path)


def standing(*, left: int = 0, in_flight: int = 0, dead_lettered: int = 1) -> Standing:
    """How the queue stands at the end."""
    counters = QueueCounters(ready=0, in_flight=in_flight, dead_lettered=dead_lettered)
    return Standing(left, counters, appended=4)


def facts(*, done: set[int], dead: set[int], jobs: int = 4) -> DemoResults:
    """A run over jobs 1..jobs that ended well if done and dead make up all of them."""
    deliveries = [Delivery(seq, claimed_ms=100, outcome="acked", ended_ms=110) for seq in done]
    return DemoResults(
        appended={seq: JobFeed(f"/{seq}.py", f"{seq}.py") for seq in range(1, jobs + 1)},
        results=[Result(seq, f"{seq}.py", 1, 0, 0, 0.1, "w") for seq in sorted(done)],
        dead=[DeadLetter(seq, f"{seq}.py", 3, "SyntaxError: x") for seq in sorted(dead)],
        tallies=[Tally("w", deliveries)],
        workers=1,
        kill=Kill(at_ms=115, done=2, in_flight=1, restart_s=0.2),
        final=standing(dead_lettered=len(dead)),
        seconds=1.0,
    )


def broken(run: DemoResults) -> list[str]:
    return [check.what for check in judge(run) if not check.kept]


def test_a_good_run_passes_every_check() -> None:
    assert broken(facts(done={1, 2, 3}, dead={4})) == []


@pytest.mark.parametrize(
    ("run", "promise"),
    [
        (facts(done={1, 2}, dead={4}), "no job lost"),
        (facts(done={1, 2, 3, 4}, dead={4}), "no job both"),
        (facts(done={1, 2, 3, 9}, dead={4}), "no result for an unknown"),
        (
            replace(facts(done={1, 2, 3}, dead={4}), dead=[DeadLetter(4, "4.py", 3, "")]),
            "every dead letter has a reason",
        ),
        (replace(facts(done={1, 2, 3}, dead={4}), tallies=[]), "every worker"),
        (
            replace(facts(done={1, 2, 3}, dead={4}), final=standing(left=1, in_flight=1)),
            "the queue is empty",
        ),
    ],
)
def test_a_broken_promise_is_found(run: DemoResults, promise: str) -> None:
    found = broken(run)
    assert len(found) == 1 and found[0].startswith(promise)


def reckoning(*, appended: int, archived: int, findings: int, unaccounted: int) -> Reckoning:
    """What the pipeline says of a run with three jobs done and one dead."""
    account = {"appended": appended, "acked": 3, "dead_lettered": 1, "unaccounted": unaccounted}
    return Reckoning(
        archived={"tables": {"records": {"rows": archived}}},
        jobs={},
        audit={
            "findings": {"error": findings, "warning": 0, "info": 2},
            "account": {"by_topic": {JOBS: account}},
        },
        page=Path("report.html"),
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("found", "promise"),
    [
        (reckoning(appended=4, archived=8, findings=0, unaccounted=0), None),
        (
            reckoning(appended=3, archived=8, findings=0, unaccounted=0),
            "the log contains every job",
        ),
        (
            reckoning(appended=4, archived=8, findings=0, unaccounted=1),
            "in the log, every job ended",
        ),
        (reckoning(appended=4, archived=7, findings=0, unaccounted=0), "the archive contains"),
        (reckoning(appended=4, archived=8, findings=1, unaccounted=0), "the audit of log and"),
    ],
)
def test_what_the_log_says_is_held_against_the_run(found: Reckoning, promise: str | None) -> None:
    run = facts(done={1, 2, 3}, dead={4})
    told = [check.what for check in judge_log(run, found) if not check.kept]
    assert len(told) == (promise is not None)
    assert promise is None or told[0].startswith(promise)


def test_a_result_stored_twice_and_an_acked_job_that_comes_back_are_found() -> None:
    run = facts(done={1, 2, 3}, dead={4})
    run.results.append(run.results[0])
    run.tallies[0].deliveries.append(Delivery(2, claimed_ms=120))
    assert broken(run) == [
        "one result per job, even if it was delivered twice",
        "no acked job was delivered again",
    ]


def test_what_the_kill_cut_off_is_told_from_what_was_finished() -> None:
    run = facts(done={1, 2, 3}, dead={4})
    run.tallies[0].deliveries[:] = [
        Delivery(1, claimed_ms=100, outcome="acked", ended_ms=104),
        Delivery(2, claimed_ms=100, outcome="lost", ended_ms=120),
        Delivery(2, claimed_ms=115, outcome="acked", ended_ms=130),
        Delivery(3, claimed_ms=100, outcome="lost", ended_ms=120),
        Delivery(4, claimed_ms=90, outcome="failed", ended_ms=95),
        Delivery(4, claimed_ms=115, outcome="failed", ended_ms=118),
    ]
    run = replace(run, kill=replace(run.kill, at_ms=105))
    assert run.cut_off() == {2, 3}
    assert run.redelivered() == {2}
    assert run.retries() == 1


def test_an_ack_that_had_to_be_repeated_across_the_kill_promises_nothing() -> None:
    run = facts(done={1, 2, 3}, dead={4})
    run.tallies[0].deliveries[:] = [
        Delivery(2, claimed_ms=100, outcome="acked", ended_ms=120),
        Delivery(2, claimed_ms=121, outcome="acked", ended_ms=130),
    ]
    assert broken(run) == []
    run.tallies[0].deliveries.append(Delivery(2, claimed_ms=131))
    assert broken(run) == ["no acked job was delivered again"]
