"""Deciding about jobs: who gets which, who may settle what. Nothing here changes the state.

The state must have been `elapse`d to `now` before: expiry is then already visible as "no lease".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from logqueue.core import commands as cmd
from logqueue.core import events as ev
from logqueue.core import limits
from logqueue.core.dead_letters import Diversion, divert
from logqueue.core.decision import Decision
from logqueue.core.projection import Queue
from logqueue.core.state import State
from logqueue.core.topic import Topic


def claim(state: State, command: cmd.Claim, now: int) -> Decision:
    """One coordinator pass: pick jobs, divert the exhausted, share the rest evenly."""
    topic = state.queue(command.topic)
    queue = topic.queue
    assert queue is not None
    wanted = sum(claimer.jobs_max for claimer in command.cohort)
    reclaimed, exhausted = _reclaimed(topic, queue, wanted, now)
    diversion = Diversion()
    if exhausted and command.divert:
        diversion = divert(state, topic, exhausted, now)
    fresh = _fresh(topic, queue, wanted - len(reclaimed), now)
    shares = share_evenly([c.jobs_max for c in command.cohort], reclaimed + fresh)
    events: list[ev.AnyEvent] = list(diversion.events)
    cursor = queue.cursor
    if wanted > len(reclaimed):
        # Every live record from the cursor on was taken, unless the demand ran out first.
        met = len(reclaimed) + len(fresh) == wanted
        cursor = fresh[-1] + 1 if met else topic.head + 1
    first_lease = lease = state.next_lease
    grants: list[tuple[str, int, int, list[int]]] = []
    leases: list[tuple[int, int]] = []
    for claimer, seqs in zip(command.cohort, shares, strict=True):
        deadline = now + (claimer.lease_ms or topic.config.lease_ms)
        leases.append((lease, deadline))
        if seqs:
            grants.append((claimer.node, deadline, claimer.stream, seqs))
            lease += len(seqs)
    if grants:
        events.append(ev.JobsClaimed(now, topic.number, first_lease, cursor, grants))
    return Decision(events, lambda: _claimed(topic, queue, shares, leases))


def _claimed(
    topic: Topic, queue: Queue, shares: list[list[int]], leases: list[tuple[int, int]]
) -> cmd.Claimed:
    jobs: list[list[cmd.Job]] = []
    held = queue.jobs
    for seqs, (lease, deadline) in zip(shares, leases, strict=True):
        numbered = enumerate(topic.records(seqs), lease)
        jobs.append(
            [
                cmd.Job(seq, lease, deadline, ts, held[seq].deliveries, data, tag, meta)
                for lease, (seq, ts, (data, tag, _, meta)) in numbered
            ]
        )
    return cmd.Claimed(jobs, topic.ready)


def _reclaimed(topic: Topic, queue: Queue, wanted: int, now: int) -> tuple[list[int], list[int]]:
    """Reclaimed jobs to hand out, lowest seq first, and those met that were delivered too often."""
    limit = topic.config.diverts_after
    expired_before = topic.expired_before(now)
    if not limit and not expired_before:
        return list(islice(queue.reclaim, wanted)), []
    taken: list[int] = []
    exhausted: list[int] = []
    for seq in queue.reclaim:
        if len(taken) == wanted or len(exhausted) == limits.DIVERTED_PER_PASS_MAX:
            break
        if expired_before and _is_expired(topic, seq, expired_before):
            continue
        if limit and queue.jobs[seq].deliveries >= limit:
            exhausted.append(seq)
        else:
            taken.append(seq)
    return taken, exhausted


def _is_expired(topic: Topic, seq: int, expired_before: int) -> bool:
    batch = topic.batch_of(seq)
    return batch is not None and batch.ts_at(batch.index_of(seq)) < expired_before


def _fresh(topic: Topic, queue: Queue, wanted: int, now: int) -> list[int]:
    if wanted <= 0:
        return []
    return topic.live_seqs(queue.cursor, wanted, topic.expired_before(now))


def share_evenly(demands: Sequence[int], seqs: list[int]) -> list[list[int]]:
    """Deal jobs round-robin in the claimers' order, skipping the satisfied.

    Args:
        demands: How many each claimer wants.
        seqs: Jobs in the order of selection; at most the sum of the demands.

    Returns:
        Each claimer's jobs, ascending.
    """
    if len(demands) == 1:
        return [sorted(seqs)]
    shares: list[list[int]] = [[] for _ in demands]
    dealt = 0
    while dealt < len(seqs):
        hungry = [i for i, demand in enumerate(demands) if len(shares[i]) < demand]
        assert hungry, "more jobs were picked than anybody wanted"
        # Deal whole rounds at once, as many as the least hungry claimer can still take.
        rounds = min(demands[i] - len(shares[i]) for i in hungry)
        for place, i in enumerate(hungry):
            shares[i].extend(islice(seqs, dealt + place, dealt + rounds * len(hungry), len(hungry)))
        dealt += rounds * len(hungry)
    for share in shares:
        share.sort()
    return shares


def _held(
    queue: Queue, command: cmd.Ack | cmd.Nack | cmd.Extend, *, each_once: bool
) -> tuple[list[int], list[int]]:
    """Split the seqs into those leased to the node under the given lease numbers, and the rest.

    With `each_once` a seq named twice counts the first time and is skipped the second.
    """
    held: list[int] = []
    skipped: list[int] = []
    counted: set[int] = set()
    jobs = queue.jobs
    node = command.node
    tokens = command.tokens or [None] * len(command.seqs)
    for seq, token in zip(command.seqs, tokens, strict=True):
        job = jobs.get(seq)
        if (
            job is None
            or job.grant is None
            or job.grant.node != node
            or (token is not None and token != job.lease)
            or seq in counted
        ):
            skipped.append(seq)
        else:
            held.append(seq)
            if each_once:
                counted.add(seq)
    return held, skipped


def ack(state: State, command: cmd.Ack, now: int) -> Decision:
    """Complete the jobs that this node holds: one event, so all of them or none."""
    topic = state.queue(command.topic)
    queue = topic.queue
    assert queue is not None
    held, skipped = _held(queue, command, each_once=True)
    events: list[ev.AnyEvent] = []
    if held:
        events.append(ev.JobsAcked(now, topic.number, command.node, held))
    return Decision(events, lambda: cmd.Settled(len(held), skipped, topic.ready, queue.leased))


def nack(state: State, command: cmd.Nack, now: int) -> Decision:
    """Give back the jobs that this node holds."""
    topic = state.queue(command.topic)
    queue = topic.queue
    assert queue is not None
    held, skipped = _held(queue, command, each_once=True)
    events: list[ev.AnyEvent] = []
    if held:
        ready_at = now + command.delay_ms
        events.append(ev.JobsReleased(now, topic.number, command.node, "nack", ready_at, held))
    return Decision(events, lambda: cmd.Settled(len(held), skipped, topic.ready, queue.leased))


def extend(state: State, command: cmd.Extend, now: int) -> Decision:
    """Set a new deadline for the jobs that this node holds. Repeats of a seq each count."""
    topic = state.queue(command.topic)
    queue = topic.queue
    assert queue is not None
    held, skipped = _held(queue, command, each_once=False)
    deadline = now + command.lease_ms
    events: list[ev.AnyEvent] = []
    if held:
        seqs = list(dict.fromkeys(held))
        events.append(ev.JobsExtended(now, topic.number, command.node, deadline, seqs))
    return Decision(events, lambda: cmd.Extended(held, skipped, deadline))


def release_stream(state: State, command: cmd.ReleaseStream, now: int) -> Decision:
    """Give back, at once, every job still leased over one work stream."""
    topic = state.queue(command.topic)
    queue = topic.queue
    assert queue is not None
    seqs = sorted(queue.streams.get(command.stream, ()))
    events: list[ev.AnyEvent] = []
    if seqs:
        grant = queue.jobs[seqs[0]].grant
        assert grant is not None
        events.append(ev.JobsReleased(now, topic.number, grant.node, "disconnect", now, seqs))
    return Decision(events, lambda: cmd.Done(len(seqs)))
