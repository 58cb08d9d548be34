"""The demo of a takeover, short: real processes, a real SIGKILL, and its own judgement."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from logqueue.demo.checks import judge
from logqueue.demo.gap import TakeoverGap
from logqueue.demo.report import render_failover
from logqueue.demo.takeover import judge_takeover
from tests.demo.test_demo import facts

FAILOVER = (sys.executable, "-m", "logqueue.demo.failover")
GAP = TakeoverGap(last_answer_s=-0.02, began_s=3.0, ready_s=3.1, first_answer_s=3.15)


def test_every_job_is_accounted_for_across_a_takeover(tmp_path: Path) -> None:
    options = ("--files", "60", "--json", "--data-dir", str(tmp_path / "d"))
    ended = subprocess.run([*FAILOVER, *options], capture_output=True, text=True, timeout=300.0)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    report = json.loads(ended.stdout)
    assert report["ok"] and all(check["kept"] for check in report["checks"])
    assert report["results"] + len(report["dead_letters"]) == report["jobs"] == 64
    assert "writer killed (SIGKILL)" in ended.stderr
    gap = report["gap"]
    assert gap["seconds"] == report["kill"]["restart_s"]
    moments = [at for at in gap["moments"].values() if at is not None]
    assert moments == sorted(moments) and moments[0] <= 0.0 < moments[-1]
    for name in ("writer", "standby", "replica"):
        assert (tmp_path / "d" / name).is_dir()


def test_a_server_that_does_not_start_is_a_failure_with_its_output(tmp_path: Path) -> None:
    options = ("--files", "1", "--replica", "ftp://x", "--data-dir", str(tmp_path / "d"))
    ended = subprocess.run([*FAILOVER, *options], capture_output=True, text=True, timeout=300.0)
    assert ended.returncode == 1 and "FAILED: the server ended with status" in ended.stderr


def test_the_gap_is_from_answer_to_answer() -> None:
    assert GAP.seconds == pytest.approx(3.17)
    run = facts(done={1, 2, 3}, dead={4})
    shown = io.StringIO()
    render_failover(run, GAP, judge(run), shown)
    assert "+3.10" in shown.getvalue() and shown.getvalue().rstrip().endswith("none lost.")
    missed = TakeoverGap(last_answer_s=0.0, began_s=None, ready_s=None, first_answer_s=1.0)
    shown = io.StringIO()
    render_failover(run, missed, judge(run), shown)
    assert "not seen" in shown.getvalue()


def test_an_append_that_was_stored_twice_or_not_at_all_is_found() -> None:
    run = facts(done={1, 2, 3}, dead={4})
    assert all(check.kept for check in judge_takeover(run))
    del run.appended[4]
    assert [check.kept for check in judge_takeover(run)] == [False, True]
