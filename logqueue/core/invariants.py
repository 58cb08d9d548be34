"""What must hold of every state, and a picture of it that does not depend on how it is stored.

Owns: `check`, which asserts, and `portrait`, by which a live state and a replayed one are compared.
Changes nothing. Must not know: commands, the log.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec

from logqueue.core.block import View
from logqueue.core.projection import Grant, Job, Queue
from logqueue.core.state import State
from logqueue.core.topic import Topic


def check(state: State) -> None:
    """Assert every invariant of a state. Walks all of it, so it is for tests.

    Raises:
        AssertionError: Something does not hold; the message says where.
    """
    assert len(state.topics) == len(state.instances), "a topic is known by name and by number"
    for number, topic in state.instances.items():
        name = topic.name
        assert topic.number == number and state.topics.get(name) is topic, name
        assert topic.number < state.next_topic, f"{name}: instance numbers are given out once"
        _check_records(topic)
        assert (topic.queue is not None) == topic.config.is_queue, name
        if topic.queue is not None:
            _check_queue(topic, topic.queue, state.next_lease)


def portrait(state: State, now: int | None = None) -> dict[str, Any]:
    """All logical content as plain data: equal for states that nobody can tell apart.

    Args:
        state: Read only.
        now: When given, idempotency keys past their window are left out.
    """
    return {name: _topic_portrait(topic, now) for name, topic in state.topics.items()}


def _check_records(topic: Topic) -> None:
    where = topic.name
    live = size = 0
    for earlier, later in pairwise(topic.batches):
        assert earlier.last_seq < later.first_seq, f"{where}: batches overlap"
    for batch in topic.batches:
        indexes = [*batch.live_indexes()]
        assert indexes and len(indexes) == batch.live, f"{where}: count of batch {batch.first_seq}"
        assert View(batch.block).count == batch.count, where
        seqs = [batch.seq_at(i) for i in range(batch.count)]
        assert seqs[0] == batch.first_seq and seqs[-1] == batch.last_seq, where
        assert all(a < b for a, b in pairwise(seqs)), f"{where}: seqs ascend within a batch"
        live += batch.live
        size += sum(View(batch.block).size(i) for i in indexes)
    assert topic.live == live, f"{where}: {topic.live} live, its batches hold {live}"
    assert topic.live_bytes == size, f"{where}: {topic.live_bytes} bytes, its batches hold {size}"
    assert not topic.batches or topic.batches[-1].last_seq <= topic.head, f"{where}: head"
    assert 0 <= topic.cap_floor <= topic.head, f"{where}: cap floor above the head"
    assert 0 <= topic.ttl_floor <= topic.head, f"{where}: TTL floor above the head"
    assert topic.floor < topic.earliest_seq <= topic.head + 1, f"{where}: earliest seq"
    for key, write in topic.keys.items():
        assert write.first_seq + write.records - 1 <= write.head <= topic.head, f"{where}: {key}"


def _check_queue(topic: Topic, queue: Queue, next_lease: int) -> None:
    where = topic.name
    reclaim, delayed = set[int](), set[tuple[int, int]]()
    leases: list[int] = []
    streams: dict[int, set[int]] = {}
    grants: Counter[int] = Counter()
    leased = 0
    for seq, job in queue.jobs.items():
        assert job.live == topic.holds(seq), f"{where}: job {seq} lives and its record does not"
        assert seq < queue.cursor, f"{where}: job {seq} was offered, the cursor says it was not"
        if job.grant is not None:
            _check_lease(where, seq, job, job.grant)
            grants[id(job.grant)] += 1
            leases.append(job.lease)
            leased += job.live
            if job.grant.stream:
                streams.setdefault(job.grant.stream, set()).add(seq)
        else:
            assert job.live, f"{where}: orphan {seq} has no holder"
            if job.ready_at:
                delayed.add((job.ready_at, seq))
            else:
                reclaim.add(seq)
    assert leased == queue.leased, f"{where}: {queue.leased} leased, {leased} are"
    assert reclaim == set(queue.reclaim) and len(reclaim) == len(queue.reclaim), where
    assert delayed == set(queue.delayed) and len(delayed) == len(queue.delayed), where
    assert streams == queue.streams, f"{where}: leases by stream"
    assert len(set(leases)) == len(leases), f"{where}: a lease number is given out once"
    assert all(lease < next_lease for lease in leases), f"{where}: lease numbers only grow"
    _check_grants(where, queue, grants)
    assert 1 <= queue.cursor <= topic.head + 1, f"{where}: cursor {queue.cursor} {topic.head}"
    lost = [s for b in topic.batches for s in b.live_seqs() if s < queue.cursor]
    assert all(seq in queue.jobs for seq in lost), f"{where}: jobs below the cursor are lost"
    assert topic.ready == len(reclaim) + topic.live - len(lost), f"{where}: ready"
    assert topic.ready + queue.leased + len(delayed) == topic.live, where


def _check_lease(where: str, seq: int, job: Job, grant: Grant) -> None:
    assert job.deliveries > 0 and job.lease > 0, f"{where}: {seq} leased, never delivered"
    assert seq in grant.seqs, f"{where}: {seq} is under a grant that does not name it"
    assert not job.ready_at, f"{where}: {seq} is leased and delayed"


def _check_grants(where: str, queue: Queue, used: Counter[int]) -> None:
    heap = queue._grants
    for index, grant in enumerate(heap):
        assert grant.live == used[id(grant)], f"{where}: a grant counts {grant.live} leases"
        assert not index or heap[(index - 1) // 2].deadline <= grant.deadline, f"{where}: heap"
    assert used.keys() <= {id(grant) for grant in heap}, f"{where}: a lease that never runs out"
    spent = sum(not grant.live for grant in heap)
    assert spent == queue._grants_spent, f"{where}: {queue._grants_spent} spent grants, not {spent}"


def _topic_portrait(topic: Topic, now: int | None) -> dict[str, Any]:
    picture: dict[str, Any] = {
        "instance": topic.number,
        "config": msgspec.structs.asdict(topic.config),
        "head": topic.head,
        "earliest": topic.earliest_seq,
        "floors": (topic.cap_floor, topic.ttl_floor),
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
    if topic.queue is not None:
        picture["queue"] = _queue_portrait(topic.queue)
    return picture


def _queue_portrait(queue: Queue) -> dict[str, Any]:
    jobs: dict[int, tuple[Any, ...]] = {}
    orphans: dict[int, tuple[Any, ...]] = {}
    for seq, job in sorted(queue.jobs.items()):
        grant = job.grant
        if grant is not None:
            lease = ("leased", job.deliveries, job.lease, grant.node, grant.deadline, grant.stream)
            (jobs if job.live else orphans)[seq] = lease
        elif job.ready_at:
            jobs[seq] = ("delayed", job.deliveries, job.ready_at)
        else:
            jobs[seq] = ("reclaimed", job.deliveries)
    return {"jobs": jobs, "orphans": orphans, "dead_lettered": queue.dead_lettered}
