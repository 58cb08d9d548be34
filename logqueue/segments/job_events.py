"""What happened to jobs, as rows.

Owns: which events of which log tell of jobs, and their rows; each kind comes from one log only, so
that nothing is told twice. Must not know: files, records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from logqueue import events as ev
from logqueue.events.block import SEQ, BlockView
from logqueue.segments.known import KnownTopics

TRIMMED = "trimmed"


class JobTransition(NamedTuple):
    """What happened to one job, or where a floor now stands.

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
        ready_at: Of "released" when that is later than `at`, ms since the epoch, else 0.
        reason: Of "released": "nack", "disconnect", "postponed", "restart", "reject", "hand_back"
            (the delivery is undone) or "given_back" (a disconnect; the delivery does not count
            towards `max_deliveries`). Of "trimmed": "ttl" or "cap".
        detail: The error that was told, or None.
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


_OF_WRITES = (ev.RecordsAppended, ev.RecordsForwarded, ev.ChunksCommitted)


def count_rows(event: ev.AnyEvent, log: str, known: KnownTopics) -> int:
    """How many rows an event makes if its topic is a queue; moves the floors that are known."""
    kind = type(event)
    if isinstance(event, _OF_WRITES):
        return int(event.cap_floor > 0 and known.raise_cap(event.topic, event.cap_floor))
    if kind.log == ev.LEASES:
        return _leases_count(event) if log == "leases" else 0
    if log != "jobs":
        return 0
    if isinstance(event, (ev.JobsAcked, ev.RecordsFinished, ev.RecordsRemoved, ev.HoldsReleased)):
        return len(event.seqs)
    if isinstance(event, ev.JobsHeld):
        return 0 if event.again else len(event.jobs)
    if isinstance(event, ev.RecordsReplaced):
        return sum(BlockView(block).count for block in event.blocks)
    if isinstance(event, ev.RecordsTrimmed):
        return len(_floors(event, known))
    return 0


def _leases_count(event: ev.AnyEvent) -> int:
    if isinstance(event, ev.JobsClaimed):
        return sum(len(seqs) for _, _, _, seqs in event.grants)
    if isinstance(event, (ev.JobsReleased, ev.JobsExtended)):
        return len(event.seqs)
    return 0


def _floors(event: ev.RecordsTrimmed, known: KnownTopics) -> Sequence[tuple[str, int]]:
    found = []
    if known.raise_ttl(event.topic, event.ttl_floor):
        found.append(("ttl", event.ttl_floor))
    if known.raise_cap(event.topic, event.cap_floor):
        found.append(("cap", event.cap_floor))
    return found


def rows_of(
    event: ev.AnyEvent, order: int, log: str, known: KnownTopics
) -> Iterator[JobTransition]:
    """The rows of an event; moves the floors that are known.

    Args:
        event: Of a transaction of `log`. Its topic is taken for a queue.
        order: Of the transaction.
        log: "jobs" or "leases".
        known: Changed.
    """
    at, topic = event.at, event.topic
    if isinstance(event, _OF_WRITES):
        if event.cap_floor > 0 and known.raise_cap(topic, event.cap_floor):
            yield JobTransition(topic, order, at, TRIMMED, event.cap_floor, reason="cap")
    elif type(event).log == ev.LEASES:
        if log == "leases":
            yield from _leases_rows(event, order)
    elif log != "jobs":
        return
    elif isinstance(event, ev.JobsAcked):
        for seq in event.seqs:
            yield JobTransition(topic, order, at, "acked", seq, worker=event.node)
    elif isinstance(event, ev.RecordsFinished):
        for seq in event.seqs:
            yield JobTransition(topic, order, at, event.outcome, seq, worker=event.node)
    elif isinstance(event, ev.RecordsRemoved):
        told = "dead_lettered" if event.dead_lettered else "deleted"
        told = "redriven" if event.redriven else told
        for seq in event.seqs:
            yield JobTransition(topic, order, at, told, seq)
    elif isinstance(event, ev.JobsHeld):
        for seq, _, error in event.jobs if not event.again else ():
            yield JobTransition(topic, order, at, "held", seq, detail=error)
    elif isinstance(event, ev.HoldsReleased):
        for seq in event.seqs:
            yield JobTransition(topic, order, at, "unheld", seq)
    elif isinstance(event, ev.RecordsReplaced):
        for block in event.blocks:
            for seq in BlockView(block).numbers(SEQ) or ():
                yield JobTransition(topic, order, at, "replaced", seq)
    elif isinstance(event, ev.RecordsTrimmed):
        for reason, floor in _floors(event, known):
            yield JobTransition(topic, order, at, TRIMMED, floor, reason=reason)


def _leases_rows(event: ev.AnyEvent, order: int) -> Iterator[JobTransition]:
    at, topic = event.at, event.topic
    if isinstance(event, ev.JobsClaimed):
        lease = event.first_lease
        for node, deadline, _, seqs in event.grants:
            for number, seq in enumerate(seqs, lease):
                yield JobTransition(topic, order, at, "claimed", seq, number, node, deadline)
            lease += len(seqs)
    elif isinstance(event, ev.JobsExtended):
        for seq in event.seqs:
            yield JobTransition(
                topic, order, at, "extended", seq, worker=event.node, deadline=event.deadline
            )
    elif isinstance(event, ev.JobsReleased):
        reason = _why_released(event)
        dues = event.dues or [event.ready_at] * len(event.seqs)
        for seq, due in zip(event.seqs, dues, strict=True):
            yield JobTransition(
                topic, order, at, "released", seq, 0, event.node, 0,
                due if due > at else 0, reason, event.error,
            )  # fmt: skip


def _why_released(event: ev.JobsReleased) -> str:
    if event.uncounted:
        return "hand_back"
    return "given_back" if event.given_back else event.reason
