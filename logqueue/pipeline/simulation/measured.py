"""What a log says about one queue: its arrivals, the runs of its workers, and how many there were.

Owns: reading these facts from the tables `jobs` and `attempts`. Must not know: scenarios, chance.

Workers are seen as slots: one job in hand each. A worker that held at most three leases at a time
has three. Claims are assigned to its slots in turn, the one that is free for longest first, so that
each slot has a history of runs and rests. A slot was present while it had a job, and also while it
had none unless jobs were left waiting: a present worker takes a waiting job.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from statistics import quantiles
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

DONE: Final = 0
RETRY: Final = 1
ENDED: Final = 2
"""How a run ends: the job is done, waits again, or has ended in another way."""

UNKNOWN: Final = -1

_NEVER: Final = 1 << 62
_IDLE_RUNS_MIN: Final = 3
"""A worker with fewer runs counts as present only during them."""
_GRACE_MS: Final = 1000
_ABSENCE_MS: Final = 10_000
_GRACE_TIMES: Final = 3
"""A job is left waiting when it waits for longer than jobs do that find a free worker: so many
times their 90th percentile, and at least this long."""


class MeasuredRun(NamedTuple):
    """One lease of a job.

    Attributes:
        at: When it began, ms since the epoch.
        took: ms.
        result: `DONE`, `RETRY` or `ENDED`.
        rest: ms until its slot took the next job that was waiting; `UNKNOWN` where none was.
        expired: Whether the lease ran out.
    """

    at: int
    took: int
    result: int
    rest: int
    expired: bool


class Arrival(NamedTuple):
    """An arrival.

    Attributes:
        ready: When it could be claimed first, ms since the epoch.
        seq: Its place among those that wait.
        tag: "" for none.
        leaves: It ended at this time without a run; 0 when it did not.
    """

    ready: int
    seq: int
    tag: str
    leaves: int


class Window(NamedTuple):
    """A time in which a slot was present; ms since the epoch."""

    start: int
    end: int


class QueueHistory(NamedTuple):
    """How a queue did, measured or replayed.

    Attributes:
        waits: ms from ready to the first claim, of each job; of one that still waits, so far.
        whole: ms from ready to done.
        came, went: Times when a job began to wait and when it stopped.
        done: Jobs that were done.
        dead: Jobs that became dead letters or were rejected.
        busy: ms under leases.
    """

    waits: list[int]
    whole: list[int]
    came: list[int]
    went: list[int]
    done: int
    dead: int
    busy: int


@dataclass(frozen=True)
class QueueFacts:
    """The facts of one queue.

    Attributes:
        topic: Its name.
        start, end: Of the time that is replayed, ms since the epoch.
        jobs: By when they could be claimed.
        runs: By tag ("" for all), by when they began.
        delays: ms until a retry, by the number of the delivery that failed.
        pickups: ms from ready to claim of jobs that found a free worker.
        windows: When slots were present.
        deliveries_max: Deliveries after which jobs became dead letters; 0 when none did.
        outcome: How the queue did.
        left_out: Earlier jobs that are not replayed.
    """

    topic: str
    start: int
    end: int
    jobs: list[Arrival]
    runs: dict[str, list[MeasuredRun]]
    delays: dict[int, list[int]]
    pickups: list[int]
    windows: list[Window]
    deliveries_max: int
    outcome: QueueHistory
    left_out: int

    @property
    def slots(self) -> int:
        """The most slots that were present at a time."""
        return most_at_once(self.windows)


def measure(
    jobs: pa.Table, attempts: pa.Table, topic: str, start: int, end: int, left_out: int = 0
) -> QueueFacts:
    """The facts of a queue between two times.

    Args:
        jobs, attempts: Rows of one topic, columns as in the tables of these names; all of `start`
            to `end`, in any order.
        topic: Its name.
        start, end: ms since the epoch.
        left_out: Earlier jobs that are not in `jobs`.
    """
    rows = [row for row in _job_rows(jobs) if row["ready_at"]]
    rows = [row for row in rows if start <= row["ready_at"] <= end or _waited(row, start, end)]
    rows.sort(key=lambda row: (row["ready_at"], row["seq"]))
    leases = [row for row in _lease_rows(attempts) if start <= row["claimed_at"] <= end]
    leases.sort(key=lambda row: row["claimed_at"])
    slots = _slots(leases)
    pickups = sorted(pickup for slot in slots for pickup in slot.pickups)
    grace = max(_GRACE_MS, _GRACE_TIMES * _high(pickups))
    waiting = merged(
        (row["ready_at"] + grace, row["first_claim_at"] or row["finished_at"] or end)
        for row in rows
    )
    tags = {(row["log_id"], row["seq"]): row["tag"] or "" for row in rows}
    return QueueFacts(
        topic,
        start,
        end,
        [_job(row) for row in rows],
        _runs_by_tag(slots, tags, end),
        _delays(leases),
        pickups,
        [window for slot in slots for window in slot.windows(waiting, start, end)],
        max((row["attempts"] for row in rows if row["state"] == "dead_lettered"), default=0),
        _outcome(rows, leases, end),
        left_out,
    )


class Halves(NamedTuple):
    """The facts of the time until half of the jobs had arrived, and of the time since."""

    first: QueueFacts
    second: QueueFacts


def measure_halves(jobs: pa.Table, attempts: pa.Table, whole: QueueFacts) -> Halves:
    """The facts of both halves, from the rows that `measure` was given."""
    middle = whole.jobs[len(whole.jobs) // 2].ready if whole.jobs else whole.end
    return Halves(
        measure(jobs, attempts, whole.topic, whole.start, middle),
        measure(jobs, attempts, whole.topic, middle, whole.end),
    )


# -- rows of the tables ----------------------------------------------------------------------------


def _job_rows(jobs: pa.Table) -> list[dict[str, Any]]:
    names = ["log_id", "seq", "tag", "ready_at", "first_claim_at", "finished_at", "state"]
    return _rows(jobs, [*names, "attempts"], ("ready_at", "first_claim_at", "finished_at"))


def _lease_rows(attempts: pa.Table) -> list[dict[str, Any]]:
    """Leases that were worked on: one handed back unstarted is none."""
    names = ["log_id", "job_seq", "worker", "attempt", "outcome", "reason", "tag"]
    times = ("ready_at", "claimed_at", "ended_at")
    rows = _rows(attempts, [*names, *times], times)
    return [row for row in rows if row["reason"] != "hand_back" and row["claimed_at"]]


def _rows(table: pa.Table, names: list[str], times: Iterable[str]) -> list[dict[str, Any]]:
    """Rows with times as ms since the epoch, 0 for none."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {}
    for name in names:
        column = table[name]
        if name in times:
            column = column.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
            column = column.fill_null(0)
        columns[name] = column.to_pylist()
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _waited(row: dict[str, Any], start: int, end: int) -> bool:
    """Whether a job that was ready earlier still waited at the start."""
    left = row["first_claim_at"] or row["finished_at"]
    return row["ready_at"] <= end and (not left or left >= start)


