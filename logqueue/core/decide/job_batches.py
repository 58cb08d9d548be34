"""Deciding about batches of jobs: who may join, when one ends, what is written then.

Owns: that the end of a batch and its callback are one decision. Changes nothing. Must not know:
what wakes the server, how a write is decided.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.decide.decision import AfterApply, Decision
from logqueue.core.decide.topics import append, require_queue_for
from logqueue.core.job_batches import JobBatch
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import BatchExists, BatchNotEmpty, Throttled
from logqueue.events import block as blocks
from logqueue.events import follow
from logqueue.model import limits
from logqueue.model.config import TopicOptions
from logqueue.model.job_batch import BatchCallback, require_batch_name

STAMP = "$batch"
"""Where the meta of a callback has the counts of its batch."""

CALLBACK_CONFIG = TopicOptions(type="queue").resolved()
"""What the topic of a callback is created with."""

_encoder = msgspec.json.Encoder()


def open_batch(state: State, command: cmd.OpenBatch, now: int) -> Decision[cmd.BatchResult]:
    """Create a batch; the same again while it is open changes nothing.

    Raises:
        InvalidRequest: The name is invalid.
        BatchExists: There is another one with that name.
        NotAQueue: A callback with members of jobs is for a log.
        Throttled: There are all the batches there may be, and none of them has ended.
    """
    name = command.name
    require_batch_name(name)
    known = state.batches.find(name)
    if known is not None:
        is_same = (known.on_done, known.on_problem) == (command.on_done, command.on_problem)
        if not is_same or known.closed_at:
            raise BatchExists.named(name)
        return Decision([], cmd.BatchResult(known, False))
    for callback in (command.on_done, command.on_problem):
        topic: Topic | None = state.topics.get(callback.topic) if callback is not None else None
        if callback is not None and topic is not None:
            require_queue_for(topic, callback.block)
    events: list[ev.Event] = []
    if len(state.batches) >= state.quotas.batches_max > 0:
        oldest = min(
            (batch for batch in state.batches.by_name.values() if batch.ended_at),
            key=lambda batch: batch.ended_at,
            default=None,
        )
        if oldest is None:
            most = state.quotas.batches_max
            raise Throttled(
                f"the server already has its maximum of {most} batches, and none of them has "
                "ended; close or delete some first",
                {"limit": "max_batches", "max": most},
            )
        events.append(ev.JobBatchRemoved(now, 0, oldest.name))
    events.append(ev.JobBatchOpened(now, 0, name, command.on_done, command.on_problem))
    return Decision(events, AfterApply(lambda: cmd.BatchResult(state.batches.named(name), True)))


def close_batch(state: State, command: cmd.CloseBatch, now: int) -> Decision[cmd.BatchResult]:
    """Have a batch end once its jobs have; closing it again changes nothing.

    Raises:
        BatchNotFound: There is none.
    """
    batch = state.batches.named(command.name)
    events: list[ev.Event] = []
    if not batch.closed_at:
        events.append(ev.JobBatchClosed(now, 0, batch.name))
    return Decision(events, cmd.BatchResult(batch, False))


def drop_batch(state: State, command: cmd.DropBatch, now: int) -> Decision[cmd.BatchDropResult]:
    """Delete a batch that has no jobs left.

    Raises:
        BatchNotEmpty: It has some.
    """
    batch = state.batches.find(command.name)
    if batch is None:
        return Decision([], cmd.BatchDropResult(False))
    left = state.batches.left.get(batch.name, 0)
    if left:
        raise BatchNotEmpty.named(batch.name, left)
    return Decision([ev.JobBatchRemoved(now, 0, batch.name)], cmd.BatchDropResult(True))


def end_batch(state: State, command: cmd.EndBatch, now: int) -> Decision[cmd.Done]:
    """End a batch that is due: its callback is written, and never again.

    Raises:
        LogqueueError: The callback is refused, as a write by itself would be.
    """
    batch = state.batches.find(command.name)
    if batch is None or command.name not in state.batches.due:
        return Decision([], cmd.Done())
    events: list[ev.Event] = []
    callback = callback_of(state, batch)
    if callback is not None:
        create = state.quotas.auto_create
        block = _stamped(state, batch, callback)
        write = cmd.Append(callback.topic, block, 1, create=create, config=CALLBACK_CONFIG)
        events = append(state, write, now).events
    events.append(ev.JobBatchEnded(now, 0, batch.name, batch.joined, batch.done))
    return Decision(events, cmd.Done(1))


def callback_of(state: State, batch: JobBatch) -> BatchCallback | None:
    """What is written when a batch ends as it is now. Without `on_problem`, `on_done` is written
    whatever became of the jobs."""
    if state.batches.failed(batch) and batch.on_problem is not None:
        return batch.on_problem
    return batch.on_done


def expire_batches(state: State, command: cmd.ExpireBatches, now: int) -> Decision[cmd.Done]:
    """Forget batches that have ended long ago, a bounded number."""
    before = now - limits.BATCH_KEPT_MS
    old = (b for b in state.batches.by_name.values() if 0 < b.ended_at < before)
    events: list[ev.Event] = [
        ev.JobBatchRemoved(now, 0, batch.name) for batch in islice(old, limits.BATCHES_PER_PASS_MAX)
    ]
    return Decision(events, cmd.Done(len(events)))


def _stamped(state: State, batch: JobBatch, callback: BatchCallback) -> bytes:
    counts = _encoder.encode(
        {
            "batch": batch.name,
            "joined": batch.joined,
            "done": batch.done,
            "failed": state.batches.failed(batch),
        }
    )
    meta = blocks.BlockView(callback.block).text(blocks.META, 0)
    return blocks.with_meta(callback.block, follow.with_member(meta, STAMP, counts))
