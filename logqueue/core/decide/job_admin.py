"""Deciding what operators do to jobs: cancel, purge, release. Nothing here changes the state.

Owns: which jobs of which states they meet. Must not know: leases beyond that there is one.
"""

from __future__ import annotations

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.decide.copies import removable
from logqueue.core.decide.decision import AfterApply, Decision
from logqueue.core.decide.endings import finish
from logqueue.core.job_filter import state_of
from logqueue.core.state import State


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
