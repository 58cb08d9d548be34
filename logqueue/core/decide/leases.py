"""Deciding about leased jobs: who may settle what, and what becomes of it. Nothing here changes the
state.

A lease that has run out is none, whether `elapse` has got to it yet or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from itertools import chain

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.backoff import delay_ms
from logqueue.core.decide.dead_letters import dead_letter, hold
from logqueue.core.decide.decision import AfterApply, Decision, only
from logqueue.core.decide.endings import acked, archive, finish
from logqueue.core.decide.follow_ups import AckTransaction, repeated
from logqueue.core.queue_state import QueueState
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.model import limits


def _held(
    queue: QueueState,
    command: cmd.AckJobs | cmd.NackJobs | cmd.RejectJobs | cmd.ExtendLeases,
    now: int,
    counted: set[int] | None = None,
    places: list[int] | None = None,
) -> tuple[list[int], list[int]]:
    """Split the seqs into those leased to the node under the given lease numbers, and the rest.

    With `counted` a seq named twice counts the first time and is skipped the second; what counts
    is added to it. With `places` it learns at which places of the command those seqs are.
    """
    node = command.node
    grant = queue.grant_of(command.seqs, command.tokens)
    is_held = grant is not None and grant.node == node and grant.deadline >= now
    if is_held and (counted is None or counted.isdisjoint(command.seqs)):
        if counted is not None:
            counted.update(command.seqs)
        if places is not None:
            places.extend(range(len(command.seqs)))
        return [*command.seqs], []
    held: list[int] = []
    skipped: list[int] = []
    jobs = queue.jobs
    tokens = command.tokens or [None] * len(command.seqs)
    for place, (seq, token) in enumerate(zip(command.seqs, tokens, strict=True)):
        job = jobs.get(seq)
        if (
            job is None
            or job.grant is None
            or job.grant.node != node
            or job.grant.deadline < now
            or (token is not None and token != job.lease)
            or (counted is not None and seq in counted)
        ):
            skipped.append(seq)
        else:
            held.append(seq)
            if places is not None:
                places.append(place)
            if counted is not None:
                counted.add(seq)
    return held, skipped


_Share = tuple[int, list[int], int, int]
"""What one of several calls settles: how many jobs, which seqs it does not, how many of the jobs
have their records, how many of these are ready at once."""


def _settled_each(topic: QueueTopic, shares: Sequence[_Share]) -> list[cmd.SettleResult]:
    """The result of each of some calls, with the counters as they are right behind it."""
    ready, leased = topic.ready, topic.queue.leased
    if len(shares) == 1:
        return [cmd.SettleResult(shares[0][0], shares[0][1], ready, leased)]
    results = []
    for settled, skipped, live, back in reversed(shares):
        results.append(cmd.SettleResult(settled, skipped, ready, leased))
        leased += live
        ready -= back
    results.reverse()
    return results


def _settled(topic: QueueTopic, held: Sized, skipped: list[int]) -> AfterApply[cmd.SettleResult]:
    return AfterApply(lambda: cmd.SettleResult(len(held), skipped, topic.ready, topic.queue.leased))


def ack(state: State, command: cmd.AckJobs, now: int) -> Decision[cmd.SettleResult]:
    """Complete the jobs that this node holds: one event, so all of them or none."""
    if command.append or state.queue(command.topic).has_steps:
        return _ack_and_write(state, command, now)
    return only(ack_together(state, (command,), now))


def _ack_and_write(state: State, command: cmd.AckJobs, now: int) -> Decision[cmd.SettleResult]:
    """Complete the jobs and write what follows from them: what comes with the ack, if the node
    holds all of them, and the next steps of their chains.

    Raises:
        LogqueueError: A write is refused; the jobs stay leased.
    """
    topic = state.queue(command.topic)
    places: list[int] = []
    held, skipped = _held(topic.queue, command, now, set(), places)
    given = command.results
    results = {command.seqs[place]: given[place] for place in places} if given else {}
    if skipped and command.append:
        # Perhaps the first try was carried out, and only its reply was lost.
        earlier = repeated(state, command, now)
        counted = 0 if earlier is None else len(command.seqs)
        left = skipped if earlier is None else []
        ready, leased = topic.ready, topic.queue.leased
        return Decision([], cmd.SettleResult(counted, left, ready, leased, earlier or ()))
    follow_ups = AckTransaction(state, topic, held, now)
    appended = [follow_ups.write(written) for written in command.append]
    follow_ups.begin_steps(results)
    events = follow_ups.end(command.node, [*results.items()]) if held else []

    def settled() -> cmd.SettleResult:
        ready, leased = topic.ready, topic.queue.leased
        return cmd.SettleResult(
            len(held), skipped, ready, leased, appended if command.append else None
        )

    return Decision(events, AfterApply(settled))


def ack_together(
    state: State, members: Sequence[cmd.AckJobs], now: int
) -> Decision[list[cmd.SettleResult]]:
    """Complete the jobs that the nodes of some acks hold: one event. Of a queue with an archive,
    one ack at a time: all of its jobs or none."""
    topic = state.queue(members[0].topic)
    queue = topic.queue
    of_node: dict[str, list[int]] = {}
    shares: list[_Share] = []
    counted: set[int] = set()
    results: list[tuple[int, bytes]] = []
    for command in members:
        places: list[int] | None = [] if command.results and queue.ended is not None else None
        held, skipped = _held(queue, command, now, counted, places)
        live = len(held)
        if held:
            if command.results and places:
                given = command.results
                results += [(command.seqs[place], given[place]) for place in places]
            if queue.orphans:
                live = sum(queue.jobs[seq].live for seq in held)
            known = of_node.setdefault(command.node, held)
            if known is not held:
                known += held
        shares.append((len(held), skipped, live, 0))
    events: list[ev.Event] = []
    if of_node:
        if topic.config.archive is not None:
            assert len(members) == 1, "what leaves copies is decided by itself"
            node, seqs = members[0].node, [*chain.from_iterable(of_node.values())]
            events = archive(state, topic, topic.records(sorted(seqs)), "acked", now, node)
        events.extend(acked(topic, of_node, now, results))
    return Decision(events, AfterApply(lambda: _settled_each(topic, shares)))


def nack(state: State, command: cmd.NackJobs, now: int) -> Decision[cmd.SettleResult]:
    """Give back the jobs that this node holds."""
    return only(nack_together(state, (command,), now))


def nack_together(
    state: State, members: Sequence[cmd.NackJobs], now: int
) -> Decision[list[cmd.SettleResult]]:
    """Give back the jobs that the nodes of some nacks hold: one event for all that go back in the
    same way."""
    topic = state.queue(members[0].topic)
    queue = topic.queue
    alike: dict[tuple[str, int | None, str | None, bool], list[int]] = {}
    shares: list[_Share] = []
    counted: set[int] = set()
    for command in members:
        held, skipped = _held(queue, command, now, counted)
        live = ready = 0
        if held:
            way = (command.node, command.delay_ms, command.error, command.count)
            known = alike.setdefault(way, held)
            if known is not held:
                known += held
            live = sum(queue.jobs[seq].live for seq in held)
            backs_off = command.delay_ms is None and command.count
            is_delayed = command.delay_ms or (backs_off and topic.config.retry_backoff is not None)
            ready = 0 if is_delayed else live
        shares.append((len(held), skipped, live, ready))
    events: list[ev.Event] = []
    for (node, delay, error, is_counted), seqs in alike.items():
        dues = _backed_off(topic, queue, seqs, now) if delay is None and is_counted else []
        released = ev.JobsReleased(
            now,
            topic.number,
            node,
            "nack",
            now + (delay or 0),
            seqs,
            error,
            not is_counted,
            dues,
        )
        events.append(released)
    return Decision(events, AfterApply(lambda: _settled_each(topic, shares)))


def _backed_off(topic: QueueTopic, queue: QueueState, seqs: list[int], now: int) -> list[int]:
    """When each job is claimable again by the queue's retry_backoff; empty when it has none."""
    backoff = topic.config.retry_backoff
    if backoff is None:
        return []
    jobs = ((seq, queue.jobs[seq]) for seq in seqs)
    return [now + delay_ms(backoff, job.deliveries, seq, job.lease) for seq, job in jobs]


