"""What happened to jobs, as rows.

Owns: which events of which log tell of jobs, and their rows; each kind comes from one log only, so
that nothing is counted twice. Must not know: files, records.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, repeat
from typing import NamedTuple, Protocol

from logqueue import events as ev
from logqueue.segments.known import KnownTopics

TRIMMED = "trimmed"

_BARE = frozenset(("dead_lettered", "held"))
"""Kinds whose rows have neither worker nor reason."""


class JobTransition(NamedTuple):
    """What happened to one job, or the new position of a floor.

    Attributes:
        topic: Number of the topic instance, a queue.
        order: Of the transaction, one counter over both logs.
        at: When, ms since the epoch.
        event: "claimed", "extended", "released", "acked", "rejected", "dropped", "expired",
            "superseded", "cancelled", "dead_lettered", "redriven", "deleted", "held", "unheld",
            "replaced" or "trimmed".
        seq: The job. Of "trimmed" the floor: every job up to it that had not ended is over.
        lease: Number of the lease of "claimed", else 0.
        worker: Who did it, "" when time or an operator did.
        deadline: Of "claimed" and "extended", ms since the epoch, else 0.
        ready_at: Of "released" and "replaced" when that is later than `at`, ms since the epoch,
            else 0.
        reason: Of "released": "nack", "disconnect", "postponed", "delayed", "retried",
            "returned", "restart", "reject", "hand_back"
            (the delivery is undone) or "given_back" (a disconnect; the delivery does not count
            towards `max_deliveries`). Of "trimmed": "ttl" or "cap".
        detail: The error given, or None.
    """

    topic: int
    order: int
    at: int
    event: str
    seq: int
    lease: int = 0
    worker: str = ""
    deadline: int = 0
    ready_at: int = 0
    reason: str = ""
    detail: str | None = None


def count_rows(event: ev.Event, log: str, known: KnownTopics) -> tuple[int, int]:
    """How many rows an event makes if its topic is a queue, and how many of them are floors; moves
    the floors that are known."""
    if log != _log_of_jobs(event):
        return 0, 0
    rows = floors = 0
    for change in event.job_changes():
        if change.kind != TRIMMED:
            rows += len(change.seqs)
        elif _raises(known, event.topic, change):
            rows += 1
            floors += 1
    return rows, floors


def rows_of(event: ev.Event, order: int, log: str, known: KnownTopics) -> Iterator[JobTransition]:
    """The rows of an event; moves the floors that are known.

    Args:
        event: Of a transaction of `log`. Its topic is taken for a queue.
        order: Of the transaction.
        log: "jobs" or "leases".
        known: Changed.
    """
    if log != _log_of_jobs(event):
        return
    at, topic = event.at, event.topic
    for change in event.job_changes():
        kind, node, deadline = change.kind, change.node, change.deadline
        if kind == TRIMMED and not _raises(known, topic, change):
            continue
        reason = reason_of(change)
        if kind in _BARE:
            node = reason = ""
        leases = count(change.first_lease) if change.first_lease else repeat(0)
        dues = [due if due > at else 0 for due in change.dues] or repeat(0)
        errors = change.errors or repeat(change.error)
        columns = zip(
            repeat(topic), repeat(order), repeat(at), repeat(kind), change.seqs, leases,
            repeat(node), repeat(deadline), dues, repeat(reason), errors, strict=False,
        )  # fmt: skip
        yield from map(JobTransition._make, columns)


def _log_of_jobs(event: ev.Event) -> str:
    """The log that tells of an event; what is in both is taken from the jobs log."""
    return "jobs" if event.log & ev.JOBS else "leases"


def _raises(known: KnownTopics, topic: int, change: ev.JobChange) -> bool:
    """Whether a floor has moved."""
    (floor,) = change.seqs
    if change.reason == "ttl":
        return known.raise_ttl(topic, floor)
    return known.raise_cap(topic, floor)


class _Why(Protocol):
    @property
    def reason(self) -> str: ...
    @property
    def uncounted(self) -> bool: ...
    @property
    def given_back(self) -> bool: ...


def reason_of(change: _Why) -> str:
    """The reason that a row tells, of a change or of the event of a release."""
    if change.uncounted:
        return "hand_back"
    return "given_back" if change.given_back else change.reason
