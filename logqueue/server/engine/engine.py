"""Executes commands: clock, decide, log, apply. The one place where the core meets time and disk.

Owns: the state, the journal and the clock, and the order in which they act. Synchronous and
single-threaded, so that tests and simulations drive it step by step. Must not know: asyncio, HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar, Protocol, TypeVar, cast

from msgspec.structs import replace

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.apply import replacing
from logqueue.core.apply.dispatch import apply
from logqueue.core.apply.elapse import elapse
from logqueue.core.apply.rebuild import queues_to_restore, restore_leases, restore_memory
from logqueue.core.decide.copies import NO_ROOM
from logqueue.core.decide.decision import AfterApply, Decision
from logqueue.core.decide.dispatch import decide
from logqueue.core.decide.follow_ups import topics_written
from logqueue.core.decide.staging import restaged_ahead
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import (
    LogqueueError,
    NotReady,
    ReplicaUnavailable,
    StorageFull,
    StorageReadOnly,
    StorageUnreadable,
)
from logqueue.model import limits
from logqueue.model.clock import Clock
from logqueue.server.engine.pending import Executed
from logqueue.server.storage.compaction import Compaction, free, tidy_jobs, tidy_leases
from logqueue.server.storage.journal import Journal, is_kept
from logqueue.server.storage.segment_store import SegmentStore
from wal import WalError, WalFull

R = TypeVar("R")

FORWARD_PASSES_PER_TURN = 16
"""Router decisions in one turn of the event loop, a few milliseconds at most."""

FORWARDED_PER_TURN_MAX = 1000
"""Source records after which a turn ends; a batch that is shared may be larger."""

CATCH_UP_RECORDS_MAX = 4000
"""Source records that one read lets routers examine by itself. A read of a topic that is further
behind than that waits for them, a turn of the loop after the other: see `is_far_behind`."""


NO_WRITES = (StorageFull, StorageReadOnly, ReplicaUnavailable)
"""Refusals of a log that takes no changes now. They must not keep reads from being answered."""

DUE_AGAIN_MS = 1000
"""When due records are tried again that found no room where their copies go."""


EventListener = Callable[[Topic | None, ev.Event, Sequence[ev.JobChange]], None]
"""Called with each applied event, and what it means for jobs. Must be quick."""


class BacklogScheduler(Protocol):
    """Calls an engine again for work that one command does not wait for."""

    def forward_soon(self) -> None:
        """A router has something to copy; `Engine.forward` is due."""

    def elapse_soon(self) -> None:
        """Time has more to do than one look lets it do; `Engine.elapse_more` is due."""

    def fire_soon(self) -> None:
        """Schedules have changed: another may be the next to fire."""

    def end_batches_soon(self) -> None:
        """Batches are closed and have no jobs left: their ends are due."""


class Engine:
    """The state and what keeps it.

    Attributes:
        fires: Whether its schedules fire, and its batches end.
        segments: All segments of the logs, and of the archive.
        behind: The routers that have something to copy and are not stalled, by number.
        stalled: Those that wait for room in their destination.
        lagging: The topics on which time has more to do than one look has let it do. While there
            are none, and no router is behind, no read has anything to wait for.
        settling: Queues whose leases must not change now, by number: see `is_settling`.
        control_mark: Position of the latest change of which topics and routers there are: what
            "there is no such topic" may have been computed from.
    """

    fires: ClassVar[bool] = True

    def __init__(
        self,
        journal: Journal,
        segments: SegmentStore,
        clock: Clock,
        state: State,
        listeners: Iterable[EventListener] = (),
        on_expired: Callable[[Topic, int], None] | None = None,
    ) -> None:
        """Ready for commands.

        Args:
            journal: After `begin`.
            segments: Of that journal.
            clock: Read once per command.
            state: As `begin_life` left it.
            listeners: Called with each event from now on.
            on_expired: Called with the number of leases of a queue that were found to have
                expired, which is not an event; for metrics.
        """
        self.state = state
        self.journal = journal
        self.segments = segments
        self.clock = clock
        self.control_mark = 0
        self._listeners = tuple(listeners)
        self._on_expired = on_expired
        self._scheduler: BacklogScheduler | None = None
        self.behind: dict[int, None] = {}
        self.lagging: dict[int, None] = {}
        self.stalled: set[int] = set()
        self._fed: dict[int, Topic] = {}
        self.settling: frozenset[int] = frozenset()
        if state.routers:
            for topic in state.instances.values():
                self._note_routers(topic)

    def listen(self, listener: EventListener) -> None:
        """Add a listener for every event from now on."""
        self._listeners = (*self._listeners, listener)

    def schedule_backlog(self, scheduler: BacklogScheduler) -> None:
        """Register what is called when commands leave work to be done."""
        self._scheduler = scheduler
        if self.behind:
            scheduler.forward_soon()
        if self.lagging:
            scheduler.elapse_soon()

    def execute(self, command: cmd.Command[R], now: int | None = None) -> Executed[R]:
        """Decide a command, log and apply what follows from it. Commands that are carried out in
        portions are more than one decision: see `portions`.

        The result must not be shown before the returned positions are reached.

        Args:
            command: What is wanted.
            now: The clock in ms since the epoch, where it was read for this command already.

        Raises:
            LogqueueError: The command is refused; the refusal too must wait for its topic's marks.
        """
        if now is None:
            now = self.clock.now_ms()
        state = self.state
        topic: Topic | None = state.topics.get(command.topic)
        kind = type(command if not isinstance(command, cmd.Cohort) else command.members[0])
        if topic is not None:
            if self.settling and kind.leases_only and self.is_settling(topic):
                raise NotReady(
                    f"leases of '{topic.name}' cannot change while they are brought in line with "
                    "the durable content of the failed log; nothing was done: try again in a second"
                )
            if topic.replacing:
                replacing.finish(state, topic)
            self._advance_time(topic, now)
            # Copies must find the room that time has made where they go.
            if kind.makes_copies:
                for target in (topic.config.archive, topic.config.dead_letter):
                    if target is not None and target in state.topics:
                        replacing.finish(state, state.topics[target])
                        self._advance_time(state.topics[target], now)
            if kind is cmd.ClaimJobs and self.behind:
                self._catch_up(topic, now)
        may_use_spare: bool | None = None
        if isinstance(command, cmd.AckJobs) and topic is not None:
            # Room that is left to acks is not for writes that come with them.
            may_use_spare = False if command.append else None
            if command.append or topic.has_steps:
                for written in topics_written(state, command):
                    replacing.finish(state, written)
                    self._advance_time(written, now)
        if isinstance(command, cmd.CommitEpoch):
            for part in restaged_ahead(state, command):
                self._commit(part)
        decision = decide(state, command, now)
        try:
            return self._carry_out(decision, topic, now, may_use_spare)
        except NO_WRITES:
            if not isinstance(command, cmd.ClaimJobs) or not command.divert:
                raise
            # A log that takes no dead letters must not stop other jobs from being claimed.
            undiverted = cast("cmd.Command[R]", replace(command, divert=False))
            return self.execute(undiverted, now)

    def _carry_out(
        self, decision: Decision[R], topic: Topic | None, now: int, may_use_spare: bool | None
    ) -> Executed[R]:
        events = decision.events
        changed = self._commit(events, may_use_spare)
        if topic is not None and topic not in changed:
            changed = (*changed, topic)
        for other in changed:
            if other is not topic and other.replacing:
                self._note_lagging(other)
        if topic is not None and events:
            is_lagging = bool(topic.replacing)
            if isinstance(topic, QueueTopic):
                order = topic.queue.order
                is_building = order is not None and order.is_building
                is_lagging = is_lagging or topic.queue.returning > 0 or is_building
            if is_lagging:
                self._advance_time(topic, now)
            if topic.attributes is not None or topic.config.ttl_ms or topic.is_trimming:
                # A job that came back to a key that a newer one has ends before it is visible.
                self._take_due(topic, now)
        result = decision.result
        if isinstance(result, AfterApply):
            result = result.read()
        if not changed:
            return Executed(result, 0, self.control_mark)
        if len(changed) == 1:
            return Executed(result, changed[0].mark_written, changed[0].mark_durable, changed)
        return _executed(result, changed)

    def topic_now(self, name: str, now: int | None = None) -> Topic:
        """A topic as of now, for reads.

        Args:
            name: The topic.
            now: The clock in ms since the epoch, where the caller has read it already.

        Raises:
            TopicNotFound: There is none.
        """
        topic = self.state.topic(name)
        self._bring_up_to_date(topic, now)
        return topic

    def queue_now(self, name: str, now: int | None = None) -> QueueTopic:
        """The same for a queue.

        Raises:
            TopicNotFound, NotAQueue: There is no such queue.
        """
        queue = self.state.queue(name)
        self._bring_up_to_date(queue, now)
        return queue

    def _bring_up_to_date(self, topic: Topic, now: int | None) -> None:
        replacing.finish(self.state, topic)
        if now is None:
            now = self.clock.now_ms()
        if self.behind:
            self._catch_up(topic, now)
        self._advance_time(topic, now)

    def settle_replaced(self, topic: Topic, now: int) -> None:
        """Bring a portion of what a write has replaced into its place."""
        self._advance_time(topic, now)

    def lapse(self, topic: Topic, now: int) -> None:
        """Let time act on leases and delays only."""
        if topic.replacing or self.is_settling(topic):
            return
        self._elapse(topic, now)

    def _advance_time(self, topic: Topic, now: int) -> None:
        """A portion of what is due; the rest is noted, for `elapse_more`. What a write has left
        comes first."""
        if self.settling and self.is_settling(topic):
            return
        if topic.replacing:
            replacing.go_on(self.state, topic)
            self._note_lagging(topic)
            return
        if isinstance(topic, QueueTopic) and (topic.queue.returning or topic.queue.rests_to < now):
            self._elapse(topic, now)
        # Nothing else is ever due.
        if topic.attributes is not None or topic.config.ttl_ms or topic.is_trimming:
            self._take_due(topic, now)

    def _elapse(self, topic: Topic, now: int) -> None:
        """Let time act on leases and delays, and count the leases that have expired."""
        if not isinstance(topic, QueueTopic):
            return
        queue = topic.queue
        before = queue.lapses
        if elapse(topic, now):
            self._note_lagging(topic)
        if queue.lapses != before and self._on_expired is not None:
            self._on_expired(topic, queue.lapses - before)

    def _take_due(self, topic: Topic, now: int) -> None:
        is_there = self.state.instances.get(topic.number) is topic
        is_at_rest = topic.replacing or now < topic.due_again_at
        if not is_there or is_at_rest or not topic.is_due(now):
            return
        try:
            events = decide(self.state, cmd.Expire(topic.name), now).events
            self._commit(events)
        except NO_WRITES:
            # A read-only log must not block reads: records past their
            # TTL are passed over until it takes their eviction.
            return
        except (*NO_ROOM, StorageUnreadable):
            topic.due_again_at = now + DUE_AGAIN_MS
            return
        if events and topic.is_due(now):
            self._note_lagging(topic)

    def _note_lagging(self, topic: Topic) -> None:
        was_lagging = bool(self.lagging)
        self.lagging[topic.number] = None
        if not was_lagging and self._scheduler is not None:
            self._scheduler.elapse_soon()

    def elapse_more(self) -> tuple[Topic, ...]:
        """Let time act on, a portion on one topic; the topic, when it is still there."""
        while self.lagging:
            number = next(iter(self.lagging))
            del self.lagging[number]
            topic = self.state.instances.get(number)
            if topic is not None:
                self._advance_time(topic, self.clock.now_ms())
                return (topic,)
        return ()

    def _commit(
        self, events: list[ev.Event], may_use_spare: bool | None = None
    ) -> tuple[Topic, ...]:
        """Log, then apply; nothing can refuse once the log has taken the events."""
        state = self.state
        if not events:
            return ()
        if self.settling and any(event.topic in self.settling for event in events):
            raise StorageReadOnly.because(self.journal.jobs.failure)
        position = self.journal.append(state, events, may_use_spare)
        changed: dict[int, Topic] = {}
        is_control = False
        for event in events:
            topic = state.instances.get(event.topic)
            # What a topic that is not logged gets by a logged decision is in no segment.
            is_logged = position.segment and (
                len(events) == 1 or topic is None or is_kept(topic, event)
            )
            apply(state, event, position.segment if is_logged else 0, at_once=False)
            if topic is None:
                topic = state.instances.get(event.topic)
            if topic is not None:
                changed[event.topic] = topic
                if position.synced:
                    topic.mark_durable = position.number
                elif position.number:
                    topic.mark_written = position.number
            if event.changes_topology:
                self.control_mark = position.number
                is_control = True
            changes = tuple(event.job_changes())
            for listener in self._listeners:
                listener(topic, event, changes)
        if state.routers:
            for topic in changed.values():
                self._note_routers(topic)
        if is_control and self._scheduler is not None and len(state.schedules):
            self._scheduler.fire_soon()
        if state.batches.due and self._scheduler is not None:
            self._scheduler.end_batches_soon()
        return tuple(changed.values())

    # -- routers ---------------------------------------------------------------------------------

    def _note_routers(self, topic: Topic) -> None:
        """A topic has changed: routers from it may have work, routers into it may find room."""
        state = self.state
        was_behind = bool(self.behind)
        for router in state.routers_out.get(topic.number, ()):
            if router.cursor < topic.head and router.number not in self.stalled:
                self.behind[router.number] = None
        if self.stalled:
            for router in state.routers_in.get(topic.number, ()):
                if router.number in self.stalled:
                    self.stalled.discard(router.number)
                    self.behind[router.number] = None
        if self.behind and not was_behind and self._scheduler is not None:
            self._scheduler.forward_soon()

    def retry_stalled(self) -> None:
        """Time may have made room where a router found none."""
        stalled, self.stalled = self.stalled, set()
        for number in stalled:
            self.behind[number] = None

    def forward(self, passes_max: int = FORWARD_PASSES_PER_TURN) -> tuple[Topic, ...]:
        """Let routers that are behind copy, in turn, one decision each.

        Args:
            passes_max: Decisions at most, so that others get their turn.

        Returns:
            Topics that were changed since the last call, also by the catching up of reads.
        """
        left = FORWARDED_PER_TURN_MAX
        for _ in range(passes_max):
            if left <= 0:
                break
            number = next((n for n in self.behind if not self._replacing_before(n)), None)
            if number is None:
                break
            left -= self._forward_one(number, self.clock.now_ms())
        fed, self._fed = self._fed, {}
        return tuple(fed.values())

    def _replacing_before(self, number: int) -> Topic | None:
        """The source or destination of a router where a write is not in its place yet."""
        state = self.state
        router = state.routers_by_number.get(number) if state.replacing else None
        if router is None:
            return None
        return state.replacing.get(router.source) or state.replacing.get(router.dest)

    def _forward_one(self, number: int, now: int) -> int:
        """One decision of one router; it goes to the end of the line when there is more to do.

        Returns:
            How many seqs of its source it has examined.
        """
        self.behind.pop(number, None)
        router = self.state.routers_by_number.get(number)
        if router is None:
            return 0
        before = router.cursor
        replacing.finish(self.state, self.state.instances[router.source])
        replacing.finish(self.state, self.state.instances[router.dest])
        self._advance_time(self.state.instances[router.source], now)
        self._advance_time(self.state.instances[router.dest], now)
        try:
            decision = decide(self.state, cmd.Forward(number), now)
            for topic in self._commit(decision.events):
                self._fed[topic.number] = topic
        except (StorageFull, StorageUnreadable, ReplicaUnavailable):
            self.stalled.add(number)
            return 0
        except StorageReadOnly:
            return 0
        forwarded = decision.settle()
        if forwarded.is_stalled:
            self.behind.pop(number, None)
            self.stalled.add(number)
        elif forwarded.is_behind:
            self.behind[number] = None
        return router.cursor - before

    def _feeding(self, topic: Topic) -> list[int]:
        """The routers that feed a topic, directly or through others, and have something to copy;
        the most distant first."""
        upstream: dict[int, None] = {}
        pending = [topic.number]
        for number in pending:
            for router in self.state.routers_in.get(number, ()):
                if router.number not in upstream:
                    upstream[router.number] = None
                    pending.append(router.source)
        return [number for number in reversed(upstream) if number in self.behind]

    def is_far_behind(self, name: str) -> bool:
        """Whether what feeds a topic has more to copy than one read should wait for in one step, or
        more of a queue's jobs are to come back before the next claim; `catch_up` it bit by bit
        then."""
        topic: Topic | None = self.state.topics.get(name)
        if topic is None:
            return False
        if not self.is_settling(topic) and (topic.replacing or _is_short_of_returning(topic)):
            return True
        left = CATCH_UP_RECORDS_MAX
        for number in self._feeding(topic):
            if self._replacing_before(number):
                return True
            router = self.state.routers_by_number[number]
            left -= self.state.instances[router.source].head - router.cursor
        return left < 0

    def catch_up(self, name: str) -> None:
        """One decision of a router that feeds a topic; or some jobs that are to come back do."""
        topic: Topic | None = self.state.topics.get(name)
        now = self.clock.now_ms()
        if topic is not None and (topic.replacing or _is_short_of_returning(topic)):
            self._advance_time(topic, now)
            return
        feeding = self._feeding(topic) if topic is not None else []
        if feeding:
            unfinished = self._replacing_before(feeding[0])
            if unfinished is not None:
                self._advance_time(unfinished, now)
            else:
                self._forward_one(feeding[0], now)

    def _catch_up(self, topic: Topic, now: int) -> None:
        """Let what feeds a topic copy before the topic is read."""
        left = CATCH_UP_RECORDS_MAX
        while left > 0 and (feeding := self._feeding(topic)):
            left -= max(self._forward_one(feeding[0], now), 1)

    def expire(self, topic: Topic) -> None:
        """Evict what is past its TTL from a topic that may not be accessed."""
        now = self.clock.now_ms()
        if topic.is_due(now):
            self._advance_time(topic, now)

    def rebuild_durable(self) -> Generator[Callable[[], None], None, None]:
        """Fall back to the durable content of a failed log, with all that memory knows beyond it:
        leases, delivery counts, delays, errors, and topics that are never logged.

        Until the end everything is answered from the present state. What takes long is made beside
        it; while leases go over, those of logged queues stay as they are: see `is_settling`.

        Yields:
            What takes long: call it, beside the event loop if there is one, before going on. It
            raises WalError or OSError when the log cannot even be read; close this then.
        """
        for topic in [*self.state.replacing.values()]:
            replacing.finish(self.state, topic)
        promised = State(self.state.quotas, self.journal.payloads)
        yield partial(self.journal.replay_promised, promised)
        self.settling = queues_to_restore(self.state, promised)
        try:
            yield partial(restore_leases, self.state, promised)
        finally:
            self.settling = frozenset()
        self._adopt(promised)

    def is_settling(self, topic: Topic) -> bool:
        """Whether the leases of a queue must not change now, for a second or so: they move to
        the durable content of the failed log. Claims wait or are refused meanwhile, and time
        rests."""
        return topic.number in self.settling

    def _adopt(self, promised: State) -> None:
        log = self.journal.jobs
        restore_memory(self.state, promised, log.written, log.durable)
        self.state = promised
        self.control_mark = 0
        self.behind.clear()
        self.stalled.clear()
        now = self.clock.now_ms()
        for topic in promised.instances.values():
            self.lapse(topic, now)
        self._fed.clear()
        for topic in promised.instances.values():
            self._note_routers(topic)

    # -- disk space ------------------------------------------------------------------------------

    def tidy(self) -> Iterator[None]:
        """Evict what is due, and give memory and disk space back, in small steps.

        The log is the store: the oldest segment's live records are rewritten at the tail, then
        the segment is dropped. Done while more than about half of the log is garbage, so every
        live byte is rewritten at most about once per byte of garbage.

        Yields:
            After each step. Go on when the journal has advanced or there is nothing better to do.

        Raises:
            StorageFull, StorageReadOnly, WalError, OSError: Not all of it could be done. Nothing
                that is needed is dropped; call again later.
        """
        work = self.compaction()
        yield from self.journal.offload()
        yield from free(work.state)
        if work.state.producers:
            # A read-only log must block neither evictions nor the freeing of space.
            with suppress(*NO_WRITES):
                self.execute(cmd.ExpireStaged())
        if len(work.state.batches):
            with suppress(*NO_WRITES):
                self.execute(cmd.ExpireBatches())
        refusal: Exception | None = None
        try:
            yield from self._between_writes(work.state, tidy_jobs(work))
        except (LogqueueError, WalError, OSError) as error:
            # What keeps one log from giving space back must not keep the other.
            refusal = error
        yield from self._between_writes(work.state, tidy_leases(work))
        if refusal is not None:
            raise refusal

    def compaction(self) -> Compaction:
        """What a run that gives space back works on: the state as of now."""
        return Compaction(
            self.state,
            self.journal,
            self.segments,
            self.clock.now_ms,
            self.commit_housekeeping,
            self.expire,
        )

    def _between_writes(self, state: State, steps: Iterator[None]) -> Iterator[None]:
        """Steps that find each write in its place, while their state is the one that counts."""
        while self.state is state:
            for topic in self.state.replacing.values():
                self._advance_time(topic, self.clock.now_ms())
                break
            else:
                if next(steps, steps) is steps:
                    return
            yield

    def commit_housekeeping(self, events: list[ev.Event], *, may_use_spare: bool = True) -> None:
        """Log and apply events without a visible effect.

        Raises:
            StorageFull: No room, or only what is spared for acks and deletes.
        """
        self._commit(events, may_use_spare=may_use_spare)

    def shut_down(self) -> None:
        """Log a last checkpoint that marks an orderly end, and close the logs and the archive."""
        journal = self.journal
        now = self.clock.now_ms()
        for topic in [*self.state.replacing.values()]:
            replacing.finish(self.state, topic)
        journal.housework.end()
        try:
            # Without room for them the next start merely has more to replay.
            with suppress(WalFull):
                if journal.jobs.failure is None:
                    journal.checkpoint(self.state, now, clean=True)
            with suppress(WalFull):
                if journal.leases.failure is None:
                    journal.leases.roll()
                    for _ in journal.checkpoint_leases(self.state, now):
                        pass
        finally:
            self.close()

    def close(self) -> None:
        """Close the logs and the archive; nothing is logged from then on."""
        try:
            self.journal.close()
        finally:
            self.segments.close()


def _executed(result: R, topics: tuple[Topic, ...]) -> Executed[R]:
    written = durable = 0
    for topic in topics:
        written = max(written, topic.mark_written)
        durable = max(durable, topic.mark_durable)
    return Executed(result, written, durable, topics)


def _is_short_of_returning(topic: Topic) -> bool:
    """Whether jobs are still to come back, and those that have could be fewer than a pass takes; or
    the order of claims is being made."""
    if not isinstance(topic, QueueTopic):
        return False
    queue = topic.queue
    is_short = queue.returning > 0 and len(queue.reclaim) < limits.CLAIMED_PER_PASS_MAX
    return is_short or (queue.order is not None and queue.order.is_building)
