"""What checkpoints restate, part by part, so that no writer waits for a long one.

Owns: the events of a checkpoint and how much goes into each. Other events may come between two
parts: each says how things are at its place in the log, and replay learns of all topics of a
checkpoint before it comes to the first part. Must not know: files, when a checkpoint is due.
"""

from __future__ import annotations

from collections.abc import Iterator

from logqueue import events as ev
from logqueue.core.job_batches import JobBatch
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.routers import RouterState
from logqueue.core.schedules import ScheduleState
from logqueue.core.staging import ProducerState
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.model.config import TopicOptions

TOPICS_PER_PART = 1000
JOBS_PER_PART = 1000
PRODUCERS_PER_PART = 500
SCHEDULES_PER_PART = 500
BATCHES_PER_PART = 500
SCHEDULE_BYTES_PER_PART = 1 << 20
RANGES_PER_PART = 5000
"""Where the last epochs of some producers went: a producer may have as many ranges as topics."""


class JobsCheckpoint:
    """A checkpoint of the jobs log under way.

    Attributes:
        segment: The one it begins; the log can be replayed from there once it is complete.
    """

    def __init__(self, state: State, segment: int) -> None:
        self.segment = segment
        routers = [*state.routers_by_number.values()]
        # The first part tells of all that routers copy from: replay needs these to make the copies
        # that come next, and a topic that is dropped before its part is in none.
        sources = {router.source for router in routers}
        topics = sorted(state.instances.values(), key=lambda topic: topic.number not in sources)
        # Replay begins with the configs as they are now; later changes are in the log behind.
        self._unstated = [(topic, topic.config) for topic in topics]
        self._unstated.reverse()
        self._size = max(TOPICS_PER_PART, len(sources))
        self._routers = [_router_kept(router) for router in routers]
        self._producers = [*reversed(state.producers)]
        self._schedules = [*reversed(state.schedules.by_name)]
        self._batches = [*reversed(state.batches.by_name)]
        self._taken = self._taken_schedules = self._taken_batches = 0
        self.is_complete = False

    def next_part(self, state: State, at: int, oldest: int, *, clean: bool) -> ev.Checkpointed:
        """The event to log next.

        Args:
            state: As of now.
            at: The clock.
            oldest: First segment of the log.
            clean: Whether the last part marks an orderly shutdown.
        """
        kept = [
            _topic_kept(topic, config)
            for topic, config in reversed(self._unstated[-self._size :])
            if state.instances.get(topic.number) is topic
        ]
        producers = self._next_producers(state)
        schedules = self._next_schedules(state)
        batches = self._next_batches(state)
        more = (
            len(self._unstated) > self._size
            or len(self._producers) > self._taken
            or len(self._schedules) > self._taken_schedules
            or len(self._batches) > self._taken_batches
        )
        return ev.Checkpointed(
            at,
            0,
            kept,
            state.next_topic,
            state.next_lease,
            clean and not more,
            oldest,
            self._routers,
            self.segment,
            more,
            producers,
            schedules,
            batches,
        )

    def _next_producers(self, state: State) -> list[ev.ProducerSnapshot]:
        """Producers for the next part; those that are forgotten by now are passed over."""
        kept: list[ev.ProducerSnapshot] = []
        self._taken = ranges = 0
        for name in reversed(self._producers):
            producer = state.producers.get(name)
            if self._taken == PRODUCERS_PER_PART or ranges >= RANGES_PER_PART:
                break
            self._taken += 1
            if producer is not None:
                kept.append(_producer_kept(producer))
                ranges += len(kept[-1].ranges)
        return kept

    def _next_schedules(self, state: State) -> list[ev.ScheduleSnapshot]:
        """Schedules for the next part; those that are gone by now are passed over."""
        kept: list[ev.ScheduleSnapshot] = []
        self._taken_schedules = size = 0
        for name in reversed(self._schedules):
            if self._taken_schedules == SCHEDULES_PER_PART or size >= SCHEDULE_BYTES_PER_PART:
                break
            self._taken_schedules += 1
            schedule = state.schedules.find(name)
            if schedule is not None:
                kept.append(_schedule_kept(schedule))
                size += len(schedule.options.record) + len(schedule.options.block)
        return kept

    def _next_batches(self, state: State) -> list[ev.BatchSnapshot]:
        """Batches for the next part; those that are gone by now are passed over."""
        kept: list[ev.BatchSnapshot] = []
        self._taken_batches = size = 0
        for name in reversed(self._batches):
            if self._taken_batches == BATCHES_PER_PART or size >= SCHEDULE_BYTES_PER_PART:
                break
            self._taken_batches += 1
            batch = state.batches.find(name)
            if batch is not None:
                kept.append(_batch_kept(batch))
                callbacks = (batch.on_done, batch.on_problem)
                size += sum(len(one.record) + len(one.block) for one in callbacks if one)
        return kept

    def advance(self) -> None:
        """That part is logged."""
        del self._unstated[-self._size :]
        del self._producers[len(self._producers) - self._taken :]
        del self._schedules[len(self._schedules) - self._taken_schedules :]
        del self._batches[len(self._batches) - self._taken_batches :]
        self.is_complete = not (
            self._unstated or self._producers or self._schedules or self._batches
        )
        self._size = TOPICS_PER_PART
        self._routers = []


