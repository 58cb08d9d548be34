"""Deciding what operators do to jobs: cancel, purge, release, change. The state stays as it is.

Owns: which jobs of which states they meet. Must not know: leases beyond that there is one.
"""

from __future__ import annotations

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.decide.copies import removable
from logqueue.core.decide.dead_letters import hold
from logqueue.core.decide.decision import AfterApply, Decision
from logqueue.core.decide.endings import finish
from logqueue.core.decide.job_edits import reprioritize
from logqueue.core.job_filter import state_of
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.model import limits


def cancel_job(state: State, command: cmd.CancelJob, now: int) -> Decision[cmd.CancelResult]:
    """Remove one job; one in flight only by force, and then its lease is void.

    Raises:
        RecordTooLarge, TopicFull, Throttled: The archive cannot take the copy.
    """
    topic = state.queue(command.topic)
    seq = command.seq
    if not topic.holds(seq):
        return Decision([], cmd.CancelResult(seq, None, False))
    was = state_of(topic, seq)
    if was == "in_flight" and not command.force:
        return Decision([], cmd.CancelResult(seq, was, False))
    events = finish(state, topic, [seq], "cancelled", now)
    return Decision(events, cmd.CancelResult(seq, was, True))


def cancel_key(state: State, command: cmd.CancelKey, now: int) -> Decision[cmd.CancelResult]:
    """Remove the waiting job with a key.

    Raises:
        RecordTooLarge, TopicFull, Throttled: The archive cannot take the copy.
    """
    topic = state.queue(command.topic)
    queue = topic.queue
    seq = queue.keys.find(command.key) if queue.keys is not None else None
    if seq is None:
        return Decision([], cmd.CancelResult(0, None, False))
    was = state_of(topic, seq)
    events = finish(state, topic, [seq], "cancelled", now)
    return Decision(events, cmd.CancelResult(seq, was, True))


def purge(state: State, command: cmd.PurgeJobs, now: int) -> Decision[cmd.PurgeResult]:
    """Remove those of some jobs that are in one of the states, as many as one transaction may.

    Raises:
        RecordTooLarge, TopicFull, Throttled: The archive cannot take the copies.
    """
    topic = state.queue(command.topic)
    found = {
        seq: was
        for seq in topic.batches.live_among(command.seqs)
        if (was := state_of(topic, seq)) in command.states
    }
    seqs = [*found]
    some = removable(topic, seqs, are_copied=topic.config.archive is not None)
    counts = dict.fromkeys(sorted(command.states), 0)
    for seq in some:
        counts[found[seq]] += 1
    events = finish(state, topic, some, "cancelled", now) if some else []
    rest = seqs[len(some) :]
    return Decision(events, cmd.PurgeResult(counts, rest))


def release(state: State, command: cmd.Release, now: int) -> Decision[cmd.ReleaseResult]:
    """Let held jobs be claimed again."""
    topic = state.queue(command.topic)
    queue = topic.queue
    asked = dict.fromkeys(command.seqs)
    seqs = sorted(seq for seq in asked if seq in queue.held)
    skipped = [seq for seq in asked if seq not in queue.held]
    events: list[ev.Event] = [ev.HoldsReleased(now, topic.number, seqs)] if seqs else []
    return Decision(
        events,
        AfterApply(lambda: cmd.ReleaseResult(len(seqs), skipped, topic.ready, len(queue.held))),
    )


def change(state: State, command: cmd.ChangeJobs, now: int) -> Decision[cmd.ChangeResult]:
    """Do the same to those of some jobs that are in one of the states, as many as one transaction
    may.

    Raises:
        RecordTooLarge, TopicFull, Throttled: The archive cannot take the copies.
    """
    topic = state.queue(command.topic)
    seqs = topic.batches.live_among(command.seqs)
    found = [seq for seq in seqs if state_of(topic, seq) in command.states]
    if not found:
        return Decision([], cmd.ChangeResult([]))
    if command.action == "cancel":
        some = [*removable(topic, found, are_copied=topic.config.archive is not None)]
        events = finish(state, topic, some, "cancelled", now)
    elif command.action == "return":
        some, events = _returned(topic, found[: limits.CHANGED_PER_PASS_MAX], now)
        return Decision(events, cmd.ChangeResult(some, found[limits.CHANGED_PER_PASS_MAX :]))
    elif command.action == "prioritize":
        some = found[: min(limits.CHANGED_PER_PASS_MAX, topic.removed_max)]
        some = some[: topic.fitting(some, limits.COPIED_BYTES_MAX)]
        events = reprioritize(topic, some, command.priority, now)
    else:
        some = found[: min(limits.CHANGED_PER_PASS_MAX, topic.removed_max)]
        events = _placed(topic, command, some, now)
    return Decision(events, cmd.ChangeResult(some, found[len(some) :]))


def _placed(
    topic: QueueTopic, command: cmd.ChangeJobs, seqs: list[int], now: int
) -> list[ev.Event]:
    """The events that move waiting or held jobs to another place."""
    if command.action == "hold":
        return [hold(topic, seqs, now, "operator")]
    held = [seq for seq in seqs if seq in topic.queue.held]
    events: list[ev.Event] = [ev.HoldsReleased(now, topic.number, held)] if held else []
    waiting = [seq for seq in seqs if seq not in topic.queue.held]
    if waiting and command.action == "retry":
        events.append(ev.JobsRetimed(now, topic.number, waiting, now, "retried"))
    elif waiting:
        due = now + command.delay_ms
        events.append(ev.JobsRetimed(now, topic.number, waiting, due, "delayed"))
    return events


def _returned(topic: QueueTopic, seqs: list[int], now: int) -> tuple[list[int], list[ev.Event]]:
    """The jobs whose leases have not run out by themselves, and the events that end these."""
    by_node: dict[str, list[int]] = {}
    for seq in seqs:
        grant = topic.queue.jobs[seq].grant
        if grant is not None and grant.deadline >= now:
            by_node.setdefault(grant.node, []).append(seq)
    events: list[ev.Event] = [
        ev.JobsReleased(now, topic.number, node, "returned", now, some)
        for node, some in by_node.items()
    ]
    return sorted(seq for some in by_node.values() for seq in some), events
