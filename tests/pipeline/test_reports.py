"""Reports over a history that is small enough to be counted by hand, and over random ones."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
import pytest

from logqueue.pipeline.engines.duckdb.reports import build
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.reports.idle_buckets import with_idle_buckets
from logqueue.pipeline.reports.queries.sources import ReportScope
from logqueue.pipeline.reports.selection import RANGE_KEY, select_reports
from tests.pipeline.told_history import TwoTables, folded, truth_of
from tests.spark.reference import START, plays

ZERO = 1_700_000_040_000
"""Begins a minute."""
MINUTE = 60_000
END = 179.0


class Written:
    """A history by hand; times in seconds after `ZERO`."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def job(self, topic: str, seq: int, at: float, due: float | None = None, tag: str = "") -> None:
        """A record."""
        self.records.append(
            {
                "topic": topic, "seq": seq, "ts": _ms(at), "tag": tag or None,
                "not_before": None if due is None else _ms(due), "log_id": f"log-{topic}",
            }
        )  # fmt: skip

    def happens(self, topic: str, seq: int, event: str, at: float, **more: Any) -> None:
        """An event."""
        times = {k: _ms(v) for k, v in more.items() if k in ("deadline", "ready_at")}
        self.events.append(
            {
                "topic": topic, "lseq": len(self.events) + 1, "ts": _ms(at), "event": event,
                "job_seq": seq, "log_id": f"log-{topic}", **more, **times,
            }
        )  # fmt: skip


def _ms(seconds: float) -> int:
    return ZERO + round(seconds * 1000)


def by_hand() -> Written:
    """Twenty jobs that go well, one that does not, and some that wait; and a queue with a bad tag.

    Job n of the twenty comes at n s, waits n/2 s and runs n/10 s.
    """
    told = Written()
    for n in range(1, 21):
        node = "ant" if n % 2 else "bee"
        told.job("mail", n, n)
        told.happens("mail", n, "claimed", 1.5 * n, worker=node, deadline=600)
        told.happens("mail", n, "acked", 1.6 * n, worker=node)
    told.job("mail", 21, 40)
    told.happens("mail", 21, "claimed", 70, worker="ant", deadline=130, lease_id="lease_a")
    told.happens("mail", 21, "claimed", 135, worker="bee", deadline=600, lease_id="lease_b")
    error = "ValueError: x\nand more"
    told.happens(
        "mail", 21, "released", 140, worker="bee", ready_at=150, reason="nack", detail=error
    )
    told.happens("mail", 21, "claimed", 160, worker="bee", deadline=170, lease_id="lease_c")
    for n in range(11):
        told.happens("mail", 21, "extended", 161 + n / 10, worker="bee", deadline=600 + n)
    told.job("mail", 22, 100)
    told.job("mail", 23, 61, due=400)
    told.job("mail", 24, 62)
    told.happens("mail", 24, "held", 63)
    for seq in (1, 2):
        told.job("other", seq, 5, tag="bad")
        told.happens("other", seq, "claimed", 6, worker="cat", deadline=600)
        told.happens("other", seq, "released", 7, worker="cat", reason="nack", detail="no")
    told.happens("other", 2, "claimed", 8, worker="cat", deadline=600)
    told.happens("other", 2, "acked", 9, worker="cat")
    return told


@pytest.fixture(scope="module")
def made() -> dict[str, list[dict[str, Any]]]:
    """All reports over the history by hand, as rows with times in s after `ZERO`."""
    told = by_hand()
    found = folded(told.records, told.events, _ms(END))
    every = [kind.name for kind in tables.REPORTS]
    what = select_reports(every, "1m", "wait=10s,e2e=1m,run=30s")
    scope = ReportScope(_ms(1), _ms(END), what.bucket, what.rules)
    built = build(found.jobs, found.attempts, scope, what.names)
    assert list(built) == every
    for name, table in built.items():
        assert table.schema.equals(tables.BY_NAME[name].arrow())
        told_range = json.loads(table.schema.metadata[RANGE_KEY])
        assert told_range["end_ms"] == _ms(END)
    return {name: [_plain(row) for row in table.to_pylist()] for name, table in built.items()}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (round(value.timestamp() * 1000) - ZERO) / 1000
        if hasattr(value, "timestamp")
        else value
        for name, value in row.items()
    }


def picked(
    rows: list[dict[str, Any]], *names: str, topic: str = "mail", **only: Any
) -> list[tuple[Any, ...]]:
    kept = (
        r for r in rows if r["topic"] == topic and all(r[name] == v for name, v in only.items())
    )
    return [tuple(r[name] for name in names) for r in kept]


