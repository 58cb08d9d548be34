"""Executes commands: clock, decide, log, apply. The one place where the core meets time and disk.

Owns: the state, the journal and the clock, and the order in which they act. Synchronous and
single-threaded, so that tests and simulations drive it step by step. Must not know: asyncio, HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from logqueue.clock import Clock
from logqueue.core import commands as cmd
from logqueue.core import events as ev
from logqueue.core.apply import apply, elapse
from logqueue.core.decide import decide
from logqueue.core.decision import Decision
from logqueue.core.limits import Quotas
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import StorageFull, StorageReadOnly
from logqueue.server.journal import Journal
from wal import WalFull

LEASES_PER_MS_BITS = 16
"""A lease number is at least the clock shifted by this much at every start, so it exceeds all that
were given out before, also those whose log entries a crash has taken."""


class Outcome(NamedTuple):
    """A reply with the position of the jobs log it must wait for.

    Attributes:
        written, durable: Frame numbers that must be written, or synced, before the reply leaves.
        topics: Topics that were changed.
    """

    reply: cmd.Reply
    written: int
    durable: int
    topics: tuple[Topic, ...] = ()


class Engine:
    """The state and what keeps it.

    Attributes:
        dropped_mark: Position of the latest deletion of a topic: what "there is no such topic" may
            have been computed from.
        on_event: Called with each applied event; for metrics. None by default.
    """

    def __init__(self, journal: Journal, clock: Clock, quotas: Quotas | None = None) -> None:
        self.state = State(quotas)
        self.journal = journal
        self.clock = clock
        self.dropped_mark = 0
        self.on_event: Callable[[Topic | None, ev.AnyEvent], None] | None = None

    def recover(self, progress: Callable[[float], None] | None = None) -> None:
        """Replay both logs. Call once, before the first command.

        Raises:
            WalCorrupt: A frame can not be read.
        """
        state = self.state
        self.journal.replay(state, progress)
        now = self.clock.now_ms()
        state.next_lease = max(state.next_lease + 1, now << LEASES_PER_MS_BITS)
        for topic in state.instances.values():
            elapse(topic, now)

    def execute(self, command: cmd.Command) -> Outcome:
        """Decide a command, log and apply what follows from it.

        The reply must not leave before the returned positions are reached.

        Raises:
            LogqueueError: The command is refused; the refusal too must wait for its topic's marks.
        """
        now = self.clock.now_ms()
        state = self.state
        topic: Topic | None = state.topics.get(command.topic)
        if topic is not None:
            self._let_time_act(topic, now)
            if type(command) is cmd.Claim and topic.config.dead_letter in state.topics:
                # Dead letters must find the room that time has made where they go.
                self._let_time_act(state.topics[topic.config.dead_letter], now)
        decision = decide(state, command, now)
        if type(command) is cmd.Claim and command.divert:
            return self._claim(command, decision, topic)
        return self._carry_out(decision, topic)

    def _claim(self, command: cmd.Claim, decision: Decision, topic: Topic | None) -> Outcome:
        """Carry out a claim; a disk without room for dead letters must not stop the others."""
        try:
            return self._carry_out(decision, topic)
        except StorageFull:
            return self.execute(cmd.Claim(command.topic, command.cohort, divert=False))

    def _carry_out(self, decision: Decision, topic: Topic | None) -> Outcome:
        if not decision.events:
            if topic is None:
                return Outcome(decision.answer(), 0, self.dropped_mark)
            return self._outcome(decision.answer(), (topic,))
        changed = self._commit(decision.events)
        if topic is not None and topic not in changed:
            changed = (*changed, topic)
        return self._outcome(decision.answer(), changed)

    def look(self, name: str) -> Topic:
        """A topic as of now, for reads.

        Raises:
            TopicNotFound: There is none.
        """
        topic = self.state.topic(name)
        self._let_time_act(topic, self.clock.now_ms())
        return topic

    def _let_time_act(self, topic: Topic, now: int) -> None:
        elapse(topic, now)
        if topic.is_due(now):
            # A log that takes no more must not keep anybody from looking: records past their TTL
            # are passed over until it takes their eviction.
            with suppress(StorageFull, StorageReadOnly):
                self._commit(decide(self.state, cmd.Expire(topic.name), now).events)

    def _commit(self, events: list[ev.AnyEvent]) -> tuple[Topic, ...]:
        """Log, then apply; nothing can refuse once the log has taken the events."""
        state = self.state
        if not events:
            return ()
        position = self.journal.append(state, events)
        changed: dict[int, Topic] = {}
        for event in events:
            topic = state.instances.get(event.topic)
            apply(state, event, position.segment)
            if topic is None:
                topic = state.instances.get(event.topic)
            if topic is not None:
                changed[event.topic] = topic
                if position.synced:
                    topic.mark_durable = position.number
                elif position.number:
                    topic.mark_written = position.number
            if type(event) is ev.TopicDropped:
                self.dropped_mark = position.number
            if self.on_event is not None:
                self.on_event(topic, event)
        return tuple(changed.values())

    @staticmethod
    def _outcome(reply: cmd.Reply, topics: tuple[Topic, ...]) -> Outcome:
        written = durable = 0
        for topic in topics:
            written = max(written, topic.mark_written)
            durable = max(durable, topic.mark_durable)
        return Outcome(reply, written, durable, topics)

    def expire_due(self) -> None:
        """Evict what is past its TTL from topics that nobody looks at."""
        now = self.clock.now_ms()
        for topic in list(self.state.instances.values()):
            if topic.is_due(now):
                self._let_time_act(topic, now)

    def retreat(self) -> State:
        """What a failed log still stands for, as a new state to `stand_on`.

        Reads only files, so it may run beside the event loop.

        Raises:
            WalError, OSError: The log can not even be read.
        """
        state = State(self.state.quotas)
        self.journal.replay_promised(state)
        return state

    def stand_on(self, state: State) -> None:
        """Take the state of a retreat for the present one.

        Topics that are never logged go on as they are: the failed log says nothing about them.
        """
        now = self.clock.now_ms()
        state.next_lease = max(state.next_lease, self.state.next_lease)
        state.next_topic = max(state.next_topic, self.state.next_topic)
        for topic in list(state.instances.values()):
            present = self.state.instances.get(topic.number)
            if present is not None and not present.config.is_logged:
                state.topics[present.name] = state.instances[present.number] = present
            elapse(topic, now)
        self.state = state

    # -- disk space ------------------------------------------------------------------------------

    def tidy(self) -> Iterator[None]:
        """Give disk space back, in small steps.

        The log is the store: the oldest segment's live records are written anew at the tail, then
        the segment is dropped. Done while more than about half of the log is garbage, so every
        live byte is rewritten at most about once per byte of garbage.

        Yields:
            After each step. Go on when the journal has advanced or there is nothing better to do.
        """
        from logqueue.server.tidying import tidy_jobs, tidy_leases

        yield from tidy_jobs(self)
        yield from tidy_leases(self)

    def commit_housekeeping(self, events: list[ev.AnyEvent]) -> None:
        """Log and apply events that change nothing anybody can see."""
        self._commit(events)

    def shut_down(self) -> None:
        """Log a last checkpoint that marks an orderly end, and close the journal."""
        journal = self.journal
        now = self.clock.now_ms()
        try:
            # Without room for them the next start merely has more to replay.
            with suppress(WalFull):
                if journal.jobs.failure is None:
                    journal.checkpoint(self.state, now, clean=True)
            with suppress(WalFull):
                if journal.leases.failure is None:
                    journal.checkpoint_leases(self.state, now)
        finally:
            journal.close()
