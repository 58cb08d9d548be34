"""A queue replayed: one history that could have been, by chance and by the rules of leases.

Owns: the discrete events (a job is ready, a slot is free), who gets what when, and draws from what
was measured. Must not know: how a log is read, what is made of several histories.

Arrivals are those measured. Each run is drawn from the measured ones of about the same time and the
same tag, with the rest its slot took afterwards, so that slow hours stay slow. All times are ms
since the epoch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from random import Random
from typing import Final

from logqueue.pipeline.simulation.measured import (
    DONE,
    RETRY,
    UNKNOWN,
    Arrival,
    MeasuredRun,
    QueueFacts,
    QueueHistory,
    Window,
    most_at_once,
)
from logqueue.pipeline.simulation.scenario import Scenario, WorkerChange, backoff_delay

TAG_RUNS_MIN: Final = 30
"""A tag with fewer runs is drawn from those of all jobs."""
NEIGHBOURS: Final = 50
"""A run is one of so many before and after the moment."""
RUNS_MIN: Final = 10
"""With fewer measured runs a queue is not replayed."""

_READY: Final = 0
_ENDS: Final = 1
_FREE: Final = 2
_WAKE: Final = 3


class Draws:
    """Runs, rests, delays and pickups, drawn from what was measured."""

    def __init__(self, measured: QueueFacts, random: Random, *, is_local: bool = True) -> None:
        """Prepare.

        Args:
            is_local: Draw runs from about the same time; else from all times.
        """
        self._random = random
        self._is_local = is_local
        runs = measured.runs
        self._runs = {tag: all for tag, all in runs.items() if not tag or len(all) >= TAG_RUNS_MIN}
        self._starts = {tag: [run.at for run in all] for tag, all in self._runs.items()}
        self._rests = sorted(run.rest for run in runs[""] if run.rest != UNKNOWN)
        self._delays = measured.delays
        self._pickups = measured.pickups

    def run(self, tag: str, at: int) -> MeasuredRun:
        """A run of a job with this tag, begun at about this time."""
        key = tag if tag in self._runs else ""
        runs = self._runs[key]
        if not self._is_local:
            return self._random.choice(runs)
        place = bisect_left(self._starts[key], at)
        low = max(0, min(place - NEIGHBOURS, len(runs) - 2 * NEIGHBOURS))
        high = min(len(runs), low + 2 * NEIGHBOURS)
        return runs[low + int(self._random.random() * (high - low))]

    def rest(self, run: MeasuredRun) -> int:
        """How long the slot rests after a run while jobs wait, ms."""
        if run.rest != UNKNOWN or not self._rests:
            return max(run.rest, 0)
        return self._random.choice(self._rests)

    def delay(self, deliveries: int) -> int:
        """The delay before a retry, ms."""
        if not self._delays:
            return 0
        known = self._delays.get(deliveries) or self._delays[max(self._delays)]
        return self._random.choice(known)

    def pickup(self) -> int:
        """How long a job waits although a worker is free, ms."""
        return self._random.choice(self._pickups) if self._pickups else 0


def replay(
    measured: QueueFacts,
    scenario: Scenario,
    random: Random,
    *,
    draws: Draws | None = None,
) -> QueueHistory:
    """One history of a queue under a scenario.

    Args:
        measured: Arrivals and windows come from here, and the draws by default.
        draws: Where runs come from, if from elsewhere.
    """
    queue = _Queue(measured, scenario, draws or Draws(measured, random))
    return queue.run(arrivals(measured.jobs, scenario.load, random))


def arrivals(jobs: Sequence[Arrival], load: float, random: Random) -> list[Arrival]:
    """The arrivals under another load: copies arrive between the neighbours of the original.

    Of a load that is not whole, jobs are copied or left out in turn, from a random one on.
    """
    if load == 1.0:
        return list(jobs)
    found: list[Arrival] = []
    carry = random.random()
    for place, job in enumerate(jobs):
        carry += load
        times = int(carry)
        carry -= times
        if not times:
            continue
        found.append(job)
        low = jobs[max(place - 1, 0)].ready
        high = jobs[min(place + 1, len(jobs) - 1)].ready
        for _ in range(times - 1):
            ready = low + int(random.random() * (high - low + 1))
            leaves = job.leaves and job.leaves + ready - job.ready
            found.append(Arrival(ready, job.seq, job.tag, leaves))
    found.sort()
    return found


def present(
    measured: Sequence[Window], workers: WorkerChange, start: int, end: int
) -> list[Window]:
    """The windows in which slots are present under a scenario."""
    if workers.slots is not None:
        return [Window(start, end)] * workers.slots
    windows = [*measured]
    if workers.more > 0:
        windows += [Window(start, end)] * workers.more
    elif workers.more < 0:
        most = most_at_once(windows)
        windows = _thinned(windows, max(most + workers.more, 0) / most if most else 0.0)
    return _thinned(windows, workers.factor)


def _thinned(windows: Sequence[Window], factor: float) -> list[Window]:
    """So many times the windows: repeated or left out in turn."""
    found: list[Window] = []
    carry = 0.5
    for window in sorted(windows):
        carry += factor
        times = int(carry)
        carry -= times
        found += [window] * times
    return found


class _Queue:
    """The state of a queue while it is replayed."""

    def __init__(self, measured: QueueFacts, scenario: Scenario, draws: Draws) -> None:
        self._scenario = scenario
        self._draws = draws
        self._end = measured.end
        self._most_deliveries = scenario.max_deliveries or measured.deliveries_max
        self._windows = present(measured.windows, scenario.workers, measured.start, measured.end)
        self._in_flight_max = scenario.max_in_flight or len(self._windows) + 1
        self._events: list[tuple[int, int, int, int]] = []
        self._jobs: list[Arrival] = []
        self._waiting: list[tuple[int, int, int]] = []
        self._waits_since: dict[int, int] = {}
        self._deliveries: list[int] = []
        self._idle: list[int] = []
        self._runs: dict[int, tuple[int, MeasuredRun]] = {}
        self._next_claim = 0.0
        self._out = QueueHistory([], [], [], [], 0, 0, 0)
        self._done = self._dead = self._busy = 0

    def run(self, jobs: list[Arrival]) -> QueueHistory:
        """Replay everything until the end of the time."""
        self._jobs = jobs
        self._deliveries = [0] * len(jobs)
        self._events = [(job.ready, _READY, number, 0) for number, job in enumerate(jobs)]
        self._events += [(w.start, _FREE, slot, 0) for slot, w in enumerate(self._windows)]
        heapify(self._events)
        while self._events and self._events[0][0] <= self._end:
            now, kind, what, _ = heappop(self._events)
            if kind == _READY:
                self._become_ready(now, what)
                self._hand_out(now, has_come=True)
            elif kind == _ENDS:
                self._end_run(now, what)
            else:
                if kind == _FREE:
                    heappush(self._idle, what)
                self._hand_out(now, has_come=False)
        return self._close()

    def _become_ready(self, now: int, number: int) -> None:
        job = self._jobs[number]
        is_first = job.tag in self._scenario.first
        # A job that waits again goes before those behind it, as in a queue.
        heappush(self._waiting, (0 if is_first else 1, job.seq, number))
        self._waits_since[number] = now
        self._out.came.append(now)

    def _hand_out(self, now: int, has_come: bool) -> None:
        """Give waiting jobs to free slots."""
        rate = self._scenario.claim_rate
        while self._waiting and self._idle and len(self._runs) < self._in_flight_max:
            if rate is not None and now < self._next_claim:
                heappush(self._events, (int(self._next_claim) + 1, _WAKE, 0, 0))
                return
            slot = heappop(self._idle)
            if self._windows[slot].end <= now:
                continue
            number = heappop(self._waiting)[2]
            if self._has_left(number, now):
                heappush(self._idle, slot)
                continue
            if rate is not None:
                self._next_claim = max(self._next_claim, now - 1000 / rate) + 1000 / rate
            self._begin(number, slot, now + (self._draws.pickup() if has_come else 0))

    def _has_left(self, number: int, now: int) -> bool:
        """Whether a job ended while it waited, as it did when it was measured."""
        leaves = self._jobs[number].leaves
        if not leaves or leaves > now or self._deliveries[number]:
            return False
        del self._waits_since[number]
        self._out.went.append(leaves)
        return True

    def _begin(self, number: int, slot: int, at: int) -> None:
        job = self._jobs[number]
        since = self._waits_since.pop(number)
        self._out.went.append(at)
        if not self._deliveries[number]:
            self._out.waits.append(at - since)
        self._deliveries[number] += 1
        run = self._draws.run(job.tag, at)
        took = round(run.took * self._scenario.run)
        if run.expired and self._scenario.lease_ms is not None:
            took = self._scenario.lease_ms
        self._runs[slot] = (number, run)
        self._busy += max(min(at + took, self._end) - at, 0)
        heappush(self._events, (at + took, _ENDS, slot, 0))

    def _end_run(self, now: int, slot: int) -> None:
        number, run = self._runs.pop(slot)
        rest = self._draws.rest(run) if self._waiting else 0
        heappush(self._events, (now + rest, _FREE, slot, 0))
        if run.result == DONE:
            self._done += 1
            self._out.whole.append(now - self._jobs[number].ready)
        elif run.result == RETRY:
            self._retry(now, number)
        else:
            self._dead += 1

    def _retry(self, now: int, number: int) -> None:
        deliveries = self._deliveries[number]
        if 0 < self._most_deliveries <= deliveries:
            self._dead += 1
            return
        delay = backoff_delay(self._scenario, deliveries)
        if delay is None:
            delay = self._draws.delay(deliveries)
        heappush(self._events, (now + delay, _READY, number, 0))

    def _close(self) -> QueueHistory:
        for number, since in self._waits_since.items():
            leaves = self._jobs[number].leaves
            if leaves and leaves <= self._end and not self._deliveries[number]:
                self._out.went.append(leaves)
            elif not self._deliveries[number]:
                self._out.waits.append(self._end - since)
        return self._out._replace(done=self._done, dead=self._dead, busy=self._busy)


def enough(runs: Mapping[str, Sequence[MeasuredRun]]) -> bool:
    """Whether there are enough runs to draw from."""
    return len(runs[""]) >= RUNS_MIN
