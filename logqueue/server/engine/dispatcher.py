"""One place that serves all callers: commands, coalesced claims and work streams.

Owns: when a queue's waitlist is served, the pass that serves it, and the one timer that wakes work
when time makes jobs claimable. Must not know: HTTP, how jobs look on the wire, how decisions are
made.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, NoReturn, TypeVar

from logqueue import events as ev
from logqueue.api.record_texts import RecordTexts
from logqueue.core import commands as cmd
from logqueue.core.decide.dispatch import joining
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError, NotReady, ReplicaUnavailable, TopicNotFound
from logqueue.server.auth import Key
from logqueue.server.engine.background import leases_flushed
from logqueue.server.engine.batch_ends import BatchEnds
from logqueue.server.engine.commit_barrier import CommitBarrier
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.fanout import Subscriptions
from logqueue.server.engine.firing import Firing, FiringTimer
from logqueue.server.engine.operations import (
    BackgroundOperations,
    OperationRunner,
    OperationSteps,
)
from logqueue.server.engine.pending import Executed, Pending, Spent, decide_all
from logqueue.server.engine.portions import Portions, has_portions, portions
from logqueue.server.engine.turn import Entry, Turn
from logqueue.server.engine.waiting_reads import WaitingReads
from logqueue.server.engine.waitlist import WAITING_PER_PASS_MAX, Waiting, Waitlist, WorkStream
from logqueue.server.engine.worker_registry import Workers

C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")

STALL_RETRY_S = 0.05
CLOCK_CHECK_MS = 1000
"""How often the timer looks at the wall clock while it waits, since that clock may be set."""

HOLDING_BACK = ("paused", "rate_limited", "max_in_flight", "group_busy")
"""Why a queue hands out nothing although it has jobs."""

BATCH_READ = "batch "
"""Before the name of a batch whose end is waited for, where topics have their names."""

logger = logging.getLogger("logqueue.dispatcher")


class Dispatcher:
    """Runs the engine inside an event loop; `workers` knows who works on which queue."""

    def __init__(
        self,
        engine: Engine,
        barrier: CommitBarrier,
        *,
        clock_check_ms: int = CLOCK_CHECK_MS,
        stall_retry_s: float = STALL_RETRY_S,
    ) -> None:
        """Run an engine in the present event loop: routers copy and time acts from now on.

        Args:
            engine: Ready for commands.
            barrier: Where replies wait for the log of that engine.
            clock_check_ms: How late, at most, a step of the wall clock is noticed.
            stall_retry_s: How often routers that found no room look whether time has made some.
        """
        self.engine = engine
        self.barrier = barrier
        self._clock_check_ms = clock_check_ms
        self._stall_retry_s = stall_retry_s
        self.loop = asyncio.get_running_loop()
        self.record_texts = RecordTexts()
        self.subscriptions = Subscriptions(engine, self.barrier, self.loop, self.record_texts)
        self._waitlists: dict[int, Waitlist] = {}
        self.waiting_reads = WaitingReads(self.loop)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0
        self._earlier_streams = _earlier_streams(engine.state)
        # Above those of earlier lives, also when the clock has been set back.
        known = (identity for found in self._earlier_streams.values() for identity in found)
        self._next_stream = max(engine.clock.now_ms() << 16, *known, 0)
        self._forwarding = False
        self._elapsing = False
        self._stall_timer: asyncio.TimerHandle | None = None
        self._next_ticket = 1
        self._changed: dict[int, Topic] = {}
        self._put_off: list[cmd.NackJobs | cmd.ReleaseStream] = []
        self._portion = asyncio.Lock()
        self._portioned: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self.workers = Workers()
        self.turn = Turn(engine, barrier, self.loop, self._decide_together)
        runner = OperationRunner(self._next_step, self._settled)
        self.operations = BackgroundOperations(engine.clock, self.loop, runner)
        self.firing = Firing(engine)
        self._firing_timer = FiringTimer(
            self.firing, self.loop, engine.clock.now_ms, self._wake, clock_check_ms
        )
        self.batch_ends = BatchEnds(engine, self._wake_batch)
        self._batch_timer = FiringTimer(
            self.batch_ends, self.loop, engine.clock.now_ms, self._wake, clock_check_ms
        )
        engine.listen(self.note)
        engine.schedule_backlog(self)
        self._firing_timer.arm()
        self._batch_timer.arm()

    # -- lifecycle -------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Go on with the state that the engine has fallen back to."""
        instances = self.engine.state.instances
        for number, waitlist in list(self._waitlists.items()):
            queue = self.engine.state.queue_instance(number)
            waitlist.topic = queue or waitlist.topic
            self._schedule(waitlist)
        self.subscriptions.adopt(instances)
        self.waiting_reads.wake_all()
        self._batch_timer.arm()
        put_off, self._put_off = self._put_off, []
        for command in put_off:
            self._give_back(command)

    def stop(self) -> None:
        """Stop the timers. Whatever started the engine shuts it down."""
        self.operations.end()
        for task in self._portioned:
            task.cancel()
        self._firing_timer.stop()
        self._batch_timer.stop()
        for timer in (self._timer, self._stall_timer):
            if timer is not None:
                timer.cancel()

    def end_streams(self, error: LogqueueError) -> None:
        """Tell every stream, and every waiting request, that the server stops.

        From now on the end of a work stream releases nothing on queues with `leases_durable`: the
        server ends it, and its worker continues.
        """
        self.turn.run()
        self._is_stopping = True
        self.subscriptions.end(error)
        self.waiting_reads.wake_all()
        for waitlist in list(self._waitlists.values()):
            for stream in list(waitlist.streams):
                stream.end(error)
            self._refuse_all(iter(waitlist.take_long_polls()), error)

    def end_streams_of(self, affected: Callable[[Key | None], bool], error: LogqueueError) -> None:
        """End the streams and sockets of some keys; leases of work streams are given back."""
        self.subscriptions.end(error, affected)
        for waitlist in list(self._waitlists.values()):
            for stream in list(waitlist.streams):
                if affected(stream.key):
                    stream.end(error)

    # -- commands --------------------------------------------------------------------------------

    def submit(
        self, command: cmd.Command[R], encode: Callable[[C, R, Spent], T], context: C
    ) -> Pending[T]:
        """Have a command decided and carried out: at the end of this turn of the loop together
        with others like it, or at once, in portions between other commands, or when there are jobs
        for it.

        Args:
            command: What is wanted.
            encode: Makes the answer from the context, the result, and where the time went.
            context: Whatever `encode` needs beside the result.

        Returns:
            The answer, or the refusal, on its way.
        """
        pending = Pending(self.barrier, encode, context)
        if not self.turn.add(command, pending):
            # It sees what was submitted before.
            self.turn.run()
            self._decide_alone(command, pending, self.engine.clock.now_ms())
        return pending

    def decides_soon(self, pending: Pending[Any], topic: str) -> bool:
        """Whether the answer to a command on a topic is sure to be decided at the end of this turn
        of the loop, before that to any command like it that is submitted now."""
        command = self.turn.command_of(pending, topic)
        if isinstance(command, cmd.ClaimJobs):
            queue: Topic | None = self.engine.state.topics.get(topic)
            return not command.wait_ms and not (queue and queue.config.claim_jitter_ms)
        return command is not None and not has_portions(self.engine, command)

    def hold(
        self, result: R, written: int, durable: int, encode: Callable[[C, R, Spent], T], context: C
    ) -> Pending[T]:
        """What was read from the state; it is shown once the log has reached both positions."""
        pending = Pending(self.barrier, encode, context)
        pending.decide(result, written, durable)
        return pending

    def show(
        self, result: R, topic: Topic, encode: Callable[[C, R, Spent], T], context: C
    ) -> Pending[T]:
        """The same for what was read from one topic."""
        return self.hold(result, topic.mark_written, topic.mark_durable, encode, context)

    def refuse(self, topic: str, refusal: LogqueueError) -> Pending[Any]:
        """A refusal that was computed from whether there is such a topic, and of what kind."""
        pending: Pending[Any] = Pending(self.barrier, _nothing, None)
        self._refuse(topic, pending, refusal)
        return pending

    def _decide_together(self, entries: list[Entry], now: int) -> None:
        """Decide commands of one type on one topic: those that may join a cohort as one, in their
        order."""
        if type(entries[0][0]) is cmd.ClaimJobs:
            entries = self._claims_to_serve(entries, now)
        while entries:
            commands = [*map(_command_of, entries)]
            may = joining(self.engine.state, commands)
            if may:
                self._decide_cohort(entries[:may], commands[:may], now)
            else:
                self._decide_alone(*entries[0], now)
            entries = entries[may or 1 :]

    def _decide_cohort(
        self, cohort: list[Entry], members: list[cmd.Command[Any]], now: int
    ) -> None:
        """Decide commands together. What is refused as a whole is decided one by one, so that
        each of them gets what it deserves."""
        began = time.perf_counter()
        name = members[0].topic
        try:
            executed = self.engine.execute(cmd.Cohort(name, members), now)
        except LogqueueError:
            for command, pending in cohort:
                self._decide_alone(command, pending, now)
            return
        spent = Spent((time.perf_counter() - began) * 1000)
        self._wake(executed.topics)
        decided: list[tuple[Pending[Any], object]] = []
        for (command, pending), result in zip(cohort, executed.result, strict=True):
            if isinstance(result, LogqueueError):
                self._refuse(name, pending, result)
            elif type(command) is not cmd.ClaimJobs or self._is_served(
                command, pending, result, now
            ):
                decided.append((pending, result))
        decide_all(self.barrier, decided, executed.written, executed.durable, spent)

    def _decide_alone(self, command: cmd.Command[Any], pending: Pending[Any], now: int) -> None:
        """Decide a command by itself, or begin to carry it out in portions."""
        if has_portions(self.engine, command):
            self._begin_portions(command, pending)
            return
        began = time.perf_counter()
        try:
            executed = self.engine.execute(command, now)
        except LogqueueError as refusal:
            self._refuse(command.topic, pending, refusal)
            return
        spent = Spent((time.perf_counter() - began) * 1000)
        self._wake(executed.topics)
        if isinstance(command, cmd.ClaimJobs):
            result = executed.result
            if not self._is_served(command, pending, result, now):
                return
        self._conclude(command, executed, pending, spent, now)

    def _conclude(
        self,
        command: cmd.Command[Any],
        executed: Executed[Any],
        pending: Pending[Any],
        spent: Spent,
        now: int,
    ) -> None:
        if isinstance(command, cmd.RejectJobs) and executed.result.settled:
            # The events say which jobs went where, not whose they were.
            queue: Topic | None = self.engine.state.topics.get(command.topic)
            if queue is not None:
                self.workers.seen(queue.number, command.node, now).worked += 1
        pending.decide(executed.result, executed.written, executed.durable, spent)

    def _refuse(self, name: str, pending: Pending[Any], refusal: LogqueueError) -> None:
        # What the refusal was computed from may not be durable yet.
        if isinstance(refusal, (NotReady, ReplicaUnavailable)):
            pending.refuse(refusal)
            return
        topic: Topic | None = self.engine.state.topics.get(name)
        written = topic.mark_written if topic is not None else 0
        durable = max(topic.mark_durable if topic is not None else 0, self.engine.control_mark)
        pending.refuse(refusal, written, durable)

    # -- portions --------------------------------------------------------------------------------

    def _begin_portions(self, command: cmd.Command[Any], pending: Pending[Any]) -> None:
        """Carry out the first portion; others are served between the others."""
        steps = portions(self.engine, command)
        if not self._next_portion(command, steps, pending):
            task = self.loop.create_task(self._go_on(command, steps, pending), name="portions")
            self._portioned.add(task)
            task.add_done_callback(self._portioned.discard)

    async def _go_on(
        self, command: cmd.Command[Any], steps: Portions[Any], pending: Pending[Any]
    ) -> None:
        is_over = False
        while not is_over:
            async with self._portion:
                # One portion in a turn of the loop, however many commands have some.
                await asyncio.sleep(0)
                is_over = self._next_portion(command, steps, pending)

    def _next_portion(
        self, command: cmd.Command[Any], steps: Portions[Any], pending: Pending[Any]
    ) -> bool:
        """Carry out a portion; whether it was the last."""
        try:
            part = next(steps)
        except StopIteration as end:
            executed: Executed[Any] = end.value
            self._wake(executed.topics)
            self._conclude(command, executed, pending, Spent(), self.engine.clock.now_ms())
            return True
        except LogqueueError as refusal:
            self._refuse(command.topic, pending, refusal)
            return True
        except Exception as error:
            pending.refuse(error)
            return True
        if part is not None:
            self._wake(part.topics)
        return False

    async def _next_step(self, steps: OperationSteps) -> tuple[Executed[Any] | None] | None:
        """The next step of a background operation: a portion among those of commands."""
        async with self._portion:
            await asyncio.sleep(0)
            try:
                part = next(steps)
            except StopIteration:
                return None
            if part is not None:
                self._wake(part.topics)
            return (part,)

    async def _settled(self, written: int, durable: int) -> None:
        """What an operation has changed survives the end of this process."""
        await self.barrier.wait(written, durable)
        await leases_flushed(self.engine.journal)

    # -- claims ----------------------------------------------------------------------------------

    def _claims_to_serve(self, entries: list[Entry], now: int) -> list[Entry]:
        """The claims of a queue that are to be served now, behind those who wait already; the
        others begin to wait for the passes to come."""
        topic: Topic | None = self.engine.state.topics.get(entries[0][0].topic)
        if not isinstance(topic, QueueTopic):
            return entries
        served: list[Entry] = []
        may_not = topic.number in self.engine.settling
        for command, pending in entries:
            if pending.has_left:
                continue
            if topic.config.claim_jitter_ms or (may_not and command.wait_ms > 0):
                self.workers.seen(topic.number, command.claimers[0].node, now)
                self._wait(command, pending, topic)
            else:
                served.append((command, pending))
        waitlist = self._waitlists.get(topic.number)
        if served and waitlist is not None and waitlist.claims:
            self._serve(waitlist)
        return served

    def _is_served(
        self, command: cmd.ClaimJobs, pending: Pending[Any], result: cmd.ClaimResult, now: int
    ) -> bool:
        """Whether a claim is answered with what it got; else it waits for jobs."""
        (jobs,) = result.jobs
        node = command.claimers[0].node
        if jobs.seqs:
            pending.on_undelivered = partial(
                self.hand_back, command.topic, node, jobs.seqs, jobs.leases
            )
            return True
        topic: Topic | None = self.engine.state.topics.get(command.topic)
        if not isinstance(topic, QueueTopic):
            return True
        # What a claim got is an event, by which its node is seen.
        self.workers.seen(topic.number, node, now)
        if not (command.wait_ms or result.is_cut):
            return True
        self._wait(command, pending, topic)
        return False

    def _wait(self, command: cmd.ClaimJobs, pending: Pending[Any], topic: QueueTopic) -> None:
        """Put a claim on the waitlist, for the end of a coalescing window or for jobs. What it is
        dealt after its caller has left returns at once."""
        waitlist = self._waitlist(topic)
        waiting = Waiting(command.claimers[0], self._ticket(), command.wait_ms > 0, pending)
        waitlist.add(waiting)
        if topic.ready or not waiting.long_poll:
            self._schedule(waitlist)
        else:
            # A pass would find nothing, and would look at all who wait.
            self._arm(topic)
        if waiting.long_poll:
            waiting.timer = self.loop.call_later(
                command.wait_ms / 1000, self._on_wait_timeout, waitlist, waiting
            )
        pending.wait(partial(self._leave, waitlist, waiting))

    def _on_wait_timeout(self, waitlist: Waitlist, waiting: Waiting) -> None:
        if waitlist.end_wait(waiting):
            self._serve_soon(waitlist)

    def _leave(self, waitlist: Waitlist, waiting: Waiting) -> None:
        """The caller is gone."""
        waiting.end()
        waitlist.remove(waiting)
        self._forget_if_idle(waitlist)

    def hand_back(self, topic: str, node: str, seqs: Sequence[int], leases: Sequence[int]) -> None:
        """Give back jobs that never reached the caller they were dealt to; that was no delivery."""
        if seqs:
            self._give_back(cmd.NackJobs(topic, node, seqs, leases, delay_ms=0, count=False))

    def _give_back(self, command: cmd.NackJobs | cmd.ReleaseStream) -> None:
        """Release leases of a caller that has gone; later if they cannot change now."""
        try:
            outcome = self.engine.execute(command)
        except NotReady:
            self._put_off.append(command)
        except LogqueueError as refusal:
            logger.info("leases of a claimer that is gone are left to expire: %s", refusal)
        else:
            self._wake(outcome.topics)

    # -- work streams ----------------------------------------------------------------------------

    def open_stream(self, stream: WorkStream) -> None:
        """Take a stream into its queue's waitlist.

        Raises:
            TopicNotFound, NotAQueue: There is no such queue.
        """
        queue = self.engine.state.queue(stream.topic)
        self._next_stream += 1
        stream.identity = self._next_stream
        stream.since = self._ticket()
        observed = self.workers.seen(queue.number, stream.node, self.engine.clock.now_ms())
        stream.observed, stream.worked_before = observed, observed.worked
        self._take_over(queue, stream)
        waitlist = self._waitlist(queue)
        waitlist.streams.append(stream)
        self._schedule(waitlist)
        self._arm(queue)

    def _take_over(self, queue: QueueTopic, stream: WorkStream) -> None:
        """A worker is back after a restart of the server: the leases that came over its earlier
        stream fill slots of the new one, and end with it. One stream takes no more of them than it
        has slots, so that several of one node share them."""
        place = (queue.number, stream.node)
        earlier = self._earlier_streams.pop(place, [])
        held = 0
        while earlier and held < stream.jobs_max:
            identity = earlier.pop(0)
            leases = queue.queue.held_by(identity)
            if leases:
                stream.earlier.append(identity)
                held += leases
        if earlier:
            self._earlier_streams[place] = earlier

    def retire_streams(self, topic: str, node: str) -> None:
        """A worker is about to stop: its streams keep what they hold and get no more."""
        for stream in [s for waitlist in self._waitlists.values() for s in waitlist.streams]:
            if (stream.topic, stream.node) == (topic, node):
                stream.jobs_max = 0

    def resume_stream(self, stream: WorkStream) -> None:
        """A stream that was paused takes jobs again."""
        for waitlist in self._waitlists.values():
            if stream in waitlist.streams:
                self._schedule(waitlist)

    def close_stream(self, stream: WorkStream) -> None:
        """The connection is gone: its leases, and only its, are claimable again at once; unless it
        is the server that stops, and the leases outlive it. What was never written to it was not
        handed out; what was counts if it was worked on."""
        for waitlist in list(self._waitlists.values()):
            if stream in waitlist.streams:
                waitlist.streams.remove(stream)
                self._forget_if_idle(waitlist)
        # What came before the end of the connection counts.
        self.turn.run()
        has_worked = stream.has_worked
        on_way = stream.on_way
        self.hand_back(stream.topic, stream.node, [*on_way], [*on_way.values()])
        queue = self.engine.state.topics.get(stream.topic)
        if self._is_stopping and queue is not None and queue.config.leases_durable:
            return
        for identity in (stream.identity, *stream.earlier):
            self._give_back(cmd.ReleaseStream(stream.topic, identity, has_worked))

    # -- the pass --------------------------------------------------------------------------------

    @property
    def claims_waiting(self) -> int:
        """Claims that wait, for jobs or for the end of a coalescing window."""
        return sum(waitlist.claims for waitlist in self._waitlists.values())

    def waitlist_of(self, queue: Topic) -> Waitlist | None:
        """Who wants jobs of a queue now, None for none."""
        return self._waitlists.get(queue.number)

    def waitlists(self) -> Sequence[Waitlist]:
        """Who wants jobs of which queues now."""
        return [*self._waitlists.values()]

    def _waitlist(self, queue: QueueTopic) -> Waitlist:
        waitlist = self._waitlists.get(queue.number)
        if waitlist is None:
            waitlist = self._waitlists[queue.number] = Waitlist(queue)
        return waitlist

    def _forget_if_idle(self, waitlist: Waitlist) -> None:
        if not waitlist.streams and not waitlist.claims:
            if waitlist.scheduled is not None:
                waitlist.scheduled.cancel()
            if self._waitlists.get(waitlist.topic.number) is waitlist:
                del self._waitlists[waitlist.topic.number]

    def _ticket(self) -> int:
        """The next place in the line."""
        self._next_ticket += 1
        return self._next_ticket

    def _wake(self, topics: Iterable[Topic]) -> None:
        """Something changed: serve the waitlists that may gain from it, and those who follow."""
        if not (self._waitlists or self.waiting_reads.by_topic or self.subscriptions.channels):
            return
        for topic in topics:
            self.subscriptions.changed(topic)
            self.waiting_reads.wake(topic.name)
            waitlist = self._waitlists.get(topic.number)
            if waitlist is None:
                continue
            if topic.number not in self.engine.state.instances or waitlist.topic.ready:
                self._schedule(waitlist)
            self._arm(topic)

    def _schedule(self, waitlist: Waitlist) -> None:
        """Open the coalescing window. Its end does not depend on who opened it."""
        if waitlist.scheduled is not None:
            return
        jitter_ms = waitlist.topic.config.claim_jitter_ms
        if jitter_ms:
            waitlist.scheduled = self.loop.call_later(jitter_ms / 1000, self._serve, waitlist)
        else:
            self._serve_soon(waitlist)

    def _serve_soon(self, waitlist: Waitlist) -> None:
        """Serve a waitlist in the next turn, whether or not its window is over."""
        if not waitlist.is_next:
            if waitlist.scheduled is not None:
                waitlist.scheduled.cancel()
            waitlist.scheduled = self.loop.call_soon(self._serve, waitlist)
            waitlist.is_next = True

    def _serve(self, waitlist: Waitlist) -> None:
        """One pass over a whole waitlist, in the order in which they came.

        A stream that was dealt something goes to the end of the line, so that a trickle reaches
        all members.
        """
        if waitlist.scheduled is not None:
            waitlist.scheduled.cancel()
            waitlist.scheduled = None
        waitlist.is_next = False
        topic = waitlist.topic
        if self.engine.state.instances.get(topic.number) is not topic:
            self._fail(waitlist, TopicNotFound.named(topic.name))
            return
        now = self.engine.clock.now_ms()
        if topic.replacing or self.engine.is_settling(topic):
            # All are served when it is over: see `_elapse`, `adopt`.
            return
        self.engine.lapse(topic, now)
        line = waitlist.line()
        if not line:
            self._forget_if_idle(waitlist)
            self._arm(topic)
            return
        ready_before = topic.ready
        try:
            claim = cmd.ClaimJobs(topic.name, tuple([claimer for _, claimer in line]))
            outcome = self.engine.execute(claim, now)
        except LogqueueError as refusal:
            self._fail(waitlist, refusal)
            return
        claimed = outcome.result
        has_hungry = False
        for (member, claimer), jobs in zip(line, claimed.jobs, strict=True):
            has_hungry = has_hungry or len(jobs) < claimer.jobs_max
            if isinstance(member, Waiting):
                if jobs or not (member.long_poll or claimed.is_cut):
                    waitlist.remove(member)
                    self._answer(topic, member, jobs, outcome)
            elif jobs:
                member.since = self._ticket()
                self._deliver(member, jobs, outcome)
            elif claimed.reason in HOLDING_BACK:
                member.held_back(claimed.reason, claimed.retry_after_ms)
        retry_ms = claimed.retry_after_ms
        waitlist.retry_at = 0 if retry_ms is None else now + max(retry_ms, 1)
        has_hungry = has_hungry or bool(waitlist.claims)
        is_cut = waitlist.is_cut and 0 < topic.ready < ready_before
        if claimed.is_cut or is_cut or waitlist.has_timed_out:
            # Not for lack of jobs: the rest does not wait for another window.
            self._serve_soon(waitlist)
        elif has_hungry and 0 < topic.ready < ready_before:
            # This pass stopped at its bound: there may be more in the next.
            self._schedule(waitlist)
        self._forget_if_idle(waitlist)
        self._wake(t for t in outcome.topics if t is not topic)
        self._arm(topic)

    def _answer(
        self,
        topic: Topic,
        waiting: Waiting,
        jobs: cmd.ClaimedJobs,
        outcome: Executed[cmd.ClaimResult],
    ) -> None:
        if jobs:
            node = waiting.claimer.node
            waiting.pending.on_undelivered = partial(
                self.hand_back, topic.name, node, jobs.seqs, jobs.leases
            )
        claimed = outcome.result._replace(jobs=[jobs])
        waiting.decide(claimed, outcome.written, outcome.durable)

    def _deliver(
        self,
        stream: WorkStream,
        jobs: cmd.ClaimedJobs,
        outcome: Executed[cmd.ClaimResult],
    ) -> None:
        stream.on_way.update(zip(jobs.seqs, jobs.leases, strict=True))

        def release(failure: LogqueueError | None) -> None:
            if failure is None:
                for seq in jobs.seqs:
                    stream.on_way.pop(seq, None)
                stream.deliver(jobs)
            else:
                stream.end(failure)

        self.barrier.when(outcome.written, outcome.durable, release)

    def _fail(self, waitlist: Waitlist, error: LogqueueError) -> None:
        streams, waitlist.streams = waitlist.streams, []
        waiting = waitlist.take_all()
        self._forget_if_idle(waitlist)

        def release(failure: LogqueueError | None) -> None:
            for stream in streams:
                stream.end(failure or error)

        # What the refusal was computed from may not be durable yet.
        topic = waitlist.topic
        durable = max(topic.mark_durable, self.engine.control_mark)
        self._refuse_all(iter(waiting), error, topic.mark_written, durable)
        self.barrier.when(topic.mark_written, durable, release)

    def _refuse_all(
        self, waiting: Iterator[Waiting], error: LogqueueError, written: int = 0, durable: int = 0
    ) -> None:
        """Refuse claims that are off their waitlist: so many now, the others in the next turns."""
        some = [*islice(waiting, WAITING_PER_PASS_MAX)]
        for member in some:
            if not member.is_over:
                member.refuse(error, written, durable)
        if some:
            self.loop.call_soon(self._refuse_all, waiting, error, written, durable)

    # -- routers ---------------------------------------------------------------------------------

    def forward_soon(self) -> None:
        """Routers copy at the end of the loop's turn, so that copies ride the originals' sync."""
        if not self._forwarding:
            self._forwarding = True
            self.loop.call_soon(self._forward)

    def _forward(self) -> None:
        self._forwarding = False
        engine = self.engine
        self._wake(engine.forward())
        if engine.behind:
            self.forward_soon()
        if engine.stalled and self._stall_timer is None:
            self._stall_timer = self.loop.call_later(self._stall_retry_s, self._retry_stalled)

    def _retry_stalled(self) -> None:
        self._stall_timer = None
        self.engine.retry_stalled()
        self.forward_soon()

    def note(self, topic: Topic | None, event: ev.Event, changes: Sequence[ev.JobChange]) -> None:
        """An event was applied, whatever caused it: at the end of this turn of the loop it wakes
        those who wait for the topic. What a caller asked for wakes them sooner; this is for all
        that follows from it, or from the time: copies, expiries, evictions."""
        if changes or event.ends_topic:
            self.workers.event(event, changes)
            if event.topic in self.waiting_reads.by_job:
                self.waiting_reads.note(event, changes)
        if topic is None or not event.wakes_readers:
            return
        is_read = topic.name in self.waiting_reads.by_topic
        if is_read or topic.number in self._waitlists or self.subscriptions.channels:
            if not self._changed:
                self.loop.call_soon(self._wake_changed)
            self._changed[topic.number] = topic

    def _wake_changed(self) -> None:
        topics, self._changed = self._changed, {}
        self._wake(topics.values())

    # -- time ------------------------------------------------------------------------------------

    def fire_soon(self) -> None:
        """Schedules have changed: wait for the one that is next now."""
        self._firing_timer.arm()

    def end_batches_soon(self) -> None:
        """Batches are over: their ends are decided in the next turns of the loop."""
        self._batch_timer.arm()

    def _wake_batch(self, name: str) -> None:
        self.waiting_reads.wake(BATCH_READ + name)

    def elapse_soon(self) -> None:
        """Where more expires than one step may handle, it continues in the next turns of the
        loop."""
        if not self._elapsing:
            self._elapsing = True
            self.loop.call_soon(self._elapse_more)

    def _elapse_more(self) -> None:
        self._elapsing = False
        self._wake(self.engine.elapse_more())
        if self.engine.lagging:
            self.elapse_soon()

    def _arm(self, topic: Topic) -> None:
        """Set the one timer to when time next changes this queue, if anything waits there."""
        waitlist = self._waitlists.get(topic.number)
        due = waitlist.next_due() if waitlist is not None else None
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        self._set_timer(due)

    def _set_timer(self, due: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # One ms more: timers may fire a hair early, and a lease is valid up to its deadline.
        delay_ms = max(due - self.engine.clock.now_ms(), 0) + 1
        self._timer_due = due
        # The loop's clock knows nothing of steps of the wall clock, by which jobs are due.
        delay_s = min(delay_ms, self._clock_check_ms) / 1000
        self._timer = self.loop.call_later(delay_s, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        now = self.engine.clock.now_ms()
        if now < self._timer_due:
            self._set_timer(self._timer_due)
            return
        next_due: int | None = None
        for waitlist in list(self._waitlists.values()):
            if self.engine.is_settling(waitlist.topic):
                continue
            if waitlist.retry_at and waitlist.retry_at <= now:
                waitlist.retry_at = 0
                self._schedule(waitlist)
            # An access to the queue may have advanced time before this timer did.
            self.engine.lapse(waitlist.topic, now)
            if waitlist.topic.ready:
                self._schedule(waitlist)
            due = waitlist.next_due()
            if due is not None and (next_due is None or due < next_due):
                next_due = due
        if next_due is not None:
            self._set_timer(next_due)


_command_of = itemgetter(0)


def _nothing(context: object, result: object, spent: Spent) -> NoReturn:
    raise AssertionError("a refusal has no result")


def _earlier_streams(state: State) -> dict[tuple[int, str], list[int]]:
    """Work streams of earlier lives of the server that still have leases, oldest first, by topic
    instance and node."""
    found: dict[tuple[int, str], list[int]] = {}
    for topic in state.instances.values():
        if not isinstance(topic, QueueTopic):
            continue
        queue = topic.queue
        for identity in sorted(queue.streams):
            grant = queue.jobs[next(iter(queue.streams[identity]))].grant
            assert grant is not None
            found.setdefault((topic.number, grant.node), []).append(identity)
    return found
