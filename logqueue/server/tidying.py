"""Which segments to drop, and what must be written anew before.

Owns: the policy. It is driven in small steps between requests. Must not know: asyncio, HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from logqueue.core import commands as cmd
from logqueue.core import events as ev
from logqueue.core.batch import Batch
from logqueue.core.decide import decide
from logqueue.core.topic import Topic

if TYPE_CHECKING:
    from logqueue.server.engine import Engine

SLACK_BYTES = 8 << 20
"""Garbage that is not worth a rewrite."""

LEASES_BYTES_MAX = 64 << 20
"""Lease history that is kept before the leases log begins anew with a checkpoint."""

RECORD_OVERHEAD_BYTES = 24
MOVED_RECORDS_MAX = 1000
MOVED_BYTES_MAX = 1 << 20
BATCHES_SCANNED_PER_STEP = 5000
KEYS_PER_EVENT = 1000


def live_log_bytes(engine: Engine) -> int:
    """About how large the jobs log would be with nothing but live data in it."""
    state = engine.state
    live = sum(topic.live for topic in state.instances.values() if topic.is_on_disk)
    size = sum(topic.live_bytes for topic in state.instances.values() if topic.is_on_disk)
    keys = sum(len(topic.keys) for topic in state.instances.values())
    return size + RECORD_OVERHEAD_BYTES * live + 64 * keys + 256 * len(state.instances)


def tidy_jobs(engine: Engine) -> Iterator[None]:
    """Rewrite and drop the oldest segments while the log is mostly garbage."""
    journal = engine.journal
    log = journal.jobs
    # After a refusal for lack of space no garbage is too little.
    slack = 0 if log.stats.refused > journal.refused_noted else SLACK_BYTES
    journal.refused_noted = log.stats.refused
    # One trip over the log at most per call, so that this always ends.
    for _ in range(len(log.segments())):
        if log.failure is not None or log.bytes_total <= 2 * live_log_bytes(engine) + slack:
            return
        if not _replayable_after_first(engine):
            journal.checkpoint(engine.state, engine.clock.now_ms())
        # Nearly always the second; later when a full disk had no room for a checkpoint.
        replayable = _replayable_after_first(engine)
        if not replayable:
            return
        kept_from = replayable[0]
        for segment in [s.id for s in log.segments() if s.id < kept_from]:
            yield from _move_live(engine, segment)
        now = engine.clock.now_ms()
        engine.commit_housekeeping([ev.SegmentsDropped(now, 0, kept_from)])
        moved = log.appended
        log.sync()
        while log.durable < moved and log.failure is None:
            yield
        if log.failure is None:
            log.drop_before(kept_from)
        yield


def _replayable_after_first(engine: Engine) -> list[int]:
    """Segments behind the oldest one from which the log could be replayed."""
    journal = engine.journal
    later = journal.jobs.segments()[1:]
    return [segment.id for segment in later if journal.begins_with_checkpoint(segment.id)]


def _move_live(engine: Engine, segment: int) -> Iterator[None]:
    for topic in list(engine.state.instances.values()):
        for run in _runs(topic, segment):
            if run and engine.state.instances.get(topic.number) is topic:
                firsts = [batch.first_seq for batch in run if batch.live]
                if firsts:
                    # Not as a command of its own: time must not act between look and decision.
                    compact = cmd.Compact(topic.name, firsts)
                    decision = decide(engine.state, compact, engine.clock.now_ms())
                    engine.commit_housekeeping(decision.events)
            yield
        if engine.state.instances.get(topic.number) is topic:
            _carry_keys(engine, topic, segment)


def _runs(topic: Topic, segment: int) -> Iterator[list[Batch]]:
    """Neighbouring batches of one segment, in runs that make one frame each.

    Empty runs are yielded now and then, so that a long scan stays interruptible. The topic may
    change between two runs; each goes on behind the seq where the last one ended.
    """
    run: list[Batch] = []
    records = size = 0
    start = 1
    while True:
        for scanned, batch in enumerate(topic.batches_from(start), 1):
            start = batch.last_seq + 1
            fits = records + batch.live <= MOVED_RECORDS_MAX and size < MOVED_BYTES_MAX
            if run and (batch.segment != segment or not fits):
                break
            if batch.segment == segment:
                run.append(batch)
                records += batch.live
                size += len(batch.block)
            if scanned == BATCHES_SCANNED_PER_STEP and not run:
                break
        else:
            yield run
            return
        if run and batch.segment == segment:
            start = batch.first_seq
        yield run
        run = []
        records = size = 0


def _carry_keys(engine: Engine, topic: Topic, segment: int) -> None:
    now = engine.clock.now_ms()
    kept = [
        (key, write.at, write.first_seq, write.records, write.head)
        for key, write in topic.keys.items()
        if write.segment == segment and topic.remembered(key, now) is not None
    ]
    for start in range(0, len(kept), KEYS_PER_EVENT):
        part = kept[start : start + KEYS_PER_EVENT]
        engine.commit_housekeeping([ev.KeysRemembered(now, topic.number, part)])


def tidy_leases(engine: Engine) -> Iterator[None]:
    """Begin the leases log anew once its history is long enough."""
    journal = engine.journal
    log = journal.leases
    durable = sum(
        len(topic.queue.jobs)
        for topic in engine.state.instances.values()
        if topic.queue is not None and topic.config.leases_durable
    )
    if log.failure is not None or log.bytes_total <= LEASES_BYTES_MAX + 128 * durable:
        return
    kept_from = journal.checkpoint_leases(engine.state, engine.clock.now_ms())
    checkpointed = log.appended
    log.sync()
    while log.durable < checkpointed and log.failure is None:
        yield
    if log.failure is None:
        log.drop_before(kept_from)
    yield
