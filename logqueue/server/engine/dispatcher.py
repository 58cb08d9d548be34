"""One place that serves everybody: commands, coalesced claims and work streams.

Owns: when a queue's cohort is served, the pass that serves it, and the one timer that wakes work
when time makes jobs claimable. Must not know: HTTP, how jobs look on the wire, how decisions are
made.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from logqueue import events as ev
from logqueue.api.record_texts import RecordTexts
from logqueue.core import commands as cmd
from logqueue.core.commands import Claimer
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError, NotReady, TopicNotFound
from logqueue.server.auth import Key
from logqueue.server.engine.commit_barrier import CommitBarrier
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.fanout import Subscriptions
from logqueue.server.engine.portions import Executed, Portions, has_portions, portions
from logqueue.server.engine.waitlist import Served, Waiting, Waitlist, WorkStream
from logqueue.server.engine.worker_registry import Workers
from logqueue.server.http.requests import PendingReply, Reply, error_finisher

STALL_RETRY_S = 0.05
CLOCK_CHECK_MS = 1000
"""How often the timer looks at the wall clock while it waits, since that clock may be set."""

HOLDING_BACK = ("paused", "rate_limited", "max_in_flight")
"""Why a queue hands out nothing although it has jobs."""

"""Events that make no job claimable, free no place and show nothing new."""

logger = logging.getLogger("logqueue.coordinator")


class Dispatcher:
    """Runs the engine inside an event loop; `workers` knows who works on which queue."""

    def __init__(
        self,
        engine: Engine,
        gate: CommitBarrier,
        *,
        clock_check_ms: int = CLOCK_CHECK_MS,
        stall_retry_s: float = STALL_RETRY_S,
    ) -> None:
        """Run an engine in the present event loop: routers copy and time acts from now on.

        Args:
            engine: Ready for commands.
            gate: Where replies wait for the log of that engine.
            clock_check_ms: How late, at most, a step of the wall clock is noticed.
            stall_retry_s: How often routers that found no room look whether time has made some.
        """
        self.engine = engine
        self.gate = gate
        self._clock_check_ms = clock_check_ms
        self._stall_retry_s = stall_retry_s
        self.loop = asyncio.get_running_loop()
        self.record_texts = RecordTexts()
        self.subscriptions = Subscriptions(engine, self.gate, self.loop, self.record_texts)
        self._cohorts: dict[int, Waitlist] = {}
        self._readers: dict[str, set[asyncio.Future[None]]] = {}
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
        self._is_stopping = False
        self.workers = Workers()
        engine.listen(self.note)
        engine.schedule_backlog(self)

    # -- life ------------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Go on with the state that the engine has fallen back to."""
        instances = self.engine.state.instances
        for number, cohort in list(self._cohorts.items()):
            queue = self.engine.state.queue_instance(number)
            cohort.topic = queue or cohort.topic
            self._schedule(cohort)
        self.subscriptions.stand_on(instances)
        put_off, self._put_off = self._put_off, []
        for command in put_off:
            self._give_back(command)

    def stop(self) -> None:
        """Set no more timers off. The engine is shut down by whoever started it."""
        for timer in (self._timer, self._stall_timer):
            if timer is not None:
                timer.cancel()

    def end_streams(self, error: LogqueueError) -> None:
        """Tell every stream, and everybody who waits, that the server is going.

        From now on the end of a work stream releases nothing on queues with `leases_durable`: the
        server ends it, and its worker goes on.
        """
        self._is_stopping = True
        self.subscriptions.end(error)
        for readers in list(self._readers.values()):
            for reader in list(readers):
                if not reader.done():
                    reader.set_result(None)
        for cohort in list(self._cohorts.values()):
            for stream in list(cohort.streams):
                stream.end(error)
            for waiting in cohort.waiting:
                if waiting.long_poll and not waiting.future.done():
                    waiting.future.set_exception(error)

    def end_streams_of(self, is_meant: Callable[[Key | None], bool], error: LogqueueError) -> None:
        """End the streams and sockets of some keys; leases of work streams are given back."""
        self.subscriptions.end(error, is_meant)
        for cohort in list(self._cohorts.values()):
            for stream in list(cohort.streams):
                if is_meant(stream.key):
                    stream.end(error)

    # -- commands --------------------------------------------------------------------------------

    def submit(
        self, command: cmd.Command, finish: Callable[[cmd.Reply, float], Reply]
    ) -> PendingReply:
        """Execute a command; its reply, or its refusal, is held until it may leave.

        Args:
            command: What is wanted.
            finish: Builds the reply from the decision's answer and the ms it was held.
        """
        try:
            outcome = self.engine.execute(command)
        except LogqueueError as refusal:
            return self._refused(command, refusal)
        return self._accepted(outcome, finish)

    def submit_in_portions(
        self, command: cmd.Command, finish: Callable[[cmd.Reply, float], Reply]
    ) -> PendingReply | Coroutine[Any, Any, Reply]:
        """The same for a command that may touch any number of records: others are served between
        its portions, and the reply comes behind the last."""
        if not has_portions(self.engine, command):
            return self.submit(command, finish)
        steps = portions(self.engine, command)
        held = self._next_portion(command, steps, finish)
        return held or self._go_on(command, steps, finish)

    async def _go_on(
        self, command: cmd.Command, steps: Portions, finish: Callable[[cmd.Reply, float], Reply]
    ) -> Reply:
        held = None
        while held is None:
            async with self._portion:
                # One portion in a turn of the loop, however many commands have some.
                await asyncio.sleep(0)
                held = self._next_portion(command, steps, finish)
        return held.finish(await self.gate.wait(held.written, held.durable))

    def _next_portion(
        self, command: cmd.Command, steps: Portions, finish: Callable[[cmd.Reply, float], Reply]
    ) -> PendingReply | None:
        """Make a portion; the held reply when it was the last."""
        try:
            part = next(steps)
        except StopIteration as end:
            return self._accepted(end.value, finish)
        except LogqueueError as refusal:
            return self._refused(command, refusal)
        if part is not None:
            self._wake(part.topics)
        return None

    def execute(self, command: cmd.Command) -> Executed:
        """Execute a command for a caller that sees to the reply's promise itself.

        Raises:
            LogqueueError: Refused.
        """
        outcome = self.engine.execute(command)
        self._wake(outcome.topics)
        return outcome

    def _refused(self, command: cmd.Command, refusal: LogqueueError) -> PendingReply:
        # What the refusal was computed from may not be durable yet.
        if isinstance(refusal, NotReady):
            return PendingReply(0, 0, error_finisher(refusal))
        topic = self.engine.state.topics.get(command.topic)
        written = topic.mark_written if topic is not None else 0
        durable = max(topic.mark_durable if topic is not None else 0, self.engine.control_mark)
        return PendingReply(written, durable, error_finisher(refusal))

    def _accepted(
        self, outcome: Executed, finish: Callable[[cmd.Reply, float], Reply]
    ) -> PendingReply:
        if self._cohorts or self._readers or self.subscriptions:
            self._wake(outcome.topics)
        reply = outcome.reply
        return PendingReply(
            outcome.written, outcome.durable, lambda waited_ms: finish(reply, waited_ms)
        )

    def next_change(self, topic: str) -> asyncio.Future[None]:
        """A future for the next change of a topic, by name. Cancel it when it is not needed."""
        reader: asyncio.Future[None] = self.loop.create_future()
        readers = self._readers.setdefault(topic, set())
        readers.add(reader)

        def forget(done: asyncio.Future[None]) -> None:
            readers.discard(done)
            if not readers and self._readers.get(topic) is readers:
                del self._readers[topic]

        reader.add_done_callback(forget)
        return reader

    # -- claims ----------------------------------------------------------------------------------

    def claim_now(
        self,
        queue: Topic,
        claimer: Claimer,
        finish: Callable[[cmd.Reply, float], Reply],
        *,
        may_wait: bool,
    ) -> PendingReply | None:
        """Claim at once, behind those who wait already.

        Returns:
            The reply, held until it may leave; None when there is nothing now, and it `may_wait`.

        Raises:
            LogqueueError: See `submit`.
        """
        if may_wait and self.engine.is_settling(queue):
            return None
        cohort = self._cohorts.get(queue.number)
        if cohort is not None and cohort.waiting:
            self._serve(cohort)
        command = cmd.ClaimJobs(queue.name, (claimer,))
        try:
            outcome = self.engine.execute(command)
        except LogqueueError as refusal:
            return self._refused(command, refusal)
        held = self._accepted(outcome, finish)
        claimed = outcome.reply
        assert isinstance(claimed, cmd.ClaimResult)
        return None if may_wait and not claimed.jobs[0] else held

    async def claim_in_cohort(
        self, topic: str, claimer: Claimer, wait_ms: int
    ) -> tuple[list[cmd.ClaimedJob], cmd.ClaimResult, float]:
        """Claim as one of the cohort that gathers in the coalescing window, or waits for jobs.

        Args:
            topic: The queue.
            claimer: Who wants what.
            wait_ms: How long to wait for a first job; with 0 the next pass has the answer.

        Returns:
            The jobs, what the pass says of the queue, and how long the call waited in ms.
            Cancelling is safe: jobs leased to a caller that is gone are given back at once.

        Raises:
            LogqueueError: Refused; or the queue was deleted, or the server stopped, meanwhile.
        """
        began = time.perf_counter()
        cohort = self._cohort(self.engine.state.queue(topic))
        waiting = Waiting(claimer, self._ticket(), wait_ms > 0, self.loop.create_future())
        cohort.waiting.append(waiting)
        if cohort.topic.ready or not waiting.long_poll:
            self._schedule(cohort)
        else:
            # A pass would find nothing, and would look at all who wait.
            self._arm(cohort.topic)
        patience = self.loop.call_later(wait_ms / 1000, self._on_wait_timeout, cohort, waiting)
        try:
            jobs, claimed, outcome = await waiting.future
            waited_ms = (time.perf_counter() - began) * 1000
            await self.gate.wait(outcome.written, outcome.durable)
        except asyncio.CancelledError:
            self._leave(cohort, waiting)
            raise
        finally:
            patience.cancel()
        return jobs, claimed, waited_ms

    def _on_wait_timeout(self, cohort: Waitlist, waiting: Waiting) -> None:
        if waiting.long_poll and not waiting.future.done():
            waiting.long_poll = False
            self._serve(cohort)

    def _leave(self, cohort: Waitlist, waiting: Waiting) -> None:
        """The caller is gone; what it was dealt a moment ago goes back."""
        if waiting in cohort.waiting:
            cohort.waiting.remove(waiting)
            self._forget_if_idle(cohort)
        future = waiting.future
        if future.done() and not future.cancelled() and future.exception() is None:
            self.hand_back(cohort.topic.name, waiting.claimer.node, future.result().jobs)

    def hand_back(self, topic: str, node: str, jobs: list[cmd.ClaimedJob]) -> None:
        """Give back jobs that never reached the caller they were dealt to; that was no delivery."""
        if jobs:
            seqs, leases = [job.seq for job in jobs], [job.lease for job in jobs]
            self._give_back(cmd.NackJobs(topic, node, seqs, leases, delay_ms=0, count=False))

    def _give_back(self, command: cmd.NackJobs | cmd.ReleaseStream) -> None:
        """Release leases of somebody who is gone; later if they cannot change now."""
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
        """Take a stream into its queue's cohort.

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
        cohort = self._cohort(queue)
        cohort.streams.append(stream)
        self._schedule(cohort)
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
        for stream in [s for cohort in self._cohorts.values() for s in cohort.streams]:
            if (stream.topic, stream.node) == (topic, node):
                stream.jobs_max = 0

    def resume_stream(self, stream: WorkStream) -> None:
        """A stream that was paused takes jobs again."""
        for cohort in self._cohorts.values():
            if stream in cohort.streams:
                self._schedule(cohort)

    def close_stream(self, stream: WorkStream) -> None:
        """The connection is gone: its leases, and only its, are claimable again at once; unless it
        is the server that stops, and the leases outlive it. What was never written to it was not
        handed out; what was counts if it was worked on."""
        for cohort in list(self._cohorts.values()):
            if stream in cohort.streams:
                cohort.streams.remove(stream)
                self._forget_if_idle(cohort)
        has_worked = stream.has_worked
        self.hand_back(stream.topic, stream.node, [*stream.on_way.values()])
        queue = self.engine.state.topics.get(stream.topic)
        if self._is_stopping and queue is not None and queue.config.leases_durable:
            return
        for identity in (stream.identity, *stream.earlier):
            self._give_back(cmd.ReleaseStream(stream.topic, identity, has_worked))

    # -- the pass --------------------------------------------------------------------------------

    @property
    def claims_waiting(self) -> int:
        """Claims that wait, for jobs or for the end of a coalescing window."""
        return sum(len(cohort.waiting) for cohort in self._cohorts.values())

    def cohort_of(self, queue: Topic) -> Waitlist | None:
        """Who wants jobs of a queue now, None when nobody does."""
        return self._cohorts.get(queue.number)

    def _cohort(self, queue: QueueTopic) -> Waitlist:
        cohort = self._cohorts.get(queue.number)
        if cohort is None:
            cohort = self._cohorts[queue.number] = Waitlist(queue)
        return cohort

    def _forget_if_idle(self, cohort: Waitlist) -> None:
        if not cohort.streams and not cohort.waiting:
            if cohort.scheduled is not None:
                cohort.scheduled.cancel()
            if self._cohorts.get(cohort.topic.number) is cohort:
                del self._cohorts[cohort.topic.number]

    def _ticket(self) -> int:
        """The next place in the line."""
        self._next_ticket += 1
        return self._next_ticket

    def _wake(self, topics: Iterable[Topic]) -> None:
        """Something changed: serve the cohorts that may gain from it, and those who follow."""
        for topic in topics:
            self.subscriptions.changed(topic)
            for reader in self._readers.pop(topic.name, ()):
                if not reader.done():
                    reader.set_result(None)
            cohort = self._cohorts.get(topic.number)
            if cohort is None:
                continue
            if topic.number not in self.engine.state.instances or cohort.topic.ready:
                self._schedule(cohort)
            self._arm(topic)

    def _schedule(self, cohort: Waitlist) -> None:
        """Open the coalescing window. Its end does not depend on who opened it."""
        if cohort.scheduled is not None:
            return
        jitter_ms = cohort.topic.config.claim_jitter_ms
        if jitter_ms:
            cohort.scheduled = self.loop.call_later(jitter_ms / 1000, self._serve, cohort)
        else:
            cohort.scheduled = self.loop.call_soon(self._serve, cohort)

    def _serve(self, cohort: Waitlist) -> None:
        """One coordinator pass over a whole cohort, in the order in which they came.

        A stream that was dealt something goes to the end of the line, so that a trickle reaches
        everybody.
        """
        if cohort.scheduled is not None:
            cohort.scheduled.cancel()
            cohort.scheduled = None
        topic = cohort.topic
        if self.engine.state.instances.get(topic.number) is not topic:
            self._fail(cohort, TopicNotFound.named(topic.name))
            return
        if topic.replacing or self.engine.is_settling(topic):
            # All are served when it is over: see `_elapse`, `adopt`.
            return
        self.engine.lapse(topic)
        line = cohort.line()
        if not line:
            self._forget_if_idle(cohort)
            self._arm(topic)
            return
        ready_before = topic.ready
        try:
            outcome = self.engine.execute(cmd.ClaimJobs(topic.name, tuple(c for _, c in line)))
        except LogqueueError as refusal:
            self._fail(cohort, refusal)
            return
        claimed = outcome.reply
        assert isinstance(claimed, cmd.ClaimResult)
        has_hungry = False
        for (member, claimer), jobs in zip(line, claimed.jobs, strict=True):
            has_hungry = has_hungry or len(jobs) < claimer.jobs_max
            if isinstance(member, Waiting):
                if jobs or not (member.long_poll or claimed.is_cut):
                    member.future.set_result(Served(jobs, claimed, outcome))
            elif jobs:
                member.since = self._ticket()
                self._deliver(member, jobs, outcome)
            elif claimed.reason in HOLDING_BACK:
                member.held_back(claimed.reason, claimed.retry_after_ms)
        cohort.waiting = [w for w in cohort.waiting if not w.future.done()]
        retry_ms = claimed.retry_after_ms
        cohort.retry_at = 0 if retry_ms is None else self.engine.clock.now_ms() + max(retry_ms, 1)
        has_hungry = has_hungry or bool(cohort.waiting)
        if claimed.is_cut or (cohort.is_cut and 0 < topic.ready < ready_before):
            # Not for want of jobs: nobody waits another window for the rest.
            cohort.scheduled = self.loop.call_soon(self._serve, cohort)
        elif has_hungry and 0 < topic.ready < ready_before:
            # This pass got somewhere, and was not let go on: there may be more in the next.
            self._schedule(cohort)
        self._forget_if_idle(cohort)
        self._wake(t for t in outcome.topics if t is not topic)
        self._arm(topic)

    def _deliver(self, stream: WorkStream, jobs: list[cmd.ClaimedJob], outcome: Executed) -> None:
        stream.on_way.update((job.seq, job) for job in jobs)

        def release(failure: LogqueueError | None) -> None:
            if failure is None:
                for job in jobs:
                    stream.on_way.pop(job.seq, None)
                stream.deliver(jobs)
            else:
                stream.end(failure)

        self.gate.when(outcome.written, outcome.durable, release)

    def _fail(self, cohort: Waitlist, error: LogqueueError) -> None:
        streams, cohort.streams = cohort.streams, []
        waiting, cohort.waiting = cohort.waiting, []
        self._forget_if_idle(cohort)

        def release(failure: LogqueueError | None) -> None:
            for member in waiting:
                if not member.future.done():
                    member.future.set_exception(failure or error)
            for stream in streams:
                stream.end(failure or error)

        # What the refusal was computed from may not be durable yet.
        topic = cohort.topic
        durable = max(topic.mark_durable, self.engine.control_mark)
        self.gate.when(topic.mark_written, durable, release)

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
        if engine.has_behind:
            self.forward_soon()
        if engine.has_stalled and self._stall_timer is None:
            self._stall_timer = self.loop.call_later(self._stall_retry_s, self._retry_stalled)

    def _retry_stalled(self) -> None:
        self._stall_timer = None
        self.engine.retry_stalled()
        self.forward_soon()

    def note(self, topic: Topic | None, event: ev.AnyEvent) -> None:
        """An event was applied, whoever caused it: at the end of this turn of the loop it wakes
        those who wait for the topic. What a caller asked for wakes them sooner; this is for all
        that follows from it, or from the time: copies, expiries, evictions."""
        self.workers.event(topic, event)
        if topic is None or not event.wakes_readers:
            return
        if topic.number in self._cohorts or topic.name in self._readers or self.subscriptions:
            if not self._changed:
                self.loop.call_soon(self._wake_changed)
            self._changed[topic.number] = topic

    def _wake_changed(self) -> None:
        topics, self._changed = self._changed, {}
        self._wake(topics.values())

    # -- time ------------------------------------------------------------------------------------

    def elapse_soon(self) -> None:
        """Where time has more to do than one look lets it, it goes on in the next turns of the
        loop."""
        if not self._elapsing:
            self._elapsing = True
            self.loop.call_soon(self._elapse_more)

    def _elapse_more(self) -> None:
        self._elapsing = False
        self._wake(self.engine.elapse_more())
        if self.engine.has_lagging:
            self.elapse_soon()

    def _arm(self, topic: Topic) -> None:
        """Have the one timer go off when time next changes this queue, if somebody waits there."""
        cohort = self._cohorts.get(topic.number)
        due = cohort.next_due() if cohort is not None else None
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
        for cohort in list(self._cohorts.values()):
            if self.engine.is_settling(cohort.topic):
                continue
            if cohort.retry_at and cohort.retry_at <= now:
                cohort.retry_at = 0
                self._schedule(cohort)
            # Somebody who looked at the queue may have let time act before this timer did.
            self.engine.lapse(cohort.topic)
            if cohort.topic.ready:
                self._schedule(cohort)
            due = cohort.next_due()
            if due is not None and (next_due is None or due < next_due):
                next_due = due
        if next_due is not None:
            self._set_timer(next_due)


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
