"""The rules about groups that go one job at a time, over all jobs of a queue at once.

Owns: who was in which group when, and which claims break the order of a group. Must not know:
engines, files, where rows come from.

A job is in a group from its append, or from the keyed write that put it there, until it ends or
another write moves it. The first job of a group is the live one with the lowest seq, in whatever
state; so a claim is right if no job of its group with a lower seq was there. Jobs of a group come
in the order of their seqs, so that a lower seq needs no time of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from logqueue.pipeline.audit.findings import FINDINGS_PER_RULE_MAX, Finding, Rule, Severity
from logqueue.pipeline.audit.group_rows import NO_GROUP
from logqueue.pipeline.audit.history import Instance
from logqueue.pipeline.audit.job_rows import Ints
from logqueue.pipeline.audit.queue_events import FOREVER, QueueEvents
from logqueue.segments.ranges import Ranges

ORDER, IN_FLIGHT = "group_order", "group_in_flight"
RULES: Final = (
    Rule(ORDER, "in a `fifo` queue no job is claimed while an earlier one of its group is there"),
    Rule(IN_FLIGHT, "in a `fifo` queue no two jobs of a group are leased at a time"),
)


@dataclass(frozen=True, slots=True)
class FifoQueue:
    """What the rules need to know of a queue.

    Attributes:
        ranges: Of orders in which it was `fifo`, the end of a range not included.
        durable: Whether its leases always were.
        regrouped: By seq: (order, group) of writes that put a job into a group.
        lost: Orders that are in no log at hand.
        set_back: (order, ms) of transactions before which the clock was set back.
    """

    ranges: Sequence[tuple[int, int]]
    durable: bool
    regrouped: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    lost: Ranges = field(default_factory=list)
    set_back: Sequence[tuple[int, int]] = ()


def fifo_ranges(
    inst: Instance, times: Callable[[Instance, Callable[[Any], bool]], list[tuple[int, int]]]
) -> list[tuple[int, int]]:
    """Ranges of orders in which a queue was `fifo`."""

    def is_fifo(config: Any) -> bool:
        return config.groups is not None and config.groups.mode == "fifo"

    if inst.was_in_memory or not any(is_fifo(config) for _, config in inst.configs):
        return []
    return times(inst, is_fifo)


def fifo_queue(
    inst: Instance, ranges: Sequence[tuple[int, int]], lost: Ranges,
    set_back: Sequence[tuple[int, int]],
) -> FifoQueue:  # fmt: skip
    """What the rules need to know of a queue."""
    durable = all(config.leases_durable for _, config in inst.configs)
    return FifoQueue(ranges, durable, inst.regrouped, lost, set_back)


@dataclass(frozen=True, slots=True)
class _Members:
    """Who was in a group: ascending by group, then by seq, then by `since`. `since` is an order,
    0 for its append; `until` is the first order in which it was not in it."""

    group: Ints
    seq: Ints
    since: Ints
    until: Ints


def _members(seqs: Ints, groups: Ints, events: QueueEvents, queue: FifoQueue) -> _Members:
    moves: dict[int, dict[int, int]] = {}
    rows = np.flatnonzero(events.among("replaced"))
    known = np.isin(events.seq[rows], seqs)
    for row, has_group in zip(rows.tolist(), known.tolist(), strict=True):
        job = int(events.seq[row])
        if has_group or job in queue.regrouped:
            moves.setdefault(job, {})[int(events.lseq[row])] = NO_GROUP
    for job, regrouped in queue.regrouped.items():
        moves.setdefault(job, {}).update(regrouped)
    moved = np.array(sorted(moves), np.int64)
    stays = ~np.isin(seqs, moved)
    first = dict(zip(seqs[~stays].tolist(), groups[~stays].tolist(), strict=True))
    more: list[tuple[int, int, int, int]] = []
    ends = dict(zip(moved.tolist(), events.ends_of(moved).tolist(), strict=True))
    for job, changes in moves.items():
        since, into = 0, first.get(job, NO_GROUP)
        if into in changes.values():
            into = NO_GROUP  # The record that is left may have the group of a later write.
        for at, to in sorted(changes.items()):
            if to != into:
                more.append((into, job, since, at))
                since, into = at, to
        more.append((into, job, since, FOREVER))
    pieces = np.array(
        [(g, job, a, min(b, ends[job])) for g, job, a, b in more if g != NO_GROUP],
        np.int64,
    ).reshape(-1, 4)
    kept = seqs[stays]
    group = np.concatenate([groups[stays], pieces[:, 0]])
    seq = np.concatenate([kept, pieces[:, 1]])
    sinces = np.concatenate([np.zeros(len(kept), np.int64), pieces[:, 2]])
    until = np.concatenate([events.ends_of(kept), pieces[:, 3]])
    places = np.lexsort((sinces, seq, group))
    return _Members(group[places], seq[places], sinces[places], until[places])


class _Claims:
    """The claims of jobs in groups, while the queue was `fifo`, by group and then by order.

    Attributes:
        row: Of the event.
        member: Place in the members.
    """

    def __init__(self, events: QueueEvents, members: _Members, queue: FifoQueue) -> None:
        rows = np.flatnonzero(events.among("claimed"))
        orders = events.lseq[rows]
        within = np.zeros(len(rows), np.bool_)
        for since, until in queue.ranges:
            within |= (since < orders) & (orders < until)
        rows = rows[within]
        seqs, orders = events.seq[rows], events.lseq[rows]
        by_seq = np.lexsort((members.since, members.seq))
        # The last membership of the job that began before the claim.
        ordered_seq, ordered_since = members.seq[by_seq], members.since[by_seq]
        end = np.searchsorted(ordered_seq, seqs, "right")
        begin = np.searchsorted(ordered_seq, seqs, "left")
        place = end - 1
        several = np.flatnonzero(end - begin > 1)
        for claim in several.tolist():
            part = ordered_since[begin[claim] : end[claim]]
            place[claim] = begin[claim] + np.searchsorted(part, orders[claim], "left") - 1
        has = (end > begin) & (place >= begin)
        member = by_seq[place[has]]
        rows, orders = rows[has], orders[has]
        is_in = (members.since[member] < orders) & (orders <= members.until[member])
        member, rows, orders = member[is_in], rows[is_in], orders[is_in]
        by_group = np.lexsort((orders, members.group[member]))
        self.member, self.row = member[by_group], rows[by_group]


def findings(
    topic: str, jobs: pa.Table, events: QueueEvents, queue: FifoQueue
) -> Iterator[Finding]:
    """The claims of one queue that break the order of their groups.

    Args:
        topic: Its name.
        jobs: As `group_rows.GROUPED`, of this queue.
        events: What happened to its jobs.
        queue: What is known of it.
    """
    seqs, groups = (jobs.column(name).to_numpy() for name in ("seq", "hash"))
    members = _members(seqs, groups, events, queue)
    claims = _Claims(events, members, queue)
    if not len(claims.row):
        return
    for claim, other in _out_of_order(members, claims, events):
        yield _finding(ORDER, topic, events, int(claims.row[claim]), other, queue)
    for row, other in islice(_overlapping(members, claims, events, queue), FINDINGS_PER_RULE_MAX):
        yield _finding(IN_FLIGHT, topic, events, row, other, queue)


def _out_of_order(
    members: _Members, claims: _Claims, events: QueueEvents
) -> Iterator[tuple[int, int]]:
    """Claims, and the earlier job that was there."""
    orders = events.lseq[claims.row]
    is_start = np.ones(len(members.group), np.bool_)
    is_start[1:] = members.group[1:] != members.group[:-1]
    number = np.cumsum(is_start)
    starts = np.flatnonzero(is_start)[number - 1]
    # A running maximum within each group: numbers of groups go up, so they keep groups apart.
    ranked = np.unique(np.concatenate([[0], members.until, orders]))
    base = number * (len(ranked) + 1)
    until = np.where(members.since == 0, members.until, 0)
    highest = np.maximum.accumulate(base + np.searchsorted(ranked, until))
    before = np.where(is_start, 0, np.append(0, highest[:-1]) - base)
    wrong = before[claims.member] > np.searchsorted(ranked, orders)
    late = np.flatnonzero(members.since > 0)
    by_group = members.group[claims.member]
    for place in late.tolist():
        group, seq = members.group[place], members.seq[place]
        low, high = (int(np.searchsorted(by_group, group, side)) for side in ("left", "right"))
        part = slice(low, high)
        wrong[part] |= (
            (members.seq[claims.member[part]] > seq)
            & (members.since[place] < orders[part])
            & (orders[part] < members.until[place])
        )
    for claim in np.flatnonzero(wrong)[:FINDINGS_PER_RULE_MAX].tolist():
        member, order = int(claims.member[claim]), int(orders[claim])
        part = slice(int(starts[member]), member)
        there = (
            (members.since[part] < order)
            & (order < members.until[part])
            & (members.seq[part] < members.seq[member])
        )
        yield claim, int(members.seq[part][np.argmax(there)])


def _overlapping(
    members: _Members, claims: _Claims, events: QueueEvents, queue: FifoQueue
) -> Iterator[tuple[int, int]]:
    """Rows of claims, and the job of the same group that was under a lease."""
    rows, groups = claims.row, members.group[claims.member]
    seqs, orders = events.seq[rows], events.lseq[rows]
    leaves = members.until[claims.member]
    frees = np.minimum(events.frees_after(rows), leaves)
    pairs = (groups[1:] == groups[:-1]) & (seqs[1:] != seqs[:-1]) & (frees[:-1] > orders[1:])
    for place in np.flatnonzero(pairs).tolist():
        before, row = int(rows[place]), int(rows[place + 1])
        is_restarted = not queue.durable and events.lease_ms[row] > events.at[before]
        back = sum(ms for order, ms in queue.set_back if orders[place] < order <= orders[place + 1])
        lasts = events.deadline_at(before, int(events.lseq[row])) >= int(events.at[row]) + back
        if lasts and not is_restarted:
            yield row, int(seqs[place])


def _finding(
    rule: str, topic: str, events: QueueEvents, row: int, other: int, queue: FifoQueue
) -> Finding:
    seq, order = int(events.seq[row]), int(events.lseq[row])
    text = "was there" if rule == ORDER else "was under a lease"
    detail = f"job {seq} was claimed while job {other} of its group {text}"
    severity: Severity = "error"
    if any(first < order for first, _ in queue.lost):
        severity = "info"
        detail += "; transactions before that are in no log, which may have ended it"
    evidence = {"order": order, "at_ms": int(events.at[row]), "other": other}
    return Finding(rule, severity, topic, seq, seq, detail, evidence)