Made = dict[str, list[dict[str, Any]]]


def test_throughput_counts_what_happened_in_each_bucket(made: Made) -> None:
    names = ("bucket", *tables.BY_NAME["report_throughput"].names[2:])
    assert picked(made["report_throughput"], *names) == [
        # bucket, appended, claimed, acked, released, expired, dead, dropped, held
        (0.0, 21, 20, 20, 0, 0, 0, 0, 0),
        (60.0, 3, 1, 0, 0, 0, 0, 0, 1),
        (120.0, 0, 2, 0, 1, 1, 0, 0, 0),
    ]


def test_latency_gives_the_percentiles_of_known_lists(made: Made) -> None:
    names = ("p50", "p90", "p95", "p99", "max", "n", "waiting")
    rows = made["report_latency"]
    runs = (1000, 1800, 1900, 2000, 2000, 20, 0)
    assert picked(rows, *names, metric="run", bucket=None) == [runs]
    assert picked(rows, *names, metric="run", bucket=0.0) == [runs]
    whole = (6000, 10800, 11400, 12000, 12000, 20, 0)
    assert picked(rows, *names, metric="e2e", bucket=None) == [whole]
    assert picked(rows, *names, metric="wait", bucket=60.0) == [(*[30_000] * 5, 1, 0)]


def test_jobs_that_no_worker_claimed_count_as_waits(made: Made) -> None:
    names = ("p50", "p95", "max", "n", "waiting")
    rows = made["report_latency"]
    # Job 22 has waited for 79 s when the range ends. Delayed and held jobs wait for no worker.
    assert picked(rows, *names, metric="wait", bucket=120.0) == [(*[79_000] * 3, 1, 1)]
    assert picked(rows, *names, metric="wait", bucket=None) == [(5500, 30_000, 79_000, 22, 1)]
    assert picked(made["report_latency_by_tag"], *names, metric="wait", bucket=None) == [
        (5500, 30_000, 79_000, 22, 1)
    ]
    heat = picked(made["report_heatmap"], "bucket", "from_ms", "to_ms", "n", metric="wait")
    assert heat[-2:] == [(60.0, 28672, 32768, 1), (120.0, 65536, 81920, 1)]


def test_an_outage_shows_in_the_percentiles_of_waits() -> None:
    told = Written()
    for seq in range(1, 101):
        told.job("mail", seq, 0)
    told.happens("mail", 1, "claimed", 1, worker="ant", deadline=600)
    told.happens("mail", 1, "acked", 2, worker="ant")
    found = folded(told.records, told.events, _ms(3600))
    scope = ReportScope(ZERO, _ms(3600), MINUTE, {})
    rows = build(found.jobs, found.attempts, scope, ["report_latency"])["report_latency"]
    waits = [r for r in rows.to_pylist() if r["metric"] == "wait" and r["bucket"] is None]
    assert [(r["p50"], r["p95"], r["n"], r["waiting"]) for r in waits] == [
        (3_600_000, 3_600_000, 100, 99)
    ]


def test_workers_are_busy_where_their_leases_are(made: Made) -> None:
    names = ("worker", "bucket", "claims", "acks", "failures", "busy_ms", "p95_run")
    rows = made["report_workers"]
    assert sorted(picked(rows, *names), key=repr) == [
        ("ant", 0.0, 10, 10, 0, 10_000, 1900),
        ("ant", 120.0, 0, 0, 1, 10_000, None),
        ("ant", 60.0, 1, 0, 0, 50_000, None),
        ("ant", None, 11, 10, 1, 70_000, 1900),
        ("bee", 0.0, 10, 10, 0, 11_000, 2000),
        ("bee", 120.0, 2, 0, 1, 24_000, None),
        ("bee", None, 12, 10, 1, 35_000, 2000),
    ]
    assert picked(rows, "utilisation", worker="ant", bucket=60.0) == [(50 / 60,)]
    assert picked(rows, "utilisation", worker="ant", bucket=None) == [(70 / 178,)]


def test_backlog_tells_how_it_stood_at_the_end_of_each_bucket(made: Made) -> None:
    names = ("bucket", "ready", "delayed", "in_flight", "held", "oldest_age_ms")
    assert picked(made["report_backlog"], *names) == [
        (0.0, 1, 0, 0, 0, 20_000),
        (60.0, 1, 1, 1, 1, 20_000),
        (120.0, 1, 1, 1, 1, 79_000),
    ]


