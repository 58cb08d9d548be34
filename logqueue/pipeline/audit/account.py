"""What became of every job: how many ended how, and whether that adds up.

Owns: the verdicts on all buckets put together, and what they mean. Must not know: engines, files,
rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logqueue.pipeline.audit.findings import Finding, Severity
from logqueue.pipeline.audit.history import Instance
from logqueue.pipeline.audit.rules import ENDS, LEASE_DETAILS, LEASE_RULES, STATES
from logqueue.pipeline.audit.verdicts import BrokenRange, CopiesVerdict, QueueVerdict, Verdict
from logqueue.segments import ranges as seq_ranges

RANGES_MAX = 5000
"""Ranges of one rule and queue that are kept one by one, before neighbours are joined."""


@dataclass(slots=True)
class QueueTotals:
    """All that is known of the jobs of one queue.

    Attributes:
        events: How many there are of it.
        counts: Jobs by state, and `appended` and `stray`.
        ended_twice: Jobs with an error of the rule `one_end`.
        unknown: (first, last, may be lost) of jobs that are known from events only.
        floors: (floor, order).
        broken: By place of the rule and whether it is soft.
    """

    log_id: str
    topic: str
    events: int = 0
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("appended", *STATES, "stray"), 0)
    )
    ended_twice: int = 0
    unknown: list[tuple[int, int, bool]] = field(default_factory=list)
    floors: list[tuple[int, int]] = field(default_factory=list)
    broken: dict[tuple[int, bool], list[BrokenRange]] = field(default_factory=dict)

    def add(self, verdict: QueueVerdict) -> None:
        """What one bucket says."""
        self.events += verdict.events
        counts = self.counts
        for name, jobs in zip(ENDS, verdict.ends, strict=True):
            counts[name] += jobs
        for name in ("appended", "trimmed", "open", "stray"):
            counts[name] += getattr(verdict, name)
        self.ended_twice += verdict.ended_twice
        self.unknown += verdict.unknown
        self.floors += verdict.floors
        for found in verdict.broken:
            known = self.broken.setdefault((found.place, found.is_soft), [])
            known.append(found)
            if len(known) > RANGES_MAX:
                known[:] = _fewest(known)


def _fewest(ranges: list[BrokenRange]) -> list[BrokenRange]:
    """Neighbours as one; of too many, the last ones become one that counts them."""
    ranges.sort(key=lambda found: (found.first, found.last))
    joined: list[BrokenRange] = []
    for found in ranges:
        before = joined[-1] if joined else None
        if before and not before.more and not found.more and found.first == before.last + 1:
            before.last, before.jobs = found.last, before.jobs + found.jobs
        else:
            joined.append(found)
    kept, rest = joined[: RANGES_MAX // 2], joined[RANGES_MAX // 2 :]
    if not rest:
        return kept
    more = sum(found.more or 1 for found in rest)
    jobs = sum(found.jobs for found in rest)
    last = max(found.last for found in rest)
    first = rest[0]
    return [*kept, BrokenRange(first.place, False, first.first, last, jobs, more, {})]


def gathered(verdicts: Iterable[Verdict]) -> tuple[dict[str, QueueTotals], list[CopiesVerdict]]:
    """What all buckets say: by log_id, and about copies."""
    queues: dict[str, QueueTotals] = {}
    copies: dict[tuple[str, str], CopiesVerdict] = {}
    for verdict in verdicts:
        for queue in verdict.queues:
            totals = queues.setdefault(queue.log_id, QueueTotals(queue.log_id, queue.topic))
            totals.add(queue)
        for found in verdict.copies:
            known = copies.setdefault(
                (found.kind, found.source), CopiesVerdict(found.kind, found.source)
            )
            known.missing += found.missing
            known.extra += found.extra
            known.doubled += found.doubled
    return queues, [copies[key] for key in sorted(copies)]


def broken_findings(queues: Mapping[str, QueueTotals]) -> Iterator[Finding]:
    """The rules about the life of jobs that are broken."""
    for log_id, totals in sorted(queues.items()):
        for (place, is_soft), ranges in sorted(totals.broken.items()):
            if is_soft:
                yield _soft(totals, place, ranges)
                continue
            for found in _fewest(ranges):
                detail, evidence = LEASE_DETAILS[place], {"log_id": log_id, **found.evidence}
                if found.more:
                    detail = f"{found.more} more findings of this rule are in this range"
                    evidence = {"findings": found.more}
                yield _finding(place, "error", totals.topic, found, detail, evidence)


def _soft(totals: QueueTotals, place: int, ranges: Sequence[BrokenRange]) -> Finding:
    ordered = sorted(ranges, key=lambda found: found.first)
    jobs = sum(found.jobs for found in ordered)
    first = ordered[0]
    whole = BrokenRange(place, True, first.first, max(f.last for f in ordered), jobs, 0, {})
    detail = (
        f"{jobs} jobs: {LEASE_DETAILS[place]}; the claims may have been in lease events that "
        "are in no log (their tail is not synced, and old ones are dropped)"
    )
    evidence = {"log_id": totals.log_id, **first.evidence}
    return _finding(place, "info", totals.topic, whole, detail, evidence)


def _finding(
    place: int,
    severity: Severity,
    topic: str,
    found: BrokenRange,
    detail: str,
    evidence: Mapping[str, Any],
) -> Finding:
    name = LEASE_RULES[place].name
    return Finding(name, severity, topic, found.first, found.last, detail, evidence)


def stray_findings(
    queues: Mapping[str, QueueTotals], instances: Mapping[str, Instance]
) -> Iterator[Finding]:
    """What jobs without a record mean.

    Args:
        instances: What the log says of each instance.
    """
    for log_id, totals in sorted(queues.items(), key=lambda item: (item[1].topic, item[0])):
        inst = instances.get(log_id)
        if inst is not None and inst.was_in_memory:
            continue
        known_from = inst.known_from if inst is not None else 1
        for may_be_lost in (False, True):
            ranges = seq_ranges.union(
                (a, b) for a, b, lost in totals.unknown if lost is may_be_lost
            )
            for first, last in seq_ranges.cut(ranges, known_from, 1 << 62):
                detail = f"{last - first + 1} jobs were claimed or ended, and were never appended"
                if may_be_lost:
                    detail += (
                        "; transactions before that are in no log, which may have appended them"
                    )
                severity: Severity = "info" if may_be_lost else "error"
                evidence = {"log_id": log_id}
                yield Finding("known_job", severity, totals.topic, first, last, detail, evidence)


def summed(
    queues: Mapping[str, QueueTotals],
    instances: Mapping[str, Instance],
    broken: Mapping[str, int],
) -> dict[str, Any]:
    """The account of all queues.

    Args:
        queues: Those that count.
        instances: What the log says of each instance.
        broken: By topic, jobs with more than one end and seqs without a record.

    Returns:
        Sums of `appended` and of each state; `compacted`, jobs that had ended when the segments
        with them were dropped; `unaccounted`, which is 0 when every job was appended once and ended
        once or is open; and the same by topic.
    """
    names = ("appended", *STATES, "compacted", "unaccounted")
    by_topic: dict[str, dict[str, int]] = {}
    for log_id, totals in sorted(queues.items(), key=lambda item: (item[1].topic, item[0])):
        account = by_topic.setdefault(totals.topic, dict.fromkeys(names, 0))
        inst = instances.get(log_id)
        here = dict(totals.counts)
        compacted = 0
        if inst is not None and inst.known_from > 1:
            covered = seq_ranges.without([(1, inst.head)], inst.hole_ranges())
            compacted = max(seq_ranges.count(covered) - here["appended"], 0)
            here["stray"] = 0
        for name in ("appended", *STATES):
            account[name] += here[name]
        account["compacted"] += compacted
        states = sum(here[name] for name in STATES)
        account["unaccounted"] += here["stray"] + abs(here["appended"] - states)
    for topic, jobs in broken.items():
        if topic in by_topic:
            by_topic[topic]["unaccounted"] += jobs
    total = {name: sum(account[name] for account in by_topic.values()) for name in names}
    return {**total, "by_topic": by_topic}
