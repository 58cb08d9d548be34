"""Rules about the life of jobs, and the account of them: one bucket of rows at a time.

Owns: which events of a bucket break which rule, and what became of its jobs. Must not know:
engines, files, how findings are worded. Runs in any task, on whole columns.

Some things look wrong and are not. A claim while an earlier lease lasts is allowed after a restart
of a queue whose leases are not durable: lease numbers begin at the clock (in ms) * 65 536 at each
start, so a number that is higher than the time of the claim before it means a restart. Frames of
the leases log may be lost with its unsynced tail; then orders are missing, and whatever could have
been in them is not reported as missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from logqueue.pipeline.audit.job_rows import (
    IS_UNCOUNTED,
    IS_WAITED,
    KIND,
    KINDS,
    NONE,
    PRESENT,
    Ints,
    Mask,
    codes_of,
)
from logqueue.pipeline.audit.rules import (
    ARCHIVED,
    BY_HOLDER,
    CLAIM_OPEN,
    DELIVERIES,
    ENDS,
    HELD,
    IN_TIME,
    ONE_END,
    ONE_LEASE,
    PAUSED,
    WITH_LEASE,
)
from logqueue.segments.ranges import Ranges

_LEAVES_LEASE: Final = ("expired", "deleted")
"""Ends that take the record and leave the lease to its holder, who may still settle it."""
_VOIDS_LEASE: Final = ("released", "held", *(end for end in ENDS if end not in _LEAVES_LEASE))

FLOOR_SHIFT: Final = 44
"""Bits of a seq in the key of a job."""


@dataclass(frozen=True, slots=True)
class AuditedQueue:
    """What the rules need to know of a queue.

    Attributes:
        durable: Whether its leases always were.
        soft: Some of its lease events may be in no log.
        deliveries_max: 0 for no bound.
        paused, archived: Ranges of orders, the end of a range not included.
    """

    durable: bool = False
    soft: bool = True
    deliveries_max: int = 0
    paused: Sequence[tuple[int, int]] = ()
    archived: Sequence[tuple[int, int]] = ()


UNKNOWN: Final = AuditedQueue()


@dataclass(frozen=True, slots=True)
class JobContext:
    """What the rules need to know beyond the rows of a bucket.

    Attributes:
        facts: By log_id.
        lost: Orders that are in no log at hand.
        set_back: (order, ms) of transactions before which the clock was set back, ascending: jobs
            that lived through one are given as much time.
        floors: By log_id, (floor, order of the transaction that moved it up).
        sources: (kind of copy, name of the queue) of the copies to compare.
    """

    facts: Mapping[str, AuditedQueue] = field(default_factory=dict)
    lost: Ranges = field(default_factory=list)
    set_back: Sequence[tuple[int, int]] = ()
    floors: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    sources: frozenset[tuple[str, str]] = frozenset()


class BucketColumns:
    """The events of a bucket in the order of their jobs, as arrays.

    Attributes:
        log: Code of the log_id of each row; `ids` and `names` have the text by code.
        start: The first row of the job that each row is of.
        broken: The rules each row breaks, as bits. Filled in by `judge`.
        soft: Whether what is missing may have been in lost lease events.
        holder: Code of the worker that held the job before the row.
        until: Until when the lease lasted, or the job had to wait, before the row.
    """

    def __init__(self, table: pa.Table, ids: list[str], names: list[str], log: Ints) -> None:
        """Sort the rows of events and delays.

        Args:
            table: `job_rows.ROWS`, of which `log` has the codes of the log_ids.
        """
        self.ids, self.names = ids, names
        seq, lseq, kind = (_numbers(table, name) for name in ("seq", "lseq", "kind"))
        key = log.astype(np.int64) << FLOOR_SHIFT | seq
        order = _sorted(key, lseq, kind)
        self.key, self.lseq, self.kind = key[order], lseq[order], kind[order]
        self.log = log[order]
        self.seq = seq[order]
        self.at, self.due, self.lease_ms, self.reason = (
            _numbers(table, name)[order] for name in ("at", "due", "lease_ms", "reason")
        )
        workers, self.workers = codes_of(table.column("worker"))
        self.worker = workers[order]
        self.count = len(order)
        is_first = np.ones(self.count, np.bool_)
        is_first[1:] = self.key[1:] != self.key[:-1]
        self.firsts: Ints = np.flatnonzero(is_first)
        self._job = np.cumsum(is_first) - 1
        self.start: Ints = self.firsts[self._job] if self.count else np.zeros(0, np.int64)
        self._rows = np.arange(self.count)
        self.broken = np.zeros(self.count, np.int16)
        self.soft = np.zeros(self.count, np.bool_)
        self.holder = self.until = np.full(self.count, NONE, np.int64)

    def among(self, *names: str) -> Mask:
        """Rows of some kinds."""
        chosen = np.zeros(len(KINDS), np.bool_)
        chosen[[KIND[name] for name in names]] = True
        found: Mask = chosen[self.kind]
        return found

    def before(self, rows: Mask) -> Ints:
        """For each row, the last of some rows of the same job that comes before it, or -1."""
        last = np.maximum.accumulate(np.where(rows, self._rows, -1)) if self.count else self._rows
        found = np.full(self.count, -1, np.int64)
        found[1:] = last[:-1]
        found[found < self.start] = -1
        return found

    def up_to(self, rows: Mask) -> Ints:
        """As `before`; the row itself may be it."""
        last = np.maximum.accumulate(np.where(rows, self._rows, -1)) if self.count else self._rows
        return np.where(last < self.start, -1, last)

    def at_of(self, places: Ints, values: Any, default: int = NONE) -> Any:
        """The values at some places; a default where there is no place."""
        if not self.count:
            return values
        return np.where(places >= 0, values[places], default)

    def sums(self, values: Any) -> Ints:
        """Running sums within each job, the row itself included."""
        total = np.cumsum(values)
        if not self.count:
            return total
        base = total[self.start] - np.asarray(values, np.int64)[self.start]
        found: Ints = total - base
        return found


def _numbers(table: pa.Table, name: str) -> Ints:
    column = table.column(name).to_numpy()
    found: Ints = column.astype(np.int64, copy=False)
    return found


def _sorted(key: Ints, lseq: Ints, kind: Ints) -> Ints:
    """By job, then by order, then by kind."""
    if len(lseq) and (lseq[1:] >= lseq[:-1]).all():
        ties = (lseq[1:] == lseq[:-1]) & (key[1:] == key[:-1])
        if not ties.any():
            return np.argsort(key, kind="stable")
    return np.lexsort((kind, lseq, key))


def split_rows(table: pa.Table) -> tuple[BucketColumns, pa.Table, pa.Table]:
    """Rows of a bucket: events and delays, ranges of records, copies."""
    kinds = table.column("kind").to_numpy()
    log, ids = codes_of(table.column("log_id"))
    topic, topics = codes_of(table.column("topic"))
    names = [""] * len(ids)
    is_copy = kinds > PRESENT
    if len(ids):
        codes, first = np.unique(np.where(is_copy, -1, log), return_index=True)
        for code, row in zip(codes.tolist(), first.tolist(), strict=True):
            if code >= 0:
                names[code] = topics[topic[row]]
    of_jobs = kinds < PRESENT
    # Floors are known to the context. They do not belong to the life of the job that they reach to.
    of_jobs &= kinds != KIND["trimmed"]
    events = table if of_jobs.all() else table.filter(pa.array(of_jobs))
    columns = BucketColumns(events, ids, names, log[of_jobs].astype(np.int64))
    return columns, table.filter(pa.array(kinds == PRESENT)), table.filter(pa.array(is_copy))


def judge(jobs: BucketColumns, context: JobContext) -> None:
    """Mark the events that break a rule."""
    claimed, released = jobs.among("claimed"), jobs.among("released")
    is_end = jobs.among(*ENDS)
    waited, uncounted = jobs.reason == IS_WAITED, jobs.reason == IS_UNCOUNTED
    durable, soft, limit = _facts_of(jobs, context)
    lease = _LeaseBefore(jobs, claimed, waited)
    restarted = claimed & (
        jobs.lease_ms > jobs.at_of(jobs.before(claimed), jobs.at, np.iinfo(np.int64).max)
    )
    forgotten = restarted & ~durable
    ended = jobs.sums(is_end) - is_end > 0
    for_good = is_end & ~jobs.among(*_LEAVES_LEASE)
    orphan_ack = jobs.among("acked") & (jobs.sums(for_good) - for_good == 0) & lease.lasts
    order_before = _order_before(jobs)
    back = _set_back_within(context.set_back, order_before, jobs.lseq)
    late = lease.has_deadline & (lease.deadline + back < jobs.at)
    settles = jobs.among("acked", "extended", "rejected") | (released & ~waited)
    is_second_end = ended & is_end & ~orphan_ack
    holds = jobs.among("held", "unheld", "replaced")
    conditions = {
        CLAIM_OPEN: claimed & ended,
        ONE_LEASE: claimed & lease.lasts & lease.has_deadline
        & (lease.deadline >= jobs.at + back) & ~forgotten,
        WITH_LEASE: settles & ~is_second_end & (~lease.lasts | late),
        BY_HOLDER: settles & lease.lasts & lease.has_deadline & ~late & lease.is_of_another,
        ONE_END: ended & (is_second_end | holds),
        DELIVERIES: claimed & (limit > 0) & (_given(jobs, claimed, uncounted, restarted) > limit),
        IN_TIME: claimed & (_ready_from(jobs, claimed, released) > jobs.at + back) & ~forgotten,
        HELD: claimed & _is_held(jobs),
        PAUSED: claimed & _within(jobs, {id: facts.paused for id, facts in context.facts.items()}),
    }  # fmt: skip
    for place, condition in conditions.items():
        jobs.broken |= (condition.astype(np.int16) << place).astype(np.int16)
    gone = _past_floors(jobs, context)
    jobs.broken |= np.where(gone & claimed, 1 << CLAIM_OPEN, 0).astype(np.int16)
    other_end = gone & is_end & ~jobs.among("acked")
    jobs.broken |= np.where(other_end, 1 << ONE_END, 0).astype(np.int16)
    jobs.soft = (soft | _any_lost(context.lost, order_before, jobs.lseq)) & ~durable
    jobs.holder = lease.holder
    jobs.until = np.where(
        lease.has_deadline, lease.deadline, _ready_from(jobs, claimed, released, NONE)
    )


class _LeaseBefore:
    """Of each row: the lease that the job was under before it.

    Attributes:
        lasts: Whether it was under one, whose time may be over.
        deadline: `NONE` where there is none.
        is_of_another: Whether the row is of another worker than the one that held it.
    """

    def __init__(self, jobs: BucketColumns, claimed: Mask, waited: Mask) -> None:
        voids = jobs.among(*_VOIDS_LEASE) & ~waited
        self.lasts: Mask = jobs.at_of(jobs.before(claimed | voids), claimed, 0).astype(np.bool_)
        dated = jobs.among("claimed", "extended") & (jobs.due != NONE)
        self.deadline: Ints = jobs.at_of(jobs.before(dated), jobs.due)
        self.has_deadline: Mask = self.deadline != NONE
        holder = self.holder = jobs.at_of(jobs.before(claimed & (jobs.worker >= 0)), jobs.worker)
        self.is_of_another: Mask = (jobs.worker >= 0) & (holder >= 0) & (jobs.worker != holder)


def _facts_of(jobs: BucketColumns, context: JobContext) -> tuple[Mask, Mask, Ints]:
    facts = [context.facts.get(id, UNKNOWN) for id in jobs.ids] or [UNKNOWN]
    durable = np.array([known.durable for known in facts], np.bool_)
    soft = np.array([known.soft for known in facts], np.bool_)
    limit = np.array([known.deliveries_max for known in facts], np.int64)
    return durable[jobs.log], soft[jobs.log], limit[jobs.log]


def _order_before(jobs: BucketColumns) -> Ints:
    found = np.zeros(jobs.count, np.int64)
    found[1:] = jobs.lseq[:-1]
    found[jobs.firsts] = 0
    return found


def _set_back_within(steps: Sequence[tuple[int, int]], after: Ints, until: Ints) -> Ints:
    """How far the clock was set back between two orders, the second one included."""
    if not steps:
        return np.zeros(len(after), np.int64)
    orders = np.array([order for order, _ in steps], np.int64)
    sums = np.concatenate([[0], np.cumsum([ms for _, ms in steps])])
    found: Ints = (
        sums[np.searchsorted(orders, until, "right")]
        - sums[np.searchsorted(orders, after, "right")]
    )
    return found


def _any_lost(lost: Ranges, after: Ints, before: Ints) -> Mask:
    """Whether there is a lost order between two others."""
    if not lost:
        return np.zeros(len(after), np.bool_)
    firsts = np.array([first for first, _ in lost] + [np.iinfo(np.int64).max], np.int64)
    lasts = np.array([last for _, last in lost], np.int64)
    found: Mask = firsts[np.searchsorted(lasts, after, "right")] < before
    return found


def _given(jobs: BucketColumns, claimed: Mask, uncounted: Mask, restarted: Mask) -> Ints:
    """How many deliveries of the job count, each row included."""
    given = jobs.sums(claimed.astype(np.int64) - (uncounted & ~claimed))
    unheld = jobs.among("unheld")
    base = np.where(unheld, given, given - 1)
    found: Ints = given - jobs.at_of(jobs.up_to(unheld | restarted), base, 0)
    return found


def _ready_from(jobs: BucketColumns, claimed: Mask, released: Mask, default: int = 0) -> Ints:
    delays = jobs.among("delay")
    frees = claimed | jobs.among("unheld", "replaced")
    due = np.where(delays | released, np.maximum(jobs.due, 0), 0)
    found: Ints = jobs.at_of(jobs.before(delays | released | frees), due, default)
    return found


def _is_held(jobs: BucketColumns) -> Mask:
    held = jobs.among("held")
    found: Mask = jobs.at_of(jobs.before(held | jobs.among("unheld")), held, 0).astype(np.bool_)
    return found


def _within(jobs: BucketColumns, ranges: Mapping[str, Sequence[tuple[int, int]]]) -> Mask:
    """Whether the order of a row is in one of the ranges of its log_id."""
    found = np.zeros(jobs.count, np.bool_)
    for code, id in enumerate(jobs.ids):
        parts = ranges.get(id)
        if not parts:
            continue
        low, high = np.searchsorted(jobs.log, (code, code + 1))
        orders = jobs.lseq[low:high]
        for since, until in parts:
            found[low:high] |= (since < orders) & (orders < until)
    return found


def _past_floors(jobs: BucketColumns, context: JobContext) -> Mask:
    """Whether a floor had gone past the job before the row."""
    found = np.zeros(jobs.count, np.bool_)
    for code, id in enumerate(jobs.ids):
        moves = sorted(context.floors.get(id, ()))
        low, high = np.searchsorted(jobs.log, (code, code + 1))
        if not moves or low == high:
            continue
        floors = np.array([floor for floor, _ in moves], np.int64)
        orders = np.array([order for _, order in moves] + [np.iinfo(np.int64).max], np.int64)
        first = np.minimum.accumulate(orders[::-1])[::-1]
        found[low:high] = (
            first[np.searchsorted(floors, jobs.seq[low:high], "left")] < jobs.lseq[low:high]
        )
    return found


def evidence_of(jobs: BucketColumns, row: int) -> dict[str, Any]:
    """What is needed to find an event and to see what is wrong with it."""
    found = {
        "order": int(jobs.lseq[row]),
        "event": KINDS[jobs.kind[row]],
        "at_ms": int(jobs.at[row]),
        "worker": _name(jobs.workers, jobs.worker[row]),
        "holder": _name(jobs.workers, jobs.holder[row]),
        "due_ms": int(jobs.until[row]) if jobs.until[row] != NONE else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _name(names: Sequence[str], code: int) -> str | None:
    return names[code] if code >= 0 else None


def kept_copies(jobs: BucketColumns, context: JobContext) -> Mask:
    """Rows of ends of which the archive of the queue must have a copy."""
    is_end = jobs.among(*ENDS)
    is_first_end = is_end & (jobs.sums(is_end) == 1)
    archived = {id: facts.archived for id, facts in context.facts.items()}
    found: Mask = jobs.among(*ARCHIVED) & is_first_end & _within(jobs, archived)
    return found