def test_capacity_is_arrival_rate_times_mean_run(made: Made) -> None:
    rows = made["report_capacity"]
    names = ("arrivals", "arrival_rate", "mean_run_ms", "needed_workers", "seen_workers")
    overall = 86_000 / 22
    assert picked(rows, *names, bucket=0.0) == [(21, 0.35, 1050.0, pytest.approx(0.3675), 2)]
    # No lease ended in the second minute: the mean of the whole range stands in.
    needed = pytest.approx(0.05 * overall / 1000)
    assert picked(rows, *names, bucket=60.0) == [(3, 0.05, None, needed, 1)]
    assert picked(rows, *names, bucket=120.0) == [(0, 0.0, 32_500.0, 0.0, 2)]
    needed = pytest.approx(24 / 178 * overall / 1000)
    whole = (24, pytest.approx(24 / 178), pytest.approx(overall), needed, 2)
    assert picked(rows, *names, bucket=None) == [whole]
    assert picked(rows, "peak_workers", bucket=None) == [(pytest.approx(0.3675),)]
    assert picked(rows, "utilisation", bucket=120.0) == [(34 / 120,)]


def test_failures_and_waste(made: Made) -> None:
    names = ("outcome", "reason", "n", "jobs", "first_at", "last_at", "sample_seq")
    assert picked(made["report_failures"], *names) == [
        ("expired", "", 1, 1, 130.0, 130.0, 21),
        ("released", "ValueError: x", 1, 1, 140.0, 140.0, 21),
    ]
    assert picked(made["report_waste"], "outcome", "attempts", "run_ms", "share") == [
        ("acked", 20, 21_000, 21 / 105),
        ("expired", 1, 60_000, 60 / 105),
        ("open", 1, 19_000, 19 / 105),
        ("released", 1, 5_000, 5 / 105),
    ]
    names = ("kind", "value", "failures", "jobs", "acks", "last_at", "sample_error")
    assert picked(made["report_poison"], *names, topic="other") == [
        ("tag", "bad", 2, 2, 1, 7.0, "no")
    ]
    assert picked(made["report_poison"], *names) == []


def test_limits_hold_what_still_waits_too(made: Made) -> None:
    assert picked(made["report_sla"], "rule", "seq", "value_ms", "limit_ms", "at") == [
        ("e2e", 21, 139_000, 60_000, 100.0),
        ("e2e", 22, 79_000, 60_000, 160.0),
        ("e2e", 24, 117_000, 60_000, 122.0),
        ("run", 21, 60_000, 30_000, 100.0),
        ("wait", 21, 30_000, 10_000, 50.0),
        ("wait", 22, 79_000, 10_000, 110.0),
        ("wait", 24, 117_000, 10_000, 72.0),
    ]
    names = ("rule", "limit_ms", "measured", "breaches", "kept_share", "worst_ms")
    assert picked(made["report_sla_summary"], *names) == [
        ("e2e", 60_000, 23, 3, pytest.approx(20 / 23), 139_000),
        ("run", 30_000, 23, 1, pytest.approx(22 / 23), 60_000),
        ("wait", 10_000, 23, 3, pytest.approx(20 / 23), 117_000),
    ]


def test_stuck_leases_say_why(made: Made) -> None:
    names = ("job_seq", "lease_id", "held_ms", "extensions", "open", "why")
    assert picked(made["report_stuck"], *names) == [
        (21, "lease_a", 60_000, 0, False, "long,expired"),
        (21, "lease_c", 19_000, 11, True, "extended,long"),
    ]


def test_variants_and_what_follows_what(made: Made) -> None:
    long_way = "claimed>expired>claimed>released>claimed"
    assert sorted(picked(made["report_variants"], "variant", "n", "share", "median_e2e_ms")) == [
        ("claimed>acked", 20, 20 / 24, 6000),
        (long_way, 1, 1 / 24, None),
        ("held", 1, 1 / 24, None),
        ("waiting", 2, 2 / 24, None),
    ]
    assert picked(made["report_dfg"], "from_step", "to_step", "n", "median_gap_ms") == [
        ("appended", "claimed", 21, 5500),
        ("appended", "held", 1, 1000),
        ("claimed", "acked", 20, 1000),
        ("claimed", "expired", 1, 60_000),
        ("claimed", "released", 1, 5000),
        ("expired", "claimed", 1, 5000),
        # The end of the delay between the two is not a step of any job.
        ("released", "claimed", 1, 20_000),
    ]


