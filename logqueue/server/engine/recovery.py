"""From the logs of earlier lives to a state that takes commands.

Owns: what happens between the end of the replay and the first command. Must not know: commands,
asyncio, HTTP.
"""

from __future__ import annotations

from logqueue import events as ev
from logqueue.core.apply.dispatch import apply
from logqueue.core.apply.elapse import elapse
from logqueue.core.decide.leases import end_leases
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.server.storage.journal import Journal

LEASES_PER_MS_BITS = 16
"""A lease number is at least the clock shifted by this much at every start, so it exceeds all that
were given out before, also those whose log entries a crash has taken."""

LEASES_LOST_MAX = 1 << 32
"""So many numbers are left out as well: the clock may have been set back, or be that of another
machine, which takes over without the last entries."""


TOPICS_TOGETHER = 256


def begin_life(state: State, journal: Journal, now: int, *, seqs_lost_max: int = 0) -> None:
    """Repair what a crash has left on the disk, and end the leases of the earlier life.

    Args:
        state: What the journal has replayed; changed in place.
        journal: Takes transactions from now on.
        now: The clock, ms since the epoch.
        seqs_lost_max: How many seqs of each topic the server before may have given out that are in
            no log.

    Raises:
        WalFull: No disk space for the repair.
        OSError: The directory cannot be changed.
    """
    journal.begin()
    state.next_lease = max(state.next_lease + LEASES_LOST_MAX, now << LEASES_PER_MS_BITS)
    if seqs_lost_max:
        _skip_seqs(state, journal, now, seqs_lost_max)
    for topic in state.instances.values():
        elapse(topic, now, jobs_max=None)
        if isinstance(topic, QueueTopic) and not topic.config.leases_durable:
            for released in [*end_leases(topic, now)]:
                journal.append(state, [released])
                apply(state, released)
    journal.flush_leases()
    state.discarded.clear()


def _skip_seqs(state: State, journal: Journal, now: int, count: int) -> None:
    """Give no seq a second time: who has read the first record of it would miss the second."""
    topics = [topic for topic in state.instances.values() if topic.is_on_disk]
    for start in range(0, len(topics), TOPICS_TOGETHER):
        skipped: list[ev.Event] = [
            ev.SeqsSkipped(now, topic.number, topic.head + 1, count)
            for topic in topics[start : start + TOPICS_TOGETHER]
        ]
        journal.append(state, skipped)
        for event in skipped:
            apply(state, event)
