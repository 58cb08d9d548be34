"""Replay: the transactions of both logs, one after the other, become a state.

Owns: what a transaction of either log changes, the order in which transactions of two logs that
grow apart from each other are taken, and what is settled before the state is read. A start takes
all there is and is done; a standby continues with what comes. Must not know: files, who asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from logqueue import events as ev
from logqueue.core.apply.append_runs import in_runs
from logqueue.core.apply.checkpoints import introduce
from logqueue.core.apply.dispatch import apply
from logqueue.core.apply.replay import (
    count_leases,
    end_alone,
    finish_replay,
    settle_replay,
)
from logqueue.core.state import State
from logqueue.events import split_block
from logqueue.server.storage.gaps import Gaps
from wal import Frame

HELD_MAX = 100_000
"""Transactions of one log that wait for those of the other, at most."""


class LogEntry(NamedTuple):
    """A transaction as it was read.

    Attributes:
        order: Its number; the highest, if it replaces several.
        place: Which log, 0 for jobs and 1 for leases.
        segment: Id of the segment.
        transaction: What it says.
        frame: What holds it; the last, if there are several.
        begins: Its number; the lowest, if it replaces several.
    """

    order: int
    place: int
    segment: int
    transaction: ev.Transaction
    frame: Frame
    begins: int


class OrderViolated(Exception):
    """A transaction came after later ones were taken: replay both logs from the beginning."""


class LogReplay:
    """Brings a state to where the transactions that it is given end.

    Attributes:
        last_order: Number of the latest transaction.
        last_at: The latest time that an event of the jobs log has, ms since the epoch.
        is_clean: Whether the jobs log ends in an orderly shutdown.
        kept_from: First segment of the jobs log that must be there, as its events say.
        checkpointed: Segments of the jobs log that begin with a checkpoint.
    """

    def __init__(
        self, state: State, reach: Callable[[Frame], None], *, last_order: int = 0
    ) -> None:
        """Begin with an empty state.

        Args:
            state: Changed in place, through the same `apply` as live.
            reach: Called before the events of a frame of the jobs log are applied.
            last_order: At least the number of the latest transaction.
        """
        self.last_order = last_order
        self.last_at = 0
        self.is_clean = True
        self.kept_from = 0
        self.checkpointed: set[int] = set()
        self._state = state
        self._reach = reach
        self._gaps = Gaps()
        self._has_begun = False

    def open(self, opening: Iterable[LogEntry]) -> None:
        """Make the topics known of the checkpoint that the jobs log begins with, whatever lease
        events are older. The entries are still to be taken."""
        for entry in opening:
            for event in entry.transaction.events:
                if type(event) is ev.Checkpointed:
                    introduce(self._state, event)

    def take(self, entry: LogEntry) -> None:
        """Apply a transaction."""
        order, place, segment, transaction, frame, _ = entry
        if order > self.last_order:
            self.last_order = order
        events = transaction.events
        state, gaps = self._state, self._gaps
        if not events:
            gaps.note(state, place)
            return
        if place:
            self._take_leases(events)
            return
        self._has_begun = True
        self._reach(frame)
        for event in events:
            if gaps.count:
                gaps.check(state, event)
            self.is_clean = False
            if event.at > self.last_at:
                self.last_at = event.at
            apply(state, event, segment)
            self.kept_from = max(self.kept_from, event.needed_from())
            if isinstance(event, ev.Checkpointed):
                self.is_clean = event.clean
                if not event.more:
                    self.checkpointed.add(event.first_segment or segment)

    def pass_over(self, entry: LogEntry) -> None:
        """The same for a transaction of the jobs log that does not count."""
        self._has_begun = True

    def settle(self) -> None:
        """Make the state one that can be read, and that later transactions continue: what a start
        settles at the end, but for what only a writer may do."""
        if self._gaps.count:
            self._gaps.close(self._state)
        settle_replay(self._state)

    def finish(self, *, is_clean: bool | None = None) -> None:
        """No more comes: settle what only the end of both logs can tell.

        Args:
            is_clean: Whether the log ends in an orderly shutdown; None for what it says itself.
        """
        if self._gaps.count:
            self._gaps.close(self._state)
        finish_replay(self._state, self.is_clean if is_clean is None else is_clean)

    def _take_leases(self, events: Iterable[ev.Event]) -> None:
        state = self._state
        for event in events:
            if event.at > self.last_at:
                self.last_at = event.at
            topic = state.instances.get(event.topic)
            if topic is None:
                count_leases(state, event)
            elif not type(event).log & ev.JOBS:
                apply(state, event)
            elif not self._has_begun:
                # The segment of the jobs log that says which of these jobs ended is gone.
                # Otherwise that log says which are done or held; here that is history only.
                end_alone(topic, event)


def in_order(jobs: Iterator[LogEntry], leases: Iterator[LogEntry]) -> Iterator[LogEntry]:
    """Both logs in the order of decisions; of the same decision, the jobs log first."""
    lease = next(leases, None)
    for entry in jobs:
        while lease is not None and lease.order < entry.order:
            yield lease
            lease = next(leases, None)
        yield entry
    if lease is not None:
        yield lease
        yield from leases


def joined(entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
    """Transactions of the jobs log in their order, neighbouring appends of few records as one.

    A start has many of them where producers did not batch. The one is what holds the last frame.
    """
    # The data of larger blocks leaves memory by itself.
    for run in in_runs(entries, split_block.SPLIT_FROM_BYTES):
        first, last = run.entries[0], run.entries[-1]
        if len(run.entries) == 1:
            yield last if run.order == last.order else last._replace(order=run.order)
        else:
            transaction = ev.Transaction(run.order, [run.joined()])
            yield last._replace(order=run.order, transaction=transaction, begins=first.begins)


class TransactionOrder:
    """Puts transactions of two logs in order that arrive log by log.

    Every transaction of both logs has a number of its own, so a gap in the numbers is one of the
    other log that is still to come: what follows waits for it. It may also be lost for ever, with
    the unwritten end of a leases log; the caller of `take` decides how long to wait.
    """

    def __init__(self) -> None:
        """Nothing has come."""
        self._waiting: tuple[deque[LogEntry], deque[LogEntry]] = deque(), deque()
        self._last: int | None = None

    @property
    def held(self) -> int:
        """How many wait for others."""
        return sum(map(len, self._waiting))

    def add(self, entry: LogEntry) -> None:
        """The next transaction of its log.

        Raises:
            OrderViolated: A later one of the other log was taken already.
        """
        if self._last is None:
            self._last = entry.begins - 1
        if entry.order < self._last:
            raise OrderViolated(
                f"transaction {entry.order} came when {self._last} had been taken already"
            )
        self._waiting[entry.place].append(entry)

    def take(self, *, everything: bool = False) -> Iterator[LogEntry]:
        """Those whose turn it is.

        Args:
            everything: Wait for nothing.
        """
        jobs, leases = self._waiting
        while jobs or leases:
            if jobs and leases:
                first = leases if leases[0].order < jobs[0].order else jobs
            else:
                first = jobs or leases
                assert self._last is not None
                is_next = first[0].begins <= self._last + 1
                if not is_next and not everything and len(first) < HELD_MAX:
                    return
            entry = first.popleft()
            self._last = entry.order
            yield entry