def test_outcomes_retries_and_the_event_log(made: Made) -> None:
    assert picked(made["report_outcomes"], "state", "jobs", "share", "mean_attempts") == [
        ("acked", 20, 20 / 24, 1.0),
        ("delayed", 1, 1 / 24, 0.0),
        ("held", 1, 1 / 24, 0.0),
        ("in_flight", 1, 1 / 24, 3.0),
        ("ready", 1, 1 / 24, 0.0),
    ]
    assert picked(made["report_retries"], "attempts", "jobs", "acked") == [
        (0, 3, 0),
        (1, 20, 20),
        (3, 1, 0),
    ]
    names = ("case_id", "activity", "lifecycle", "timestamp", "resource")
    case = "mail/log-mail/21"
    assert picked(made["event_log"], *names, seq=21) == [
        (case, "appended", "schedule", 40.0, None),
        (case, "claimed", "start", 70.0, "ant"),
        (case, "expired", "ate_abort", 130.0, None),
        (case, "claimed", "start", 135.0, "bee"),
        (case, "released", "ate_abort", 140.0, "bee"),
        (case, "claimed", "start", 160.0, "bee"),
    ]


def test_breakdowns_of_the_page(made: Made) -> None:
    names = ("worker", "tag", "claims", "acks", "failures", "run_ms", "p50_run", "p95_run")
    assert picked(made["report_workers_by_tag"], *names) == [
        ("ant", None, 11, 10, 1, 70_000, 900, 1900),
        ("bee", None, 12, 10, 1, 16_000, 1000, 2000),
    ]
    of_tags = ("tag", "bucket", "appended", "claims", "acks", "failures", "run_ms")
    assert picked(made["report_tags"], *of_tags, topic="other") == [
        ("bad", 0.0, 2, 3, 1, 2, 3000),
        ("bad", None, 2, 3, 1, 2, 3000),
    ]
    ways = ("bucket", "outcome", "reason", "n")
    assert picked(made["report_failures_over_time"], *ways) == [
        (120.0, "expired", "", 1),
        (120.0, "released", "ValueError: x", 1),
    ]


def random_truth(cases: int = 60, steps: int = 40) -> tuple[TwoTables, int]:
    end = START + 260_000_000
    return truth_of([play for play in plays(cases, steps) if play.events], end), end


@pytest.fixture(scope="module")
def at_random() -> tuple[TwoTables, ReportScope, dict[str, pa.Table]]:
    """Random histories, and all reports over them in buckets of an hour."""
    found, end = random_truth()
    scope = ReportScope(START, end, 60 * MINUTE, {})
    names = select_reports().names
    return found, scope, build(found.jobs, found.attempts, scope, names)


AtRandom = tuple[TwoTables, ReportScope, dict[str, pa.Table]]


def test_sums_agree_over_random_histories(at_random: AtRandom) -> None:
    (jobs, attempts), scope, made = at_random
    states = Counter(zip(jobs["topic"].to_pylist(), jobs["state"].to_pylist(), strict=True))
    last = {row["topic"]: row for row in made["report_backlog"].to_pylist()}
    for topic, row in last.items():
        assert row["bucket"].timestamp() * 1000 == scope.last
        for state in ("ready", "delayed", "in_flight", "held"):
            assert row[state] == states[topic, state]

    rows = made["report_workers"].to_pylist()
    leases = attempts.to_pylist()
    busy = sum(
        (scope.end if row["ended_at"] is None else _at(row["ended_at"])) - _at(row["claimed_at"])
        for row in leases
    )
    acks = sum(row["outcome"] == "acked" for row in leases)
    for whole in (True, False):
        part = [row for row in rows if (row["bucket"] is None) is whole]
        assert sum(row["claims"] for row in part) == len(leases)
        assert sum(row["busy_ms"] for row in part) == busy
        assert sum(row["acks"] for row in part) == acks
    counts = made["report_throughput"].to_pylist()
    assert sum(row["appended"] for row in counts) == jobs.num_rows
    ended = sum(row["acked"] + row["dead"] + row["dropped"] for row in counts)
    assert ended == sum(at is not None for at in jobs["finished_at"].to_pylist())
    tagged = [row for row in made["report_tags"].to_pylist() if row["bucket"] is None]
    assert sum(row["claims"] for row in tagged) == len(leases)
    failures = sum(row["failures"] for row in rows if row["bucket"] is None)
    ways = made["report_failures"].to_pylist()
    assert sum(row["n"] for row in ways) >= failures
    over_time = made["report_failures_over_time"].to_pylist()
    assert sum(row["n"] for row in over_time) == sum(row["n"] for row in ways)
    values = made["report_latency"].to_pylist()
    heat = made["report_heatmap"].to_pylist()
    assert all(row["from_ms"] < row["to_ms"] for row in heat)
    for metric in ("wait", "run", "e2e"):
        whole_n = sum(r["n"] for r in values if r["metric"] == metric and r["bucket"] is None)
        assert sum(r["n"] for r in heat if r["metric"] == metric) == whole_n > 0


