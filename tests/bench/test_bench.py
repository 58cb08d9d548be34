"""The benchmarks run and report in full: their structure, never their speed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import MEASUREMENTS
from bench.load import JOB_BYTES, LoadFailed, expect_acked, expect_count, job, read_reply
from bench.rows import FULL, QUICK, Row, Target
from bench.triggers import TRIGGERS

BENCH = (sys.executable, "-m", "bench")
TIMEOUT_S = 600.0
ON_SPARK = {name for name in MEASUREMENTS if name.startswith(("spark-", "pipeline-"))}

ROWS = {
    "append-100",
    "append-100-lean",
    "read-append-ratio",
    "read-append-ratio-p50",
    "read-append-alone-p99",
    "read-append-beside-p99",
    "read-append-rate",
    "read-append-2-ratio",
    "read-append-2-ratio-p50",
    "read-append-2-beside-p99",
    "read-append-2-rate",
    "append-1-c1",
    "append-1-c8",
    "append-1-c32",
    "append-1-c128",
    "append-1-pipelined-16",
    "append-1-pipelined-64",
    "cycle",
    "cycle-1",
    "claim-1",
    "ack-1",
    "lone-writer-over-raw",
    "lone-writer-p50",
    "lone-writer-p99",
    "round-trip-p50",
    "raw-p50",
    "raw-p99",
    "work-latency-p50",
    "work-latency-p99",
    "work-throughput",
    "ready-100",
    "memory-100",
    "memory-restarted-100",
    "ready-1",
    "memory-1",
    "memory-restarted-1",
    "cold-memory",
    "cold-ready",
    "cold-claims",
    "cold-reads",
    "claim-ratio",
    "claim-small",
    "claim-large",
    "delete-tag-together-10000",
    "delete-tag-together-1000",
    "delete-tag-together-100",
    "delete-tag-scattered-10000",
    "delete-tag-scattered-1000",
    "delete-tag-scattered-100",
    "tidy-stall",
    "tidy-stall-p99",
    "untidied-stall",
    "untidied-p99",
    "diff-1000",
    "diff-head",
    "watch-hop-1",
    "watch-hop-100",
    "watch-latency-p50",
    "watch-latency-p99",
    "watch-crowd-p99",
    "watch-crowd-probe-p99",
    "room-p50",
    "room-p99",
    "watch-fanout",
    "watch-idle-memory",
    "watch-idle-cpu",
    "stats-stream-busy",
    "stats-stream-idle",
    "schedules-idle-cpu",
    "schedules-firing",
    "router-hop",
    "router-writes",
    "topics-10000",
    "topics-one-rate",
    "topics-many-rate",
    "client-append",
    "worker-noop",
    "worker-idle-requests",
    "worker-idle-pickup",
    "replica-async",
    "replica-sync",
    "replica-restore",
    "import-time",
    "help-time",
    "sqs-loop-ratio",
    "sqs-loop",
    "sqs-loop-moto",
    "sqs-loop-cpu",
}
UNTARGETED = {
    "sqs-loop",
    "sqs-loop-moto",
    "sqs-loop-cpu",
    "read-append-ratio-p50",
    "read-append-alone-p99",
    "read-append-beside-p99",
    "read-append-rate",
    "read-append-2-ratio-p50",
    "read-append-2-beside-p99",
    "read-append-2-rate",
    "append-1-c1",
    "append-1-c8",
    "append-1-c32",
    "append-1-pipelined-16",
    "append-1-pipelined-64",
    "cycle-1",
    "claim-1",
    "ack-1",
    "lone-writer-p50",
    "lone-writer-p99",
    "round-trip-p50",
    "raw-p50",
    "raw-p99",
    "work-latency-p50",
    "claim-small",
    "claim-large",
    "tidy-stall-p99",
    "untidied-stall",
    "untidied-p99",
    "watch-latency-p50",
    "watch-crowd-p99",
    "room-p99",
    "schedules-firing",
    "topics-one-rate",
    "topics-many-rate",
}


def measured(results: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The rows of a quick run, by name; its data must be gone afterwards."""
    ended = subprocess.run(
        [*BENCH, "--quick", "--json", "--dir", str(results), "--only", *names],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    report = json.loads(ended.stdout)
    assert report["scale"] == "quick" and report["machine"]["processors"] >= 1
    assert not any(results.iterdir()), "the data of a run is gone afterwards"
    return {row["name"]: row for row in report["rows"]}


def test_a_quick_run_measures_rows_of_each_kind(tmp_path: Path) -> None:
    rows = measured(tmp_path / "results", ["singles", "work-latency", "diff-head", "help-time"])
    beside = {"raw-p50", "raw-p99"}
    assert rows.keys() == beside | {
        "claim-1",
        "ack-1",
        "work-latency-p50",
        "work-latency-p99",
        "diff-head",
        "help-time",
    }
    assert all(row["values"] and not row["failure"] for row in rows.values())
    counted = {name for name, row in rows.items() if row["cpu_us"]}
    assert counted == {"claim-1", "ack-1", "diff-head"}, "rows of requests show what one costs"


@pytest.mark.slow
def test_a_quick_run_measures_every_row(tmp_path: Path) -> None:
    rows = measured(tmp_path / "results", [name for name in MEASUREMENTS if name not in ON_SPARK])
    stalls = {f"stall-{name}{end}" for name in TRIGGERS for end in ("", "-p999")}
    assert rows.keys() == ROWS | stalls
    for row in rows.values():
        assert len(row["values"]) == QUICK.repeats and row["failure"] == ""
        assert row["reached"] is None, "a quick run judges nothing"
    assert {name for name, row in rows.items() if row["target"] is None} == UNTARGETED


@pytest.mark.slow
@pytest.mark.spark
def test_a_quick_run_measures_spark(tmp_path: Path) -> None:
    assert len(ON_SPARK) == 13
    # Little data takes a session as long as much does; what the others call has its own tests.
    chosen = ["spark-append-p99", "spark-read", "spark-write"]
    rows = measured(tmp_path / "results", chosen)
    beside = {"spark-append-ratio", "spark-append-idle-p99", "spark-append-busy-p99"}
    assert rows.keys() == {*chosen, *beside, "raw-p50", "raw-p99"} - {"spark-append-p99"}
    assert all(row["values"] and not row["failure"] for row in rows.values())


def test_a_target_is_judged_by_the_median_at_full_scale_only() -> None:
    fast = Row("x", "x", "jobs/s", Target(10.0, at_most=False), values=[9.0, 11.0, 12.0])
    slow = Row("x", "x", "ms", Target(10.0, at_most=True), values=[9.0, 11.0, 12.0])
    assert fast.reached(FULL) is True and slow.reached(FULL) is False
    assert fast.reached(QUICK) is None
    failed = Row("x", "x", "ms", Target(10.0, at_most=True), failure="no server")
    assert failed.reached(FULL) is False
    assert Row("x", "x", "ms", values=[1.0]).reached(FULL) is None


def test_jobs_have_the_size_the_targets_speak_of() -> None:
    for number in (0, 7, 123_456, 99_999_999):
        assert len(job(number)) == JOB_BYTES
        assert json.loads(job(number))["n"] == number


def test_replies_are_read_whole_or_not_at_all() -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
    assert read_reply(reply) == (b"abc", len(reply))
    assert all(read_reply(reply[:end]) is None for end in range(len(reply)))


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
)
def test_a_reply_that_is_not_good_ends_the_measurement(reply: bytes) -> None:
    with pytest.raises(LoadFailed):
        read_reply(reply)


def test_wrong_counts_end_the_measurement() -> None:
    expect_count(b'{"count":100,"created":false}', 100)
    with pytest.raises(LoadFailed):
        expect_count(b'{"count":99,"created":false}', 100)
    expect_acked(b'{"acked":2,"skipped":[]}', 2)
    with pytest.raises(LoadFailed):
        expect_acked(b'{"acked":1,"skipped":[7]}', 2)
