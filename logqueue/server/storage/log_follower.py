"""The state of logs that grow without this server: what a standby reads.

Owns: what of the logs is in the state by now, and that the state can be read after each
transaction. Must not know: where frames come from, asyncio, HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from logqueue import events as ev
from logqueue.core.apply.elapse import elapse
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.segments.index import LogName
from logqueue.server.storage.journal import Journal, decoded
from logqueue.server.storage.log_replay import LogEntry, LogReplay, TransactionOrder
from wal import Frame, SegmentHeader

PLACES: dict[LogName, int] = {"jobs": 0, "leases": 1}


class LogFollower:
    """Brings a state to where two logs end, and on as they grow.

    Attributes:
        journal: Opened and never begun.
        state: Changed in place.
    """

    def __init__(self, journal: Journal, state: State) -> None:
        """Begin with an empty state."""
        self.journal = journal
        self.state = state
        self._order = TransactionOrder()
        self._replay = LogReplay(state, self._reach)
        self._is_loading = False
        # Topics of which something was applied that routers may have copied.
        self._routed: set[int] = set()

    @property
    def last_at(self) -> int:
        """The latest time that an event in the state has, ms since the epoch: so far, time has
        acted for the writer, too."""
        return self._replay.last_at

    @property
    def last_order(self) -> int:
        """Number of the latest transaction in the state."""
        return self._replay.last_order

    @property
    def held(self) -> int:
        """Transactions that wait for earlier ones of the other log."""
        return self._order.held

    def load(self, progress: Callable[[float], None] = lambda share: None) -> None:
        """Replay what is there. Blocks on the disk.

        Args:
            progress: Called now and then with the share done, 0.0 to 1.0.

        Raises:
            WalCorrupt: The logs must be refused.
        """
        self._is_loading = True
        order, replay = self._order, self._replay
        history = self.journal.history(replay, lambda done, total: progress(done / total))
        for entry in history:
            order.add(entry)
            for ready in order.take():
                replay.take(ready)
        self.journal.require_whole(replay.kept_from)
        replay.settle()
        self.journal.order = replay.last_order + 1
        self._is_loading = False

    def note_growth(
        self, log: LogName, header: SegmentHeader, end: int, last: int, frames: Iterable[Frame]
    ) -> list[LogEntry]:
        """Frames were added to a file of a log. May be called in any thread.

        Returns:
            What they say, for `add`.

        Raises:
            WalCorrupt: A frame holds what this version cannot read.
        """
        grown = self.journal.logs[log]
        grown.note_growth(header, end, last)
        return [*decoded(frames, grown.directory, PLACES[log], self.journal.payloads)]

    def add(self, entries: Iterable[LogEntry]) -> None:
        """Transactions of one log, in order, to be taken when their turn comes.

        Raises:
            OrderViolated: Later ones of the other log are in the state already: replay both logs
                from the beginning.
        """
        for entry in entries:
            self._order.add(entry)

    def take(self, *, everything: bool = False) -> Iterator[LogEntry | None]:
        """Bring transactions into the state. Call `catch_up` before it is read.

        Args:
            everything: Also those that wait for earlier ones of the other log.

        Yields:
            Each one, applied; None where more is to be done before the next one, so that others may
            get their turn.
        """
        for entry in self._order.take(everything=everything):
            yield from self._let_time_act(entry.transaction.events)
            self._replay.take(entry)
            if self.state.routers:
                self._routed.update(event.topic for event in entry.transaction.events)
            yield entry

    def catch_up(self) -> None:
        """Make the state whole up to the last transaction that was taken."""
        state = self.state
        self.journal.order = self._replay.last_order + 1
        while self._routed:
            topic = self._routed.pop()
            for router in (*state.routers_in.get(topic, ()), *state.routers_out.get(topic, ())):
                # What is not logged has not come here, and nothing of it is to be copied.
                router.cursor = min(router.cursor, state.instances[router.source].head)

    def _let_time_act(self, events: Iterable[ev.Event]) -> Iterator[None]:
        """The writer has let time act on each queue before it decided: jobs are in those places
        then."""
        instances = self.state.instances
        for event in events:
            topic = instances.get(event.topic)
            if isinstance(topic, QueueTopic):
                queue = topic.queue
                if queue.returning or queue.rests_to < event.at:
                    while elapse(topic, event.at):
                        yield

    def _reach(self, frame: Frame) -> None:
        if self._is_loading:
            self.journal.reach(frame)
        else:
            # Data of older segments leaves memory in the background.
            self.journal.payloads.in_frame(frame.segment, frame.offset, (frame.payload,))
