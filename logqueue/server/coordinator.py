"""One place that serves everybody: commands, coalesced claims and work streams.

Owns: the cohort of each queue (claims in a coalescing window, streams with free slots), the pass
that serves it, and the one timer that wakes work when time makes jobs claimable. Must not know:
HTTP, how jobs look on the wire, how decisions are made.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from logqueue.core import commands as cmd
from logqueue.core.apply import elapse
from logqueue.core.commands import Claimer
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError, TopicNotFound
from logqueue.server.engine import Engine, Outcome
from logqueue.server.gate import Gate
from logqueue.server.requests import Held, Reply, raising
from wal import WalError

TIDY_INTERVAL_S = 1.0
LEASES_FLUSH_INTERVAL_S = 0.1
FAILURE_POLL_INTERVAL_S = 0.1

logger = logging.getLogger("logqueue.coordinator")


class WorkStream:
    """One push connection's side of a queue. The HTTP layer subclasses it to encode and send."""

    def __init__(self, topic: str, node: str, jobs_max: int, lease_ms: int | None) -> None:
        self.topic = topic
        self.node = node
        self.jobs_max = jobs_max
        self.lease_ms = lease_ms
        self.identity = 0

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can be delivered; such a stream gets no more jobs."""
        raise NotImplementedError

    def deliver(self, jobs: list[cmd.Job]) -> None:
        """Jobs leased to this stream whose promise holds. Must not block or raise."""
        raise NotImplementedError

    def end(self, error: LogqueueError | None) -> None:
        """The server ends the stream. Must not block or raise."""
        raise NotImplementedError


class _Waiting(NamedTuple):
    """A claim call inside its coalescing window."""

    claimer: Claimer
    future: asyncio.Future[tuple[list[cmd.Job], int, Outcome]]


class _Cohort:
    """Who wants jobs of one queue instance."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.waiting: list[_Waiting] = []
        self.streams: list[WorkStream] = []
        self.scheduled: asyncio.Handle | None = None