def _at(time: Any) -> int:
    return round(float(time.timestamp()) * 1000)


def test_the_backlog_is_what_a_walk_over_all_buckets_finds(at_random: AtRandom) -> None:
    (jobs, _), scope, made = at_random
    rows = made["report_backlog"]
    for length in (scope.bucket, 4 * scope.bucket):
        dense = with_idle_buckets(rows, end=scope.end, bucket=scope.bucket, length=length)
        found = {(r["topic"], _at(r["bucket"])): r for r in dense.to_pylist()}
        expected = _walked(jobs, scope, length)
        assert found.keys() == expected.keys()
        for key, depths in expected.items():
            assert {name: found[key][name] for name in depths} == depths, key


def _walked(
    jobs: pa.Table, scope: ReportScope, length: int
) -> dict[tuple[str, int], dict[str, int]]:
    """The depths of each topic, job by job and bucket by bucket: the highest in longer ones."""
    names = ("ready", "delayed", "in_flight", "held", "oldest_age_ms")
    depths: dict[tuple[str, int], dict[str, int]] = defaultdict(lambda: dict.fromkeys(names, 0))
    first: dict[str, int] = {}
    for job in jobs.to_pylist():
        began = _at(job["steps"][0]["at"]) // scope.bucket * scope.bucket
        first[job["topic"]] = min(began, first.get(job["topic"], began))
        steps = [(_at(step["at"]), step["state"]) for step in job["steps"]]
        ready = _at(job["ready_at"])
        for bucket in range(began, scope.end + 1, scope.bucket):
            moment = min(bucket + scope.bucket, scope.end)
            # What happens at the very beginning of a bucket belongs to it.
            so_far = [step for step in steps if step[0] < bucket + scope.bucket]
            at, state = so_far[-1]
            row = depths[job["topic"], bucket]
            if state in names:
                row[state] += 1
            if state == "ready":
                since = min(min(ready, step[0]) for step in so_far if step == so_far[-1])
                row["oldest_age_ms"] = max(row["oldest_age_ms"], moment - min(since, at))
    longer: dict[tuple[str, int], dict[str, int]] = defaultdict(lambda: dict.fromkeys(names, 0))
    for topic, begin in first.items():
        for bucket in range(begin, scope.end + 1, scope.bucket):
            row = longer[topic, bucket - bucket % length]
            for name, value in depths[topic, bucket].items():
                row[name] = max(row[name], value)
    return dict(longer)


def test_idle_buckets_are_not_rows() -> None:
    told = Written()
    told.job("mail", 1, 1)
    told.happens("mail", 1, "claimed", 86_400, worker="ant", deadline=90_000)
    told.happens("mail", 1, "acked", 86_401, worker="ant")
    found = folded(told.records, told.events, _ms(90 * 86_400))
    scope = ReportScope(ZERO, _ms(90 * 86_400), MINUTE, {})
    rows = build(found.jobs, found.attempts, scope, ["report_backlog"])["report_backlog"]
    names = ("bucket", "ready", "in_flight", "oldest_age_ms")
    assert picked([_plain(row) for row in rows.to_pylist()], *names) == [
        (0.0, 1, 0, 59_000),
        (86_400.0, 0, 0, 0),
        (90 * 86_400.0, 0, 0, 0),
    ]
    dense = with_idle_buckets(rows, end=scope.end, bucket=MINUTE, length=MINUTE)
    assert dense.num_rows == 90 * 1440 + 1
    assert dense["oldest_age_ms"].to_pylist()[:1441:480] == [
        59_000, 28_859_000, 57_659_000, 0,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"names": ["latncy"]}, "unknown report 'latncy': use one of throughput, latency"),
        ({"bucket": "1 minute"}, "the bucket must be a duration such as 30s"),
        ({"sla": "queue=1s"}, "'queue=1s' is not a limit; write wait=30s"),
        ({"sla": "wait=soon"}, "the limit of wait must be a duration"),
        ({"names": ["sla"]}, "report sla needs limits"),
    ],
)
def test_what_is_asked_for_is_checked(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        select_reports(**asked)