def reject(state: State, command: cmd.RejectJobs, now: int) -> Decision[cmd.SettleResult]:
    """Reject the jobs that this node holds.

    Raises:
        RecordTooLarge, TopicFull, Throttled: Their copies find no room; nothing was changed.
    """
    topic = state.queue(command.topic)
    queue = topic.queue
    held, skipped = _held(queue, command, now, set())
    live = sorted(seq for seq in held if queue.jobs[seq].live)
    orphans = [seq for seq in held if not queue.jobs[seq].live]
    config, node, error = topic.config, command.node, command.error
    events: list[ev.Event] = []
    if live and config.dead_letter is not None:
        events = dead_letter(state, topic, live, "rejected", now, error, node)
    elif live and config.on_exhausted == "hold":
        events.append(hold(topic, live, now, "rejected", error, node))
    elif live:
        events = finish(state, topic, live, "rejected", now, node, error)
    if orphans:
        events.append(ev.JobsReleased(now, topic.number, node, "reject", now, orphans))
    return Decision(events, _settled(topic, held, skipped))


def extend(state: State, command: cmd.ExtendLeases, now: int) -> Decision[cmd.ExtendResult]:
    """Set a new deadline for the jobs that this node holds. Repeats of a seq each count."""
    return only(extend_together(state, (command,), now))


def extend_together(
    state: State, members: Sequence[cmd.ExtendLeases], now: int
) -> Decision[list[cmd.ExtendResult]]:
    """Set new deadlines for the jobs that the nodes of some calls hold. Repeats of a seq each
    count; the last of them decides."""
    topic = state.queue(members[0].topic)
    results: list[cmd.ExtendResult] = []
    alike: list[tuple[tuple[str, int, float | None, str | None], list[int]]] = []
    for command in members:
        held, skipped = _held(topic.queue, command, now)
        deadline = now + command.lease_ms
        results.append(cmd.ExtendResult(held, skipped, deadline))
        way = (command.node, deadline, command.progress, command.note)
        if held and alike and alike[-1][0] == way:
            alike[-1][1].extend(held)
        elif held:
            alike.append((way, [*held]))
    events: list[ev.Event] = [
        ev.JobsExtended(now, topic.number, node, deadline, [*dict.fromkeys(seqs)], progress, note)
        for (node, deadline, progress, note), seqs in alike
    ]
    return Decision(events, results)


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
