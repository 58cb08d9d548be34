"""Did the demo keep its promise? Every job is acked or dead-lettered, none lost, none both.

Owns: the facts of one run and the checks over them, as pure functions. Must not know: how the facts
were gathered, how they are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from logqueue.demo.jobs import JobFeed
from logqueue.demo.workers import Delivery, Result, Tally
from logqueue.shapes import QueueCounters

NAMED_MAX = 5


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead-lettered job, as its copy in the dead-letter topic says."""

    seq: int
    name: str
    deliveries: int
    reason: str


@dataclass(frozen=True)
class Kill:
    """The moment the server was killed."""

    at_ms: int
    done: int
    in_flight: int
    restart_s: float


@dataclass(frozen=True)
class Standing:
    """The queue's state: its remaining jobs, its counters, and how many jobs it ever had."""

    left: int
    queue: QueueCounters
    appended: int

    @property
    def done(self) -> int:
        """How many jobs are acked or dead-lettered."""
        return self.appended - self.left


@dataclass(frozen=True)
class DemoResults:
    """All that is known after a run."""

    appended: dict[int, JobFeed]
    results: list[Result]
    dead: list[DeadLetter]
    tallies: list[Tally]
    workers: int
    kill: Kill
    final: Standing
    seconds: float
    url: str = ""

    def deliveries(self) -> Iterator[Delivery]:
        """Every delivery any worker saw."""
        for tally in self.tallies:
            yield from tally.deliveries

    def retries(self) -> int:
        """Deliveries that failed and were followed by another try."""
        failed = sum(delivery.outcome == "failed" for delivery in self.deliveries())
        return failed - len(self.dead)

    def cut_off(self) -> set[int]:
        """Jobs a worker held when the server was killed."""
        return {delivery.seq for delivery in self.deliveries() if self.was_cut_off(delivery)}

    def was_cut_off(self, delivery: Delivery) -> bool:
        """Whether the kill fell into this delivery.

        An ack repeated after it counts for the worker, whether the first try or the lease was lost.
        """
        return delivery.claimed_ms <= self.kill.at_ms and (
            delivery.outcome in ("open", "lost") or delivery.ended_ms > self.kill.at_ms
        )

    def redelivered(self) -> set[int]:
        """Jobs that were cut off by the kill and handed out again after it."""
        after = {one.seq for one in self.deliveries() if one.claimed_ms > self.kill.at_ms}
        return self.cut_off() & after


@dataclass(frozen=True)
class Check:
    """One promise, and whether it was kept."""

    what: str
    kept: bool
    found: str


def judge(facts: DemoResults) -> list[Check]:
    """All promises of the demo over the facts of one run."""
    appended = set(facts.appended)
    results = Counter(result.seq for result in facts.results)
    dead = Counter(letter.seq for letter in facts.dead)
    lost = appended - results.keys() - dead.keys()
    both = results.keys() & dead.keys()
    unknown = (results.keys() | dead.keys()) - appended
    queue = facts.final.queue
    left = (facts.final.left, queue.ready, queue.in_flight)
    unexplained = {letter.seq for letter in facts.dead if not letter.reason}
    return [
        _none("no job lost: each has a result or is dead-lettered", lost, facts),
        _none("no job both acked and dead-lettered", both, facts),
        _none("no result for an unknown job", unknown, facts),
        _none("one result per job, even if it was delivered twice", _repeated(results), facts),
        _none("one dead letter per failed job", _repeated(dead), facts),
        _none("every dead letter has a reason", unexplained, facts),
        _none("no acked job was delivered again", _back_from_ack(facts), facts),
        Check("the queue is empty", left == (0, 0, 0), f"live, ready, in flight: {left}"),
        Check(
            "the dead-letter counter survived the kill",
            queue.dead_lettered == len(facts.dead),
            f"{queue.dead_lettered} counted, {len(facts.dead)} copies",
        ),
        Check(
            "the server was killed in the middle of the run",
            0 < facts.kill.done < len(appended),
            f"{facts.kill.done} of {len(appended)} done by then",
        ),
        Check(
            "every worker finished",
            len(facts.tallies) == facts.workers,
            f"{len(facts.tallies)} of {facts.workers}",
        ),
    ]


def _repeated(counts: Counter[int]) -> set[int]:
    return {seq for seq, count in counts.items() if count > 1}


def _back_from_ack(facts: DemoResults) -> set[int]:
    acked_ms = {
        one.seq: one.ended_ms
        for one in facts.deliveries()
        if one.outcome == "acked" and not facts.was_cut_off(one)
    }
    return {
        one.seq
        for one in facts.deliveries()
        if one.seq in acked_ms and one.claimed_ms > acked_ms[one.seq]
    }


def _none(what: str, offenders: set[int], facts: DemoResults) -> Check:
    if not offenders:
        return Check(what, True, "none")
    named = [
        f"{seq} ({facts.appended[seq].name})" if seq in facts.appended else str(seq)
        for seq in sorted(offenders)[:NAMED_MAX]
    ]
    more = ", ..." if len(offenders) > NAMED_MAX else ""
    return Check(what, False, f"{len(offenders)}: {', '.join(named)}{more}")
