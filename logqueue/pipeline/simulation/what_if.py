"""Many histories of a queue under each scenario, as bands; and how far such bands can be trusted.

Owns: seeds, figures of a history, bands, the back-test, rows of the tables. Must not know: where
the facts come from, how one history is replayed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.simulation.measured import Halves, QueueFacts, QueueHistory, Window
from logqueue.pipeline.simulation.replay import Draws, enough, present, replay
from logqueue.pipeline.simulation.scenario import Scenario

SEEDS: Final = 20
SEEDS_MIN: Final = 5
JOBS_REPLAYED: Final = 600_000
"""Over all scenarios and seeds; beyond it fewer histories are replayed, `SEEDS_MIN` at least."""
BUCKETS_MAX: Final = 2000

_PERCENTILES: Final = {"wait": (0.5, 0.95, 0.99), "whole": (0.5, 0.95)}


class Band(NamedTuple):
    """A figure over several histories: 10th percentile, median, 90th percentile."""

    low: float
    mid: float
    high: float


class Simulated(NamedTuple):
    """What was found about one queue: rows of the tables, by their names."""

    what_if: list[dict[str, Any]]
    backlog: list[dict[str, Any]]
    back_test: list[dict[str, Any]]


def seeds_for(jobs: int, scenarios: int, asked: int | None = None) -> int:
    """How many histories of each scenario are replayed."""
    if asked is not None:
        return asked
    return max(SEEDS_MIN, min(SEEDS, JOBS_REPLAYED // max(jobs * (scenarios + 1), 1)))


def simulate(
    measured: QueueFacts,
    halves: Halves,
    scenarios: Sequence[Scenario],
    *,
    seeds: int,
    bucket: int,
    note: Note = silent,
) -> Simulated | None:
    """Replay a queue under each scenario, and as measured.

    Args:
        measured: The facts of the queue.
        halves: The same of its first and its second half, for the back-test.
        scenarios: What is to be different; the one without changes is always replayed, too.
        seeds: Histories of each; the same seeds give the same result.
        bucket: ms; wider where there would be more than `BUCKETS_MAX`.
        note: Called with the scenario and the share that is done.

    Returns:
        None when there are too few runs to draw from.
    """
    if not enough(measured.runs) or not measured.windows:
        return None
    every = [Scenario(), *scenarios]
    buckets, width = bucket_starts(measured.start, measured.end, bucket)
    moments = [min(at + width, measured.end) for at in buckets]
    known = figures(measured.outcome, measured.windows)
    depths = backlog_at(measured.outcome, moments)
    found = Simulated([], [], back_test(halves, seeds))
    for place, scenario in enumerate(every):
        note(f"replaying {scenario.name}", place / len(every))
        outcomes = [
            replay(measured, scenario, Random(f"{scenario.name} {seed}")) for seed in range(seeds)
        ]
        windows = present(measured.windows, scenario.workers, measured.start, measured.end)
        bands = bands_of([figures(outcome, windows) for outcome in outcomes])
        head = {"topic": measured.topic, "scenario": scenario.name}
        for metric, band in bands.items():
            found.what_if.append(
                {**head, "metric": metric, "measured": known.get(metric), **band._asdict()}
            )
        series = zip(*(backlog_at(outcome, moments) for outcome in outcomes), strict=True)
        for at, depth, values in zip(buckets, depths, series, strict=True):
            row = {**head, "bucket": at, "measured": depth}
            found.backlog.append({**row, **band_of(values)._asdict()})
    return found


def back_test(halves: Halves, seeds: int) -> list[dict[str, Any]]:
    """The second half of the log, replayed with runs from the first half: rows.

    The second half keeps its arrivals and the times in which its workers were present; how long
    jobs run, fail and wait for a retry comes from the first half.
    """
    first, second = halves
    if not enough(first.runs) or not second.jobs or not second.windows:
        return []
    outcomes = []
    for seed in range(seeds):
        random = Random(f"back-test {seed}")
        draws = Draws(first, random, is_local=False)
        outcomes.append(replay(second, Scenario(), random, draws=draws))
    known = figures(second.outcome, second.windows)
    bands = bands_of([figures(outcome, second.windows) for outcome in outcomes])
    rows = []
    for metric, band in bands.items():
        actual = known.get(metric)
        error = abs(band.mid - actual) / actual if actual else None
        head = {"topic": second.topic, "metric": metric, "measured": actual}
        rows.append({**head, **band._asdict(), "error": error})
    return rows


# -- figures ---------------------------------------------------------------------------------------


def figures(outcome: QueueHistory, windows: Sequence[Window]) -> dict[str, float]:
    """The figures of one history; percentiles of nothing are left out."""
    found: dict[str, float] = {}
    for name, values in (("wait", outcome.waits), ("whole", outcome.whole)):
        ordered = sorted(values)
        for share in _PERCENTILES[name]:
            if ordered:
                found[f"{name}_p{round(share * 100)}"] = percentile(ordered, share)
    found["backlog_max"] = most_waiting(outcome)
    found["done"], found["dead"] = outcome.done, outcome.dead
    there = sum(window.end - window.start for window in windows)
    if there:
        found["utilisation"] = outcome.busy / there
    return found


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    place = -(-len(ordered) * share // 1)
    return ordered[max(int(place), 1) - 1]


def most_waiting(outcome: QueueHistory) -> int:
    """The most jobs that waited at a time."""
    now = most = 0
    went = sorted(outcome.went)
    place = 0
    for at in sorted(outcome.came):
        while place < len(went) and went[place] <= at:
            place += 1
            now -= 1
        now += 1
        most = max(most, now)
    return most


def backlog_at(outcome: QueueHistory, moments: Iterable[int]) -> list[int]:
    """How many jobs waited at each of these times."""
    came, went = sorted(outcome.came), sorted(outcome.went)
    return [bisect_right(came, at) - bisect_right(went, at) for at in moments]


def bucket_starts(start: int, end: int, bucket: int) -> tuple[list[int], int]:
    """The beginnings of buckets that cover a time, `BUCKETS_MAX` at most, and their width."""
    first = start // bucket * bucket
    width = bucket * -(-((end - first) // bucket + 1) // BUCKETS_MAX)
    return [*range(start // width * width, end + 1, width)], width


def bands_of(all: Sequence[Mapping[str, float]]) -> dict[str, Band]:
    """The band of each figure that any history has."""
    names = dict.fromkeys(name for one in all for name in one)
    return {name: band_of([one[name] for one in all if name in one]) for name in names}


def band_of(values: Iterable[float]) -> Band:
    """The band of a figure."""
    ordered = sorted(values)
    return Band(*(float(percentile(ordered, share)) for share in (0.1, 0.5, 0.9)))
