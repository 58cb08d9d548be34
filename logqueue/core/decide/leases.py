"""Deciding about leased jobs: who may settle what, and what becomes of it. Nothing here changes the
state.

A lease that has run out is none, whether `elapse` has got to it yet or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.backoff import delay_ms
from logqueue.core.decide.dead_letters import dead_letter, hold
from logqueue.core.decide.decision import AfterApply, Decision
from logqueue.core.decide.endings import archive, finish
from logqueue.core.queue_state import QueueState
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.model import limits


def _held(
    queue: QueueState,
    command: cmd.AckJobs | cmd.NackJobs | cmd.RejectJobs | cmd.ExtendLeases,
    now: int,
    *,
    each_once: bool,
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
            or job.grant.deadline < now
            or (token is not None and token != job.lease)
            or seq in counted
        ):
            skipped.append(seq)
        else:
            held.append(seq)
            if each_once:
                counted.add(seq)
    return held, skipped


def _settled(topic: QueueTopic, held: Sized, skipped: list[int]) -> AfterApply[cmd.SettleResult]:
    return AfterApply(lambda: cmd.SettleResult(len(held), skipped, topic.ready, topic.queue.leased))


def ack(state: State, command: cmd.AckJobs, now: int) -> Decision[cmd.SettleResult]:
    """Complete the jobs that this node holds: one event, so all of them or none."""
    topic = state.queue(command.topic)
    queue = topic.queue
    held, skipped = _held(queue, command, now, each_once=True)
    events: list[ev.Event] = []
    if held:
        orphans = sum(not queue.jobs[seq].live for seq in held) if queue.orphans else 0
        if topic.config.archive is not None:
            finished = topic.records(sorted(held))
            events = archive(state, topic, finished, "acked", now, command.node)
        events.append(ev.JobsAcked(now, topic.number, command.node, held, orphans))
    return Decision(events, _settled(topic, held, skipped))


def nack(state: State, command: cmd.NackJobs, now: int) -> Decision[cmd.SettleResult]:
    """Give back the jobs that this node holds."""
    topic = state.queue(command.topic)
    queue = topic.queue
    held, skipped = _held(queue, command, now, each_once=True)
    events: list[ev.Event] = []
    if held:
        ready_at = now + (command.delay_ms or 0)
        dues: list[int] = []
        if command.delay_ms is None and command.count:
            dues = _backed_off(topic, queue, held, now)
        released = ev.JobsReleased(
            now,
            topic.number,
            command.node,
            "nack",
            ready_at,
            held,
            command.error,
            not command.count,
            dues,
        )
        events.append(released)
    return Decision(events, _settled(topic, held, skipped))


def _backed_off(topic: QueueTopic, queue: QueueState, seqs: list[int], now: int) -> list[int]:
    """When each job is claimable again by the queue's retry_backoff; empty when it has none."""
    backoff = topic.config.retry_backoff
    if backoff is None:
        return []
    jobs = ((seq, queue.jobs[seq]) for seq in seqs)
    return [now + delay_ms(backoff, job.deliveries, seq, job.lease) for seq, job in jobs]


def reject(state: State, command: cmd.RejectJobs, now: int) -> Decision[cmd.SettleResult]:
    """Give up the jobs that this node holds.

    Raises:
        RecordTooLarge, TopicFull, Throttled: Their copies find no room; nothing was changed.
    """
    topic = state.queue(command.topic)
    queue = topic.queue
    held, skipped = _held(queue, command, now, each_once=True)
    live = sorted(seq for seq in held if queue.jobs[seq].live)
    orphans = [seq for seq in held if not queue.jobs[seq].live]
    config, node, error = topic.config, command.node, command.error
    events: list[ev.Event] = []
    if live and config.dead_letter is not None:
        events = dead_letter(state, topic, live, "rejected", now, error, node)
    elif live and config.on_exhausted == "hold":
        events.append(hold(topic, live, now, "rejected", error, node))
    elif live:
        events = finish(state, topic, live, "rejected", now, node)
    if orphans:
        events.append(ev.JobsReleased(now, topic.number, node, "reject", now, orphans))
    return Decision(events, _settled(topic, held, skipped))


def extend(state: State, command: cmd.ExtendLeases, now: int) -> Decision[cmd.ExtendResult]:
    """Set a new deadline for the jobs that this node holds. Repeats of a seq each count."""
    topic = state.queue(command.topic)
    queue = topic.queue
    held, skipped = _held(queue, command, now, each_once=False)
    deadline = now + command.lease_ms
    events: list[ev.Event] = []
    if held:
        seqs = list(dict.fromkeys(held))
        events.append(ev.JobsExtended(now, topic.number, command.node, deadline, seqs))
    return Decision(events, cmd.ExtendResult(held, skipped, deadline))


def release_stream(state: State, command: cmd.ReleaseStream, now: int) -> Decision[cmd.Done]:
    """Give back, at once, every job still leased over one work stream."""
    topic = state.queue(command.topic)
    queue = topic.queue
    counted: list[int] = []
    given_back: list[int] = []
    node = ""
    for seq in sorted(queue.streams.get(command.stream, ())):
        job = queue.jobs[seq]
        assert job.grant is not None
        node = job.grant.node
        counts = command.has_worked or job.given_back >= limits.GIVEN_BACK_MAX
        (counted if counts else given_back).append(seq)
    released: list[ev.Event] = [
        ev.JobsReleased(
            now, topic.number, node, "disconnect", now, seqs, given_back=seqs is given_back
        )
        for seqs in (counted, given_back)
        if seqs
    ]
    return Decision(released, cmd.Done(len(counted) + len(given_back)))


def end_leases(topic: QueueTopic, now: int) -> Iterator[ev.JobsReleased]:
    """The events that a restart begins with on a queue whose leases do not outlive it.

    Each job under a lease is claimable at once, as if the lease had expired. It was delivered, so
    the delivery counts; the server ended the lease, so `retry_backoff` adds no delay.

    Args:
        topic: A queue, read only, as both logs left it.
        now: The clock.
    """
    queue = topic.queue
    by_node: dict[str, list[int]] = {}
    for seq, job in queue.jobs.items():
        if job.grant is not None:
            by_node.setdefault(job.grant.node, []).append(seq)
    for node, seqs in by_node.items():
        for start in range(0, len(seqs), limits.CLAIM_JOBS_MAX):
            part = seqs[start : start + limits.CLAIM_JOBS_MAX]
            yield ev.JobsReleased(now, topic.number, node, "restart", now, part)
