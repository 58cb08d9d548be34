"""Which segments to drop, and what must be rewritten before.

Owns: the policy. It is driven in small steps between requests. Must not know: the engine, asyncio,
HTTP.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import structs

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.batch import Batch
from logqueue.core.batches import live_size
from logqueue.core.decide.dead_letters import hold
from logqueue.core.decide.dispatch import decide
from logqueue.core.decide.staging import restaged
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import StorageFull
from logqueue.segments.index import LogName
from logqueue.server.storage import journal as journals
from logqueue.server.storage.journal import Journal
from logqueue.server.storage.segment_store import SegmentStore
from wal import Log, WalFull

SLACK_BYTES = 8 << 20
"""Garbage that is not worth a rewrite."""

LEASES_BYTES_MAX = 64 << 20
"""Lease history that is kept before the leases log restarts with a checkpoint."""

RECORD_OVERHEAD_BYTES = 24
MOVED_RECORDS_MAX = 1000
MOVED_BYTES_MAX = 1 << 20
MOVED_RECORDS_PER_FRAME = 20
"""A frame of its own takes as long as so many more records in one."""

CHUNKS_PER_STEP = 16
KEYS_PER_EVENT = 1000
TOPICS_PER_STEP = 2000
SCANNED_PER_STEP = 10_000
FREED_PER_STEP = 4096
FREED_BLOCK_BYTES = 16 << 10
KEY_BYTES = 64
TOPIC_BYTES = 256
JOB_KEPT_BYTES = 64

_Log = Callable[[list[ev.Event]], None]


class Commit(Protocol):
    """Logs and applies events without a visible effect."""

    def __call__(self, events: list[ev.Event], *, may_use_spare: bool = True) -> None:
        """Raises StorageFull when there is no room, or only what is spared for acks."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What one run works on. It ends with its state: a run on a state that was replaced is dropped.

    Attributes:
        state: As of now.
        journal: Where live data is rewritten.
        segments: Says which segments may go.
        now: The clock, ms since the epoch.
        commit: Logs and applies.
        expire: Evicts what is past its TTL from a topic.
    """

    state: State
    journal: Journal
    segments: SegmentStore
    now: Callable[[], int]
    commit: Commit
    expire: Callable[[Topic], None]


def free(state: State) -> Iterator[None]:
    """Free what dropped topics and evicted fronts have left behind."""
    discarded = state.discarded
    while discarded:
        left = FREED_PER_STEP
        while discarded and left > 0:
            items = discarded[-1]
            left -= 1
            while items and left > 0:
                item: Any = items.popitem() if isinstance(items, dict) else items.pop()
                # Large blocks go back to the system one by one, which takes its time.
                left -= 1 + len(item.block) // FREED_BLOCK_BYTES if type(item) is Batch else 1
                del item
            if not items:
                discarded.pop()
        yield


def expire_and_measure(work: Compaction) -> Generator[None, None, int]:
    """One trip over all topics: evicts what is past its TTL, and tags of removed records.

    Returns:
        About how large the jobs log would be with nothing but live data in it, in bytes.
    """
    state = work.state
    size = state.schedules.bytes
    for count, topic in enumerate([*state.instances.values()], 1):
        if state.instances.get(topic.number) is not topic:
            continue
        work.expire(topic)
        if topic.is_on_disk:
            size += topic.live_bytes + RECORD_OVERHEAD_BYTES * topic.live
            size += topic.attributes.bytes if topic.attributes is not None else 0
        size += KEY_BYTES * len(topic.keys) + TOPIC_BYTES
        if isinstance(topic, QueueTopic) and topic.queue.ended is not None:
            while topic.queue.ended.forget(work.now()):
                yield
            size += topic.queue.ended.bytes
        if topic.tags is not None and topic.tags.wants_prune:
            for _ in topic.tags.prune(topic.batches):
                yield
                if state.instances.get(topic.number) is not topic:
                    break
        if count % TOPICS_PER_STEP == 0:
            yield
    return size


def tidy_jobs(work: Compaction) -> Iterator[None]:
    """Rewrite and drop the oldest segments while the log is mostly garbage.

    Raises:
        StorageFull, WalFull: No room for what must be rewritten; nothing of it is dropped.
    """
    journal = work.journal
    log = journal.jobs
    # After a refusal for lack of space no garbage is too little.
    slack = 0 if log.stats.refused > journal.refused_noted else SLACK_BYTES
    journal.refused_noted = log.stats.refused
    # One trip over the log at most per call, so that this always ends.
    for _ in range(len(log.segments())):
        live = journal.live_bytes = yield from expire_and_measure(work)
        if log.failure is not None:
            return
        if not (yield from _drop_before(work, "jobs", journal.jobs_kept_from)):
            # Nothing here needs it, but the archive does not have it yet.
            return
        yield from _end_checkpoint(work)
        if log.failure is not None or log.bytes_total <= 2 * live + slack:
            if slack:
                yield from _keep_back(journal, live)
            return
        if not _replayable_after_first(work):
            journal.checkpoint(work.state, work.now())
            yield from _end_checkpoint(work)
        # Nearly always the second; later when a full disk had no room for a checkpoint.
        replayable = _replayable_after_first(work)
        if not replayable:
            return
        yield from _move_before(work, replayable[0])
        # Freed space is reserved before another write takes it.
        yield from _keep_back(journal, live)
        yield


def _move_before(work: Compaction, kept_from: int) -> Iterator[None]:
    """Make the segments before one needless, and drop them.

    They are dropped by `Journal.jobs_kept_from`, which moves only when all that was rewritten
    is durable. A move that fails half-way, or is never finished, drops nothing.

    Raises:
        StorageFull: No room.
    """
    journal, log = work.journal, work.journal.jobs
    # From now on nothing new refers to them; that stays so if the move fails.
    work.state.kept_from = max(work.state.kept_from, kept_from)
    try:
        yield from _move_all(work, kept_from, may_use_spare=False)
    except StorageFull:
        # The space that producers leave is for acks and deletes. It is lent only to a move that
        # is sure to end, for then a whole segment comes free; so is what is kept in reserve.
        left = yield from _left_to_move(work, kept_from)
        lent = max(left - journals.SPARE_BYTES // 2, 0)
        if lent > journal.reserve.bytes:
            raise
        journal.lent_bytes = journal.reserve.release() if lent else 0
        try:
            yield from _move_all(work, kept_from, may_use_spare=True)
        finally:
            journal.lent_bytes = 0
    work.commit([ev.SegmentsDropped(work.now(), 0, kept_from)])
    yield from _until_durable(log)
    if log.failure is None:
        journal.jobs_kept_from = kept_from
        yield from _drop_before(work, "jobs", kept_from)


def _until_durable(log: Log) -> Iterator[None]:
    """Have all that was appended synced; over early when the log fails."""
    appended = log.appended
    log.sync()
    while log.durable < appended and log.failure is None:
        yield


def _keep_back(journal: Journal, live: int) -> Iterator[None]:
    """Keep room in reserve for what the oldest segment may have of live data."""
    movable = min(live, journal.jobs.segments()[0].bytes)
    if movable > journals.SPARE_BYTES // 2:
        # A rewritten record says which one it is, so it is a little larger than before.
        yield from journal.reserve.grow(movable + movable // 2)


def _move_all(work: Compaction, kept_from: int, *, may_use_spare: bool) -> Iterator[None]:
    def log(events: list[ev.Event]) -> None:
        work.commit(events, may_use_spare=may_use_spare)

    for segment in [s.id for s in work.journal.jobs.segments() if s.id < kept_from]:
        yield from _move_live(work, segment, log)
    yield from _move_staged(work, log)


def _left_to_move(work: Compaction, kept_from: int) -> Generator[None, None, int]:
    """Upper bound of the bytes in the segments before one that still have to be rewritten."""
    state = work.state
    size = scanned = 0
    for topic in [*state.instances.values()]:
        for chunk in [*topic.batches.chunks] if topic.is_on_disk else ():
            for batch in chunk.batches if chunk.oldest_segment < kept_from else ():
                if batch.segment < kept_from:
                    overhead = RECORD_OVERHEAD_BYTES * batch.live
                    size += min(live_size(batch) + overhead, len(batch.block)) + overhead
                    scanned += batch.live
            if scanned >= SCANNED_PER_STEP:
                scanned = 0
                yield
        size += sum(
            KEY_BYTES + len(name) + 2 * KEY_BYTES * len(write.results)
            for name, write in topic.keys.items()
            if write.segment < kept_from
        )
        if isinstance(topic, QueueTopic):
            size += TOPIC_BYTES * len(topic.queue.held)
            size += topic.queue.ended.bytes if topic.queue.ended is not None else 0
        scanned += len(topic.keys) + 1
    for producer in state.producers.values():
        size += sum(len(chunk.block) + TOPIC_BYTES for _, _, chunk in producer.all_staged())
    return size


def _drop_before(work: Compaction, name: LogName, segment: int) -> Generator[None, None, bool]:
    """Delete the segments of a log with an id below this one: all of them, or none.

    Returns:
        False when the archive does not have them all yet.
    """
    log = work.journal.logs[name]
    if log.segments()[0].id >= segment:
        return True
    if not work.segments.may_drop_before(name, segment):
        return False
    yield from work.journal.drop_before(log, segment)
    return True


def _end_checkpoint(work: Compaction) -> Iterator[None]:
    """Log the rest of a checkpoint in progress."""
    journal = work.journal
    while journal.is_checkpointing and journal.jobs.failure is None:
        try:
            journal.go_on_with_checkpoint(work.state, work.now())
        except WalFull:
            if not _replayable_after_first(work):
                raise
            # An earlier checkpoint is enough to drop what is before it; then there is room.
            return
        yield


def _replayable_after_first(work: Compaction) -> list[int]:
    """Segments behind the oldest one from which the log could be replayed."""
    journal = work.journal
    later = journal.jobs.segments()[1:]
    return [segment.id for segment in later if journal.begins_with_checkpoint(segment.id)]


def _move_live(work: Compaction, segment: int, log: _Log) -> Iterator[None]:
    instances = work.state.instances
    # In records moved, or what takes about as long.
    spent = 0
    for topic in [*instances.values()]:
        spent += 1
        for run in _runs(topic, segment) if topic.is_on_disk else ():
            if instances.get(topic.number) is not topic:
                break
            if run:
                # Not as a command of its own: time must not act between look and decision.
                compact = cmd.Compact(topic.name, [batch.first_seq for batch in run])
                decision = decide(work.state, compact, work.now())
                log(decision.events)
                spent += MOVED_RECORDS_PER_FRAME + sum(batch.live for batch in run)
            else:
                spent = MOVED_RECORDS_MAX
            if spent >= MOVED_RECORDS_MAX:
                yield
                spent = 0
        yield from _carry_keys(work, topic, segment, log)
        if spent >= MOVED_RECORDS_MAX:
            yield
            spent = 0
        yield from _carry_holds(work, topic, segment, log)
        yield from _carry_ends(work, topic, segment, log)


def _move_staged(work: Compaction, log: _Log) -> Iterator[None]:
    """Log again what is staged in the segments that are about to be dropped."""
    state = work.state
    for producer in [*state.producers.values()]:
        for epoch, chunk_id, _ in [*producer.all_staged()]:
            chunk = producer.chunks(epoch).get(chunk_id)
            if chunk is None or state.producers.get(producer.name) is not producer:
                continue
            # Nothing the producer did, so it is as long ago as before that it was heard of.
            at = producer.touched_at
            events = [*restaged(state, producer, epoch, [(chunk_id, chunk)], at)]
            if events:
                log([*events])
                yield


def _runs(topic: Topic, segment: int) -> Iterator[list[Batch]]:
    """Neighbouring batches of one segment, in runs that make one frame each.

    Empty runs are yielded now and then, so that a long scan stays interruptible. The topic may
    change between two runs; each continues after the seq where the last one ended.
    """
    start = 1
    while start <= topic.head and topic.batches:
        run, start = _next_run(topic, segment, start)
        if run or start <= topic.head:
            yield run


def _next_run(topic: Topic, segment: int, start: int) -> tuple[list[Batch], int]:
    """The first run from a seq on, and the seq from which to look for the next."""
    run: list[Batch] = []
    records = size = 0
    for scanned, chunk in enumerate(topic.batches.chunks_from(start)):
        if not run and scanned >= CHUNKS_PER_STEP:
            return run, start
        if chunk.oldest_segment > segment and not run:
            start = chunk.batches[-1].last_seq + 1
            continue
        for batch in chunk.batches[bisect_left(chunk.firsts, start) :]:
            fits = records + batch.live <= MOVED_RECORDS_MAX and size < MOVED_BYTES_MAX
            # Plain records stay among themselves: columns would cost each of them space.
            alike = not run or (batch.is_plain == run[0].is_plain and batch.hops == run[0].hops)
            if run and (batch.segment != segment or not fits or not alike):
                return run, batch.first_seq
            start = batch.last_seq + 1
            if batch.segment == segment:
                run.append(batch)
                records += batch.live
                size += len(batch.block)
    return run, topic.head + 1


def _carry_keys(work: Compaction, topic: Topic, segment: int, log: _Log) -> Iterator[None]:
    """Log the idempotency keys of a segment again, in the order they were first logged in."""
    if not topic.keys or next(iter(topic.keys.values())).segment > segment:
        return
    names = [*topic.keys]
    for start in range(0, len(names), KEYS_PER_EVENT):
        now = work.now()
        part = []
        for name in names[start : start + KEYS_PER_EVENT]:
            write = topic.remembered(name, now)
            if write is not None and write.segment == segment:
                part.append((name, write.at, write.first_seq, write.records, write.head))
        if work.state.instances.get(topic.number) is not topic:
            return
        if part:
            results = {name: [*topic.keys[name].results] for name, *_ in part}
            results = {name: found for name, found in results.items() if found}
            log([ev.KeysRemembered(now, topic.number, part, results)])
        yield
        last = topic.keys.get(names[min(start + KEYS_PER_EVENT, len(names)) - 1])
        if last is not None and last.segment > segment and not part:
            return


def _carry_holds(work: Compaction, topic: Topic, segment: int, log: _Log) -> Iterator[None]:
    """Log again what a segment says of held jobs."""
    if not isinstance(topic, QueueTopic) or not topic.queue.held:
        return
    queue = topic.queue
    held = [seq for seq, noted_in in queue.held.items() if noted_in == segment]
    for start in range(0, len(held), KEYS_PER_EVENT):
        if work.state.instances.get(topic.number) is not topic:
            return
        part = [seq for seq in held[start : start + KEYS_PER_EVENT] if seq in queue.held]
        if part:
            held_still = hold(topic, part, work.now(), "")
            log([structs.replace(held_still, again=True)])
        yield


def _carry_ends(work: Compaction, topic: Topic, segment: int, log: _Log) -> Iterator[None]:
    """Log again what a segment says of ended jobs."""
    ended = topic.queue.ended if isinstance(topic, QueueTopic) else None
    if ended is None:
        return
    seqs = ended.of_segment(segment)
    at = 0
    while at < len(seqs):
        if work.state.instances.get(topic.number) is not topic:
            return
        now = work.now()
        part, at = ended.kept(seqs, at, segment, now)
        if part:
            log([ev.EndsKept(now, topic.number, part, ended.keys_of(part))])
        yield
    ended.segment_dropped(segment)


def tidy_leases(work: Compaction) -> Iterator[None]:
    """Restart the leases log once its history is long enough."""
    journal = work.journal
    log = journal.leases
    if log.failure is not None or not (
        yield from _drop_before(work, "leases", journal.leases_kept_from)
    ):
        return
    if log.bytes_total <= LEASES_BYTES_MAX:
        # Whatever the number of topics: most servers are here most of the time.
        return
    known = 0
    for count, topic in enumerate([*work.state.instances.values()], 1):
        if isinstance(topic, QueueTopic) and topic.is_on_disk:
            known += len(topic.queue.jobs)
        if count % TOPICS_PER_STEP == 0:
            yield
    if log.failure is not None or log.bytes_total <= LEASES_BYTES_MAX + 128 * known:
        return
    log.roll()
    kept_from = log.segment
    # A part of a checkpoint frees nothing, so it is not started without room for all of it.
    yield from journal.checkpoint_leases(work.state, work.now(), JOB_KEPT_BYTES * known)
    yield from _until_durable(log)
    if log.failure is None:
        journal.leases_kept_from = kept_from
        yield from _drop_before(work, "leases", kept_from)
    yield