def _job(row: dict[str, Any]) -> Arrival:
    leaves = row["finished_at"] if not row["attempts"] else 0
    return Arrival(row["ready_at"], row["seq"], row["tag"] or "", leaves)


# -- slots -----------------------------------------------------------------------------------------


class _SlotHistory:
    """One place of a worker for a job in hand."""

    def __init__(self) -> None:
        self.leases: list[dict[str, Any]] = []
        self.rests: list[int] = []
        self.pickups: list[int] = []

    def take(self, lease: dict[str, Any]) -> None:
        """The next lease of the slot."""
        if self.leases:
            freed = self.leases[-1]["ended_at"]
            waited = lease["claimed_at"] - max(lease["ready_at"], freed)
            if lease["ready_at"] > freed:
                self.rests.append(UNKNOWN)
                self.pickups.append(max(waited, 0))
            else:
                self.rests.append(max(waited, 0))
        self.leases.append(lease)

    def long(self) -> int:
        """A rest longer than this, in ms, was an absence."""
        return max(_ABSENCE_MS, _GRACE_TIMES * _high(sorted(r for r in self.rests if r >= 0)))

    def gaps(self) -> list[tuple[int, int]]:
        """Times between its leases."""
        times = [(lease["claimed_at"], lease["ended_at"] or _NEVER) for lease in self.leases]
        return [(end, start) for (_, end), (start, _) in pairwise(times)]

    def windows(self, waiting: Sequence[Window], start: int, end: int) -> list[Window]:
        """When the slot was present, up to where jobs were left waiting."""
        first, last = self.leases[0]["claimed_at"], self.leases[-1]["ended_at"] or end
        if len(self.leases) < _IDLE_RUNS_MIN:
            return [Window(first, min(last, end))]
        begins = _last_end_before(waiting, first, start)
        long = self.long()
        found = []
        for gap_from, gap_to in self.gaps():
            if _left_waiting(waiting, gap_from, gap_to) > long:
                found.append(Window(begins, _first_start_after(waiting, gap_from, gap_to)))
                begins = _last_end_before(waiting, gap_to, gap_from)
        found.append(Window(begins, min(_first_start_after(waiting, last, end), end)))
        return [window for window in found if window.end > window.start]