def leases_parts(state: State, at: int) -> Iterator[ev.LeasesCheckpointed]:
    """The events of a leases checkpoint: the states of all queues with records in the log.

    Each is to be logged before anything else happens; between two of them jobs may be claimed and
    settled, and topics may go.
    """
    for topic in [*state.instances.values()]:
        if not isinstance(topic, QueueTopic) or not topic.is_on_disk:
            continue
        queue = topic.queue
        seqs = [*queue.jobs]
        for start in range(0, max(len(seqs), 1), JOBS_PER_PART):
            if state.instances.get(topic.number) is not topic:
                break
            part = seqs[start : start + JOBS_PER_PART]
            kept = queue.lapsed_kept(part, at, topic.config.retry_backoff)
            yield ev.LeasesCheckpointed(at, topic.number, queue.cursor, kept)


def _topic_kept(topic: Topic, config: TopicOptions) -> ev.TopicSnapshot:
    queue = topic.queue if isinstance(topic, QueueTopic) else None
    return ev.TopicSnapshot(
        topic.number,
        topic.name,
        config,
        topic.head,
        topic.seqs_reserved,
        topic.cap_floor,
        topic.ttl_floor,
        topic.last_write_at,
        queue.dead_lettered if queue is not None else 0,
        topic.holes,
        dict(queue.finished) if queue is not None else {},
    )


def _router_kept(router: RouterState) -> ev.RouterSnapshot:
    return ev.RouterSnapshot(
        router.number,
        router.name,
        router.source,
        router.dest,
        router.cursor,
        router.forwarded,
        router.options,
    )


def _schedule_kept(schedule: ScheduleState) -> ev.ScheduleSnapshot:
    return ev.ScheduleSnapshot(
        schedule.name,
        schedule.options,
        schedule.paused,
        schedule.created_at,
        schedule.next_at,
        schedule.fired,
        schedule.skipped,
        schedule.missed,
        schedule.last_scheduled_for,
        schedule.last_fired_at,
        schedule.last_seq,
        schedule.last_result,
    )


def _batch_kept(batch: JobBatch) -> ev.BatchSnapshot:
    return ev.BatchSnapshot(
        batch.name,
        batch.created_at,
        batch.closed_at,
        batch.ended_at,
        batch.joined,
        batch.done,
        batch.on_done,
        batch.on_problem,
    )


def _producer_kept(producer: ProducerState) -> ev.ProducerSnapshot:
    committed = producer.committed
    if committed is None:
        return ev.ProducerSnapshot(producer.name, producer.touched_at, -1, b"", [])
    return ev.ProducerSnapshot(
        producer.name,
        producer.touched_at,
        committed.number,
        committed.digest,
        [*committed.ranges],
    )
