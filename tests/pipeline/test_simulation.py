"""What-if: the facts of a log, one replay, and bands that are held against the truth."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, JOBS
from logqueue.pipeline.simulation.measured import (
    UNKNOWN,
    Arrival,
    QueueFacts,
    Window,
    measure,
    measure_halves,
    merged,
    most_at_once,
)
from logqueue.pipeline.simulation.replay import arrivals, present, replay
from logqueue.pipeline.simulation.scenario import (
    Scenario,
    WorkerChange,
    backoff_delay,
    parse_scenario,
)
from logqueue.pipeline.simulation.what_if import (
    BUCKETS_MAX,
    SEEDS,
    SEEDS_MIN,
    Simulated,
    backlog_at,
    bucket_starts,
    figures,
    percentile,
    seeds_for,
    simulate,
)
from tests.pipeline.queue_truth import START, Truth, TruthHistory, history, table

MINUTE = 60_000


def facts(made: TruthHistory) -> QueueFacts:
    """All of a history."""
    return measure(made.jobs, made.attempts, "q", made.start, made.end)


def simulated(made: TruthHistory, *scenarios: str, seeds: int = 10) -> Simulated:
    """Bands of a history under scenarios."""
    whole = facts(made)
    found = simulate(
        whole,
        measure_halves(made.jobs, made.attempts, whole),
        [parse_scenario(text) for text in scenarios],
        seeds=seeds,
        bucket=MINUTE,
    )
    assert found is not None
    return found


def row_of(found: Simulated, scenario: str, metric: str) -> dict[str, float]:
    """One band."""
    (row,) = (r for r in found.what_if if (r["scenario"], r["metric"]) == (scenario, metric))
    return row


# -- against the truth -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("truth", "scenario", "other"),
    [
        (Truth(), "workers=x2", {"workers": 8}),
        (Truth(), "workers=8", {"workers": 8}),
        (Truth(takes=500), "workers=+4", {"workers": 8}),
        (Truth(takes=250, workers=6), "workers=-3", {"workers": 3}),
        (Truth(takes=300, workers=6), "run=x0.5", {"takes": 150}),
        (Truth(takes=200, workers=5, fails=0.3), "workers=10", {"workers": 10}),
    ],
)
def test_another_number_of_workers_does_what_it_would_have_done(
    truth: Truth, scenario: str, other: dict[str, int]
) -> None:
    found = simulated(history(truth), scenario)
    actual = facts(history(replace(truth, **other)))
    known = figures(actual.outcome, actual.windows)
    for metric in ("wait_p95", "whole_p50", "whole_p95", "backlog_max"):
        band = row_of(found, scenario, metric)
        wide = max(0.35 * known[metric], 8)
        assert band["low"] - wide <= known[metric] <= band["high"] + wide, (metric, known[metric])


def test_the_measured_history_is_within_its_own_bands() -> None:
    for truth in (Truth(), Truth(takes=500), Truth(takes=250, fails=0.3, workers=6)):
        found = simulated(history(truth))
        for metric in ("wait_p95", "whole_p50", "whole_p95", "done", "utilisation"):
            band = row_of(found, "as measured", metric)
            wide = max(0.3 * band["measured"], 8)
            assert band["low"] - wide <= band["measured"] <= band["high"] + wide, (metric, band)


def test_the_second_half_is_predicted_from_the_first() -> None:
    found = simulated(history(Truth(takes=500)))
    errors = {row["metric"]: row["error"] for row in found.back_test}
    assert errors["wait_p95"] < 0.2 and errors["whole_p95"] < 0.2 and errors["done"] < 0.1


def test_a_prediction_that_fails_says_so() -> None:
    """In the second half every run takes ten times as long: the first half cannot know."""
    made = history(Truth(jobs=2000, takes=100))
    middle = facts(made).jobs[1000].ready
    claimed = made.attempts["claimed_at"].cast("int64").to_pylist()
    ended = made.attempts["ended_at"].cast("int64").to_pylist()
    slow = [
        start + 10 * (end - start) if start >= middle * 1000 else end
        for start, end in zip(claimed, ended, strict=True)
    ]
    place = ATTEMPTS.names.index("ended_at")
    column = made.attempts.schema.field("ended_at")
    attempts = made.attempts.set_column(
        place,
        column,
        [table(ATTEMPTS, [{"ended_at": at // 1000} for at in slow])["ended_at"].combine_chunks()],
    )
    whole = measure(made.jobs, attempts, "q", made.start, made.end)
    found = simulate(whole, measure_halves(made.jobs, attempts, whole), [], seeds=5, bucket=MINUTE)
    assert found is not None
    errors = {row["metric"]: row["error"] for row in found.back_test}
    assert errors["utilisation"] > 0.5


def test_the_same_seeds_give_the_same_bands() -> None:
    made = history(Truth(jobs=300))
    assert simulated(made, "load=x1.3") == simulated(made, "load=x1.3")


def test_limits_hold() -> None:
    measured = facts(history(Truth(jobs=600, takes=500, workers=8)))
    free = replay(measured, Scenario(), Random(1))
    few = replay(measured, parse_scenario("max_in_flight=2"), Random(1))
    slow = replay(measured, parse_scenario("claim_rate=1"), Random(1))
    assert sum(few.waits) > sum(free.waits)
    claims = sorted(at for at in slow.went)
    seconds = (claims[-1] - claims[0]) / 1000
    assert len(claims) <= seconds + 2
    assert few.busy <= 2 * (measured.end - measured.start)


def test_jobs_of_a_tag_that_goes_first_wait_less() -> None:
    made = history(Truth(jobs=900, takes=450))
    tags = ["vip" if number % 10 == 0 else "" for number in range(900)]
    rows = [{**row, "tag": tag} for row, tag in zip(made.jobs.to_pylist(), tags, strict=True)]
    for row in rows:
        for name in ("ready_at", "first_claim_at", "finished_at"):
            row[name] = row[name] and int(row[name].timestamp() * 1000)
    measured = measure(table(JOBS, rows), made.attempts, "q", made.start, made.end)
    as_it_was = replay(measured, Scenario(), Random(1))
    first = replay(measured, parse_scenario("first=vip"), Random(1))
    assert percentile(sorted(first.waits), 0.05) < percentile(sorted(as_it_was.waits), 0.05)


def test_more_deliveries_make_fewer_dead_letters() -> None:
    measured = facts(history(Truth(jobs=800, fails=0.5, workers=12)))
    dead = [
        replay(measured, parse_scenario(f"max_deliveries={most}"), Random(1)).dead
        for most in (1, 2, 4, 8)
    ]
    assert dead == sorted(dead, reverse=True) and dead[0] > 300 > dead[-1]


# -- facts -----------------------------------------------------------------------------------------


def test_slots_are_what_workers_held_at_a_time() -> None:
    measured = facts(history(Truth(takes=500, workers=3)))
    assert measured.slots == 3
    assert all(window.end > window.start for window in measured.windows)


def test_a_worker_that_was_gone_while_jobs_waited_is_not_counted_then() -> None:
    jobs, attempts = [], []
    for n in range(60):
        at = START + n * 1000
        gone = 20 <= n < 40
        claimed = START + 40_000 + n if gone else at + 5
        jobs.append(
            {"topic": "q", "log_id": "L", "seq": n + 1, "ready_at": at, "first_claim_at": claimed,
             "finished_at": claimed + 1, "state": "acked", "attempts": 1}
        )  # fmt: skip
        attempts.append(
            {"topic": "q", "log_id": "L", "job_seq": n + 1, "attempt": 1, "worker": "w",
             "ready_at": at, "claimed_at": claimed, "ended_at": claimed + 1, "outcome": "acked"}
        )  # fmt: skip
    measured = measure(table(JOBS, jobs), table(ATTEMPTS, attempts), "q", START, START + 60_000)
    assert len(measured.windows) == 2
    (first, second) = measured.windows
    assert first.end - START < 25_000 and second.start - START >= 39_000
    assert first.start == START and second.end == START + 60_000


def test_what_was_not_worked_on_is_replayed_too() -> None:
    jobs = [
        {"topic": "q", "log_id": "L", "seq": n, "ready_at": START + n, "state": "ready",
         "attempts": 0} for n in range(1, 20)
    ]  # fmt: skip
    measured = measure(table(JOBS, jobs), table(ATTEMPTS, []), "q", START, START + 1000)
    assert len(measured.outcome.waits) == 19 and not measured.windows
    halves = measure_halves(table(JOBS, jobs), table(ATTEMPTS, []), measured)
    assert simulate(measured, halves, [], seeds=5, bucket=MINUTE) is None


def test_jobs_that_left_without_a_run_leave_again() -> None:
    made = history(Truth(jobs=400, takes=600))
    measured = facts(made)
    jobs = [
        job._replace(leaves=job.ready + 50) if place % 7 == 0 else job
        for place, job in enumerate(measured.jobs)
    ]
    outcome = replay(replace(measured, jobs=jobs), Scenario(), Random(3))
    assert outcome.done < 400 - 20
    assert backlog_at(outcome, [measured.end])[0] >= 0


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 60), st.integers(1, 400), st.integers(1, 6), st.floats(0, 0.9),
    st.integers(1, 5), st.integers(0, 99),
    st.sampled_from(["", "load=x0.5", "load=x2.5", "workers=1", "workers=x0.4", "run=x3",
                     "max_in_flight=1", "claim_rate=0.5", "max_deliveries=2", "backoff=1s..8s"]),
)  # fmt: skip
def test_every_history_adds_up(
    jobs: int, takes: int, workers: int, fails: float, batch: int, seed: int, change: str
) -> None:
    """Whatever is changed: no wait is negative, nothing goes that did not come, all are counted."""
    made = history(Truth(jobs + 20, 50, takes, workers, fails, batch), seed)
    measured = facts(made)
    scenario = parse_scenario(change) if change else Scenario()
    outcome = replay(measured, scenario, Random(seed))
    assert min(outcome.waits, default=0) >= 0 and min(outcome.whole, default=0) >= 0
    assert len(outcome.went) <= len(outcome.came)
    assert all(depth >= 0 for depth in backlog_at(outcome, range(made.start, made.end, 500)))
    assert outcome.done == len(outcome.whole)
    if scenario.load == 1.0:
        assert len(outcome.waits) == len(measured.jobs)
        assert outcome.done + outcome.dead <= len(measured.jobs)


# -- scenarios -------------------------------------------------------------------------------------


def test_scenarios_are_read() -> None:
    scenario = parse_scenario("workers=x2, load=x1.5,backoff=5s..5m,first=a,first=b,lease=30s")
    assert scenario.workers == WorkerChange(factor=2.0) and scenario.load == 1.5
    assert scenario.backoff_ms == (5000, 300_000) and scenario.first == {"a", "b"}
    assert scenario.lease_ms == 30_000
    assert parse_scenario("workers=-2").workers == WorkerChange(more=-2)
    assert [backoff_delay(scenario, n) for n in (1, 2, 3, 7, 8, 99)] == [
        5000, 10_000, 20_000, 300_000, 300_000, 300_000,
    ]  # fmt: skip
    assert backoff_delay(parse_scenario("backoff=2s"), 40) == 2000


@pytest.mark.parametrize(
    "text",
    ["", "workers", "workers=", "workers=0", "workers=x0", "workers=x1e9", "workers=1.5", "load=2",
     "load=x0", "run=xnan", "backoff=5m..5s", "backoff=", "lease=0s", "claim_rate=0",
     "claim_rate=x", "max_deliveries=0", "max_in_flight=-1", "first=", "speed=x2",
     "load=x2,load=x3", "load=x²"],
)  # fmt: skip
def test_what_is_no_scenario_is_refused(text: str) -> None:
    with pytest.raises(PipelineError):
        parse_scenario(text)


@given(st.floats(0.05, 5), st.integers(1, 300), st.integers(0, 99))
def test_a_load_is_that_many_times_the_jobs(load: float, many: int, seed: int) -> None:
    jobs = [Arrival(START + 10 * n, n + 1, "", 0) for n in range(many)]
    found = arrivals(jobs, load, Random(seed))
    assert abs(len(found) - load * many) <= 1
    assert found == sorted(found)
    assert all(START <= job.ready <= START + 10 * many for job in found)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=12), st.integers(0, 51))
def test_merged_windows_cover_the_same_moments(spans: list[tuple[int, int]], at: int) -> None:
    found = merged(spans)
    assert any(start <= at < end for start, end in spans) == any(
        window.start <= at < window.end for window in found
    )
    assert all(a.end < b.start for a, b in pairwise(found))


def test_windows_of_other_workers() -> None:
    windows = [Window(0, 10), Window(0, 10), Window(5, 20)]
    assert most_at_once(windows) == 3
    assert present(windows, WorkerChange(slots=2), 0, 30) == [Window(0, 30)] * 2
    assert len(present(windows, WorkerChange(factor=2.0), 0, 30)) == 6
    assert len(present(windows, WorkerChange(more=-1), 0, 30)) == 2
    assert most_at_once(present(windows, WorkerChange(more=2), 0, 30)) == 5
    assert present([], WorkerChange(more=-3), 0, 30) == []


def test_histories_are_as_many_as_can_be_afforded() -> None:
    assert seeds_for(1000, 2) == SEEDS
    assert seeds_for(30_000, 8) == SEEDS_MIN
    assert seeds_for(30_000, 8, 40) == 40
    assert UNKNOWN < 0


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from([1000, 60_000, 3_600_000]))
def test_buckets_cover_the_time(start: int, length: int, bucket: int) -> None:
    starts, width = bucket_starts(start, start + length, bucket)
    assert starts[0] <= start <= start + length < starts[-1] + width
    assert width % bucket == 0 and len(starts) <= BUCKETS_MAX + 1
