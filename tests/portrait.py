"""A picture of a state that does not depend on how it is stored.

Owns: `portrait`, by which a live state and a replayed one are compared. Must not know: commands,
the log.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logqueue.core import record_times
from logqueue.core.queue_state import QueueState
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.routers import RouterState
from logqueue.core.schedules import ScheduleState
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.events.block import DELAY, KEY, NUMBER_COLUMNS, BlockView

NOT_REPLAYED = ("error", "failed", "failures", "retry_at")
"""What a schedule knows of refused tries."""


def portrait(state: State, now: int | None = None) -> dict[str, Any]:
    """All logical content as plain data: equal for states that no caller can tell apart.

    Args:
        state: Read only.
        now: When given, idempotency keys past their window are left out.
    """
    picture: dict[str, Any] = {
        name: _topic_portrait(topic, now) for name, topic in state.topics.items()
    }
    for name, router in state.routers.items():
        picture[f"router {name}"] = {
            attribute: getattr(router, attribute)
            for attribute in RouterState.__slots__
            if attribute != "made"
        }
    for name, schedule in state.schedules.by_name.items():
        picture[f"schedule {name}"] = {
            attribute: getattr(schedule, attribute)
            for attribute in ScheduleState.__slots__
            if attribute not in NOT_REPLAYED
        }
    for name, batch in state.batches.by_name.items():
        counts = batch.joined, batch.done, state.batches.left.get(name, 0)
        picture[f"batch {name}"] = (*counts, batch.created_at, batch.closed_at, batch.ended_at)
    return picture


def _topic_portrait(topic: Topic, now: int | None) -> dict[str, Any]:
    picture: dict[str, Any] = {
        "instance": topic.number,
        "config": msgspec.structs.asdict(topic.config),
        "head": topic.head,
        "earliest": topic.earliest_seq,
        "floors": (topic.cap_floor, topic.ttl_floor),
        "holes": topic.holes,
        "bytes": topic.live_bytes,
        "written_at": topic.last_write_at,
        "records": {
            seq: (ts, *texts) for batch in topic.batches for seq, ts, texts in batch.records()
        },
        "keys": {
            key: (write.at, write.first_seq, write.records, write.head)
            for key, write in topic.keys.items()
            if now is None or topic.remembered(key, now) is not None
        },
    }
    if topic.attributes is not None:
        picture["attributes"] = _attributes_portrait(topic)
    if isinstance(topic, QueueTopic):
        picture["queue"] = _queue_portrait(topic.queue)
        ended = topic.queue.ended
        if ended is not None:
            last = max((job.at for _, job in ended.visible(0)), default=0) if now is None else now
            picture["ended"] = {
                seq: (job.outcome, job.at, job.node, job.reason, job.result, job.error)
                for seq, job in ended.visible(last)
            }
    return picture


def _attributes_portrait(topic: Topic) -> dict[int, tuple[Any, ...]]:
    found: dict[int, tuple[Any, ...]] = {}
    for batch in topic.batches:
        view = BlockView(batch.block)
        for index in batch.live_indexes():
            numbers = [view.number(c, index) for c in range(DELAY, len(NUMBER_COLUMNS))]
            own = (view.text(KEY, index), *numbers)
            if any(own):
                found[batch.seq_at(index)] = own
    return found


def _queue_portrait(queue: QueueState) -> dict[str, Any]:
    jobs: dict[int, tuple[Any, ...]] = {}
    orphans: dict[int, tuple[Any, ...]] = {}
    for seq, job in sorted(queue.jobs.items()):
        grant = job.grant
        if grant is not None:
            lease = ("leased", job.deliveries, job.lease, grant.node, grant.deadline, grant.stream)
            (jobs if job.live else orphans)[seq] = lease
        elif seq in queue.held:
            jobs[seq] = ("held", job.deliveries)
        elif job.ready_at:
            jobs[seq] = ("delayed", job.deliveries, job.ready_at)
        elif job.deliveries or seq < queue.cursor:
            # From the cursor on, one that was never delivered is handed out as a fresh one is.
            jobs[seq] = ("reclaimed", job.deliveries)
    for packed in queue.delayed:
        seq = record_times.seq_of(packed)
        if seq not in queue.jobs:
            jobs[seq] = ("delayed", 0, record_times.time_of(packed))
    return {
        "jobs": dict(sorted(jobs.items())),
        "orphans": orphans,
        "dead_lettered": queue.dead_lettered,
        "given back": {s: job.given_back for s, job in queue.jobs.items() if job.given_back},
        "errors": {s: job.error for s, job in sorted(queue.jobs.items()) if job.error is not None},
        "finished": dict(sorted(queue.finished.items())),
    }