def _slots(leases: Sequence[dict[str, Any]]) -> list[_SlotHistory]:
    """The slots of all workers, with their leases in order."""
    free: dict[str, list[tuple[int, int]]] = {}
    slots: list[_SlotHistory] = []
    for lease in leases:
        mine = free.setdefault(lease["worker"] or "", [])
        if mine and mine[0][0] <= lease["claimed_at"]:
            number = heappop(mine)[1]
        else:
            number = len(slots)
            slots.append(_SlotHistory())
        slots[number].take(lease)
        heappush(mine, (lease["ended_at"] or _NEVER, number))
    return slots


def merged(spans: Iterable[tuple[int, int]]) -> list[Window]:
    """Spans as windows that neither touch nor overlap, in order; empty ones are left out."""
    found: list[Window] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if found and start <= found[-1].end:
            found[-1] = Window(found[-1].start, max(found[-1].end, end))
        else:
            found.append(Window(start, end))
    return found


def _left_waiting(waiting: Sequence[Window], start: int, end: int) -> int:
    """For how long jobs were left waiting between two times, ms; the first span only."""
    place = bisect_right(waiting, start, key=lambda window: window.end)
    if place == len(waiting) or waiting[place].start >= end:
        return 0
    return min(waiting[place].end, end) - max(waiting[place].start, start)


def _first_start_after(waiting: Sequence[Window], at: int, latest: int) -> int:
    place = bisect_right(waiting, at, key=lambda window: window.end)
    if place == len(waiting):
        return latest
    return min(max(waiting[place].start, at), latest)


def _last_end_before(waiting: Sequence[Window], at: int, earliest: int) -> int:
    place = bisect_left(waiting, at, key=lambda window: window.start)
    if place == 0:
        return earliest
    return max(min(waiting[place - 1].end, at), earliest)


def most_at_once(windows: Iterable[Window]) -> int:
    """The most windows that cover one moment."""
    changes = sorted(
        change for window in windows for change in ((window.start, 1), (window.end, -1))
    )
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


# -- runs ------------------------------------------------------------------------------------------


def _runs_by_tag(
    slots: Sequence[_SlotHistory], tags: dict[tuple[str, int], str], end: int
) -> dict[str, list[MeasuredRun]]:
    found: dict[str, list[MeasuredRun]] = {"": []}
    for slot in slots:
        long = slot.long()
        for lease, rest in zip(slot.leases, [*slot.rests, UNKNOWN], strict=True):
            if not 0 < lease["ended_at"] <= end:
                continue
            run = MeasuredRun(
                lease["claimed_at"],
                max(lease["ended_at"] - lease["claimed_at"], 0),
                _result(lease["outcome"]),
                UNKNOWN if rest > long else rest,
                lease["outcome"] in ("expired", "lost"),
            )
            found[""].append(run)
            if tag := tags.get((lease["log_id"], lease["job_seq"]), lease["tag"] or ""):
                found.setdefault(tag, []).append(run)
    for runs in found.values():
        runs.sort()
    return found


def _result(outcome: str) -> int:
    if outcome == "acked":
        return DONE
    # A dead letter is a run that failed once too often: how often is a limit of its own.
    return RETRY if outcome in ("released", "expired", "lost", "dead_lettered") else ENDED


def _delays(leases: Sequence[dict[str, Any]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    ended: dict[tuple[str, int], tuple[int, int]] = {}
    for lease in leases:
        job = (lease["log_id"], lease["job_seq"])
        before = ended.get(job)
        if before is not None and before[0]:
            found.setdefault(before[1], []).append(max(lease["ready_at"] - before[0], 0))
        ended[job] = (lease["ended_at"], lease["attempt"])
    return found


def _high(values: Sequence[int]) -> int:
    """The 90th percentile of sorted values; 0 for none."""
    if len(values) < 2:
        return values[0] if values else 0
    return round(quantiles(values, n=10, method="inclusive")[8])


def _outcome(
    rows: Sequence[dict[str, Any]], leases: Sequence[dict[str, Any]], end: int
) -> QueueHistory:
    waits, came, went = [], [], []
    for row in rows:
        if not row["first_claim_at"] and row["finished_at"]:
            continue
        waits.append(max((row["first_claim_at"] or end) - row["ready_at"], 0))
    firsts = {(lease["log_id"], lease["job_seq"]): lease for lease in reversed(leases)}
    for row in rows:
        came.append(row["ready_at"])
        left = row["first_claim_at"] or row["finished_at"]
        if left:
            went.append(left)
    for lease in leases:
        if firsts[lease["log_id"], lease["job_seq"]] is not lease:
            came.append(lease["ready_at"])
            went.append(lease["claimed_at"])
    done = [row for row in rows if row["state"] == "acked"]
    return QueueHistory(
        waits,
        [row["finished_at"] - row["ready_at"] for row in done],
        came,
        went,
        len(done),
        sum(row["state"] in ("dead_lettered", "rejected") for row in rows),
        sum((lease["ended_at"] or end) - lease["claimed_at"] for lease in leases),
    )