class Coordinator:
    """Runs the engine inside an event loop."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.loop = asyncio.get_running_loop()
        self.gate = Gate(engine.journal.jobs, self.loop)
        self._cohorts: dict[int, _Cohort] = {}
        self._readers: dict[str, set[asyncio.Future[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0
        self._next_stream = engine.clock.now_ms() << 16
        self._background: list[asyncio.Task[None]] = []

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin committing, and the background work. Call after the engine has recovered."""
        self.engine.journal.jobs.start(self.gate.notify)
        self._background = [
            self.loop.create_task(self._tidy_forever(), name="tidy"),
            self.loop.create_task(self._flush_leases_forever(), name="flush-leases"),
            self.loop.create_task(self._retreat_on_failure(), name="retreat"),
        ]

    async def stop(self) -> None:
        """End streams and background work. The engine is shut down by whoever started it."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()

    def end_streams(self, error: LogqueueError) -> None:
        """Tell every work stream, and every reader that waits, that the server is going."""
        for readers in list(self._readers.values()):
            for reader in list(readers):
                if not reader.done():
                    reader.set_result(None)
        for cohort in list(self._cohorts.values()):
            for stream in list(cohort.streams):
                stream.end(error)

    # -- commands --------------------------------------------------------------------------------

    def submit(self, command: cmd.Command, finish: Callable[[cmd.Reply, float], Reply]) -> Held:
        """Execute a command; its reply is held until it may leave.

        Args:
            command: What is wanted.
            finish: Builds the reply from the decision's answer and the ms it was held.

        Raises:
            LogqueueError: Refused, for reasons that depend on nothing that may still be lost.
        """
        try:
            outcome = self.engine.execute(command)
        except LogqueueError as refusal:
            topic = self.engine.state.topics.get(command.topic)
            if topic is None:
                raise
            # What the refusal was computed from may not be durable yet.
            return Held(topic.mark_written, topic.mark_durable, raising(refusal))
        if self._cohorts or self._readers:
            self._wake(outcome.topics)
        reply = outcome.reply
        return Held(outcome.written, outcome.durable, lambda waited_ms: finish(reply, waited_ms))

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

    async def claim_in_cohort(
        self, topic: str, claimer: Claimer
    ) -> tuple[list[cmd.Job], int, float]:
        """Claim as part of the cohort that gathers in the queue's coalescing window.

        Returns:
            The jobs, how many are still ready, and how long the call waited for its window in ms.
            Cancelling is safe: jobs leased to a caller that is gone are given back at once.

        Raises:
            LogqueueError: Refused; or the queue was deleted in the window.
        """
        queue = self.engine.state.queue(topic)
        began = time.perf_counter()
        waiting = _Waiting(claimer, self.loop.create_future())
        cohort = self._cohort(queue)
        cohort.waiting.append(waiting)
        self._schedule(cohort)
        try:
            jobs, ready, outcome = await waiting.future
            waited_ms = (time.perf_counter() - began) * 1000
            await self.gate.wait(outcome.written, outcome.durable)
        except asyncio.CancelledError:
            self._hand_back(topic, waiting)
            raise
        return jobs, ready, waited_ms

    def _hand_back(self, topic: str, waiting: _Waiting) -> None:
        future = waiting.future
        if not future.done() or future.cancelled() or future.exception() is not None:
            return
        jobs = future.result()[0]
        if jobs:
            command = cmd.Nack(
                topic, waiting.claimer.node, [j.seq for j in jobs], [j.lease for j in jobs]
            )
            try:
                self._wake(self.engine.execute(command).topics)
            except LogqueueError as refusal:
                logger.info("jobs of a claimer that is gone stay leased: %s", refusal)

    # -- work streams ----------------------------------------------------------------------------

    def open_stream(self, stream: WorkStream) -> None:
        """Take a stream into its queue's cohort.

        Raises:
            TopicNotFound, NotAQueue: There is no such queue.
        """
        queue = self.engine.state.queue(stream.topic)
        self._next_stream += 1
        stream.identity = self._next_stream
        cohort = self._cohort(queue)
        cohort.streams.append(stream)
        self._schedule(cohort)
        self._arm(queue)

    def close_stream(self, stream: WorkStream) -> None:
        """The connection is gone: its leases, and only its, are claimable again at once."""
        for number, cohort in list(self._cohorts.items()):
            if stream in cohort.streams:
                cohort.streams.remove(stream)
                self._forget_if_idle(number, cohort)
        try:
            outcome = self.engine.execute(cmd.ReleaseStream(stream.topic, stream.identity))
        except LogqueueError as refusal:
            logger.info("leases of a closed stream are left to expire: %s", refusal)
        else:
            self._wake(outcome.topics)

    # -- the pass --------------------------------------------------------------------------------

    def _cohort(self, queue: Topic) -> _Cohort:
        cohort = self._cohorts.get(queue.number)
        if cohort is None:
            cohort = self._cohorts[queue.number] = _Cohort(queue)
        return cohort

    def _forget_if_idle(self, number: int, cohort: _Cohort) -> None:
        if not cohort.streams and not cohort.waiting:
            if cohort.scheduled is not None:
                cohort.scheduled.cancel()
            self._cohorts.pop(number, None)

    def _wake(self, topics: Iterable[Topic]) -> None:
        """Something changed: serve the cohorts that may gain from it."""
        for topic in topics:
            for reader in self._readers.pop(topic.name, ()):
                if not reader.done():
                    reader.set_result(None)
            cohort = self._cohorts.get(topic.number)
            if cohort is None:
                continue
            if topic.number not in self.engine.state.instances or topic.ready:
                self._schedule(cohort)
            self._arm(topic)

    def _schedule(self, cohort: _Cohort) -> None:
        """Open the coalescing window. Its end does not depend on who opened it."""
        if cohort.scheduled is not None:
            return
        jitter_ms = cohort.topic.config.claim_jitter_ms
        if jitter_ms:
            cohort.scheduled = self.loop.call_later(jitter_ms / 1000, self._serve, cohort)
        else:
            cohort.scheduled = self.loop.call_soon(self._serve, cohort)

    def _serve(self, cohort: _Cohort) -> None:
        """One coordinator pass over a whole cohort."""
        cohort.scheduled = None
        topic = cohort.topic
        waiting = [w for w in cohort.waiting if not w.future.done()]
        cohort.waiting = []
        if self.engine.state.instances.get(topic.number) is not topic:
            self._fail(cohort, waiting, TopicNotFound.named(topic.name))
            return
        elapse(topic, self.engine.clock.now_ms())
        streams = [(s, self._free_slots(topic, s)) for s in cohort.streams if not s.has_ended]
        # The stream that came first last time comes last now, so that a trickle reaches everybody.
        cohort.streams.append(cohort.streams.pop(0)) if cohort.streams else None
        hungry = [(s, free) for s, free in streams if free > 0]
        members = [w.claimer for w in waiting] + [
            Claimer(s.node, free, s.lease_ms, s.identity) for s, free in hungry
        ]
        if not members:
            self._forget_if_idle(topic.number, cohort)
            return
        try:
            outcome = self.engine.execute(cmd.Claim(topic.name, tuple(members)))
        except LogqueueError as refusal:
            self._fail(cohort, waiting, refusal)
            return
        claimed = outcome.reply
        assert isinstance(claimed, cmd.Claimed)
        for member, jobs in zip(waiting, claimed.jobs, strict=False):
            member.future.set_result((jobs, claimed.ready, outcome))
        for (stream, _), jobs in zip(hungry, claimed.jobs[len(waiting) :], strict=True):
            if jobs:
                self._deliver(stream, jobs, outcome)
        self._forget_if_idle(topic.number, cohort)
        self._wake(t for t in outcome.topics if t is not topic)
        self._arm(topic)

    @staticmethod
    def _free_slots(topic: Topic, stream: WorkStream) -> int:
        assert topic.queue is not None
        return stream.jobs_max - topic.queue.held_by(stream.identity)

    def _deliver(self, stream: WorkStream, jobs: list[cmd.Job], outcome: Outcome) -> None:
        def release(failure: LogqueueError | None) -> None:
            if failure is None:
                stream.deliver(jobs)
            else:
                stream.end(failure)

        self.gate.when(outcome.written, outcome.durable, release)

    def _fail(self, cohort: _Cohort, waiting: list[_Waiting], error: LogqueueError) -> None:
        streams, cohort.streams = cohort.streams, []
        self._forget_if_idle(cohort.topic.number, cohort)

        def release(failure: LogqueueError | None) -> None:
            for member in waiting:
                if not member.future.done():
                    member.future.set_exception(failure or error)
            for stream in streams:
                stream.end(failure or error)

        # What the refusal was computed from may not be durable yet.
        topic = cohort.topic
        durable = max(topic.mark_durable, self.engine.dropped_mark)
        self.gate.when(topic.mark_written, durable, release)

    # -- time ------------------------------------------------------------------------------------

    def _arm(self, topic: Topic) -> None:
        """Have the one timer go off when time next changes this queue, if somebody waits there."""
        cohort = self._cohorts.get(topic.number)
        if topic.queue is None or cohort is None or not cohort.streams:
            return
        due = topic.queue.next_due()
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        self._set_timer(due)

    def _set_timer(self, due: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(due - self.engine.clock.now_ms(), 0)
        self._timer_due = due
        # One ms more: timers may fire a hair early, and a lease is valid up to its deadline.
        self._timer = self.loop.call_later((delay_ms + 1) / 1000, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        now = self.engine.clock.now_ms()
        next_due: int | None = None
        for cohort in list(self._cohorts.values()):
            queue = cohort.topic.queue
            due = queue.next_due() if queue is not None and cohort.streams else None
            if due is None:
                continue
            if due <= now:
                self._schedule(cohort)
            elif next_due is None or due < next_due:
                next_due = due
        if next_due is not None:
            self._set_timer(next_due)

    # -- background ------------------------------------------------------------------------------

    async def _tidy_forever(self) -> None:
        complained = False
        while True:
            await asyncio.sleep(TIDY_INTERVAL_S)
            try:
                self.engine.expire_due()
                for _ in self.engine.tidy():
                    await asyncio.sleep(0.001 if self.gate.waiting == 0 else 0)
                complained = False
            except (LogqueueError, WalError) as refusal:
                if not complained:
                    logger.warning("disk space can not be given back now: %s", refusal)
                complained = True
            except Exception:
                logger.exception("giving disk space back failed; it is tried again later")

    async def _retreat_on_failure(self) -> None:
        """Once the log has failed, serve reads from what it still stands for."""
        engine = self.engine
        while engine.journal.jobs.failure is None:
            await asyncio.sleep(FAILURE_POLL_INTERVAL_S)
        logger.error(
            "storage is read-only since a write or sync failed: %s; check the disk and restart",
            engine.journal.jobs.failure,
        )
        try:
            engine.stand_on(await self.loop.run_in_executor(None, engine.retreat))
        except (WalError, OSError) as error:
            logger.error("the log can not be read back (%s); some reads stay refused", error)
            return
        for number, cohort in list(self._cohorts.items()):
            cohort.topic = engine.state.instances.get(number, cohort.topic)
        logger.warning("reads go on from the last good sync; writes are refused until a restart")

    async def _flush_leases_forever(self) -> None:
        while True:
            await asyncio.sleep(LEASES_FLUSH_INTERVAL_S)
            self.engine.journal.flush_leases()
            # Frames that no reply waits for are written now and then, too.
            self.engine.journal.jobs.wake()
