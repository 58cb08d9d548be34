"""What must hold of every state, and a picture of it that does not depend on how it is stored.

Owns: `check`, which asserts, and `portrait`, by which a live state and a replayed one are compared.
Changes nothing. Must not know: commands, the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from itertools import pairwise
from typing import Any

import msgspec

from logqueue.core import timing
from logqueue.core.batches import live_size
from logqueue.core.block import DELAY, KEY, NUMBER_COLUMNS, TAG, View
from logqueue.core.leases import Grant, Job
from logqueue.core.projection import Queue
from logqueue.core.routers import Router
from logqueue.core.state import State
from logqueue.core.timing import moment
from logqueue.core.topic import Topic


def check(state: State) -> None:
    """Assert every invariant of a state. Walks all of it, so it is for tests.

    Raises:
        AssertionError: Something does not hold; the message says where.
    """
    assert len(state.topics) == len(state.instances), "a topic is known by name and by number"
    live_bytes = sum(topic.live_bytes for topic in state.instances.values())
    assert state.live_bytes == live_bytes, f"{state.live_bytes} bytes in all, not {live_bytes}"
    for number, topic in state.instances.items():
        name = topic.name
        assert topic.number == number and state.topics.get(name) is topic, name
        assert topic.number < state.next_topic, f"{name}: instance numbers are given out once"
        _check_records(topic)
        _check_chunks(topic)
        _check_tags(topic)
        assert (topic.queue is not None) == topic.config.is_queue, name
        if topic.queue is not None:
            _check_queue(topic, topic.queue, state.next_lease)
    _check_routers(state)


def portrait(state: State, now: int | None = None) -> dict[str, Any]:
    """All logical content as plain data: equal for states that nobody can tell apart.

    Args:
        state: Read only.
        now: When given, idempotency keys past their window are left out.
    """
    picture: dict[str, Any] = {
        name: _topic_portrait(topic, now) for name, topic in state.topics.items()
    }
    for name, router in state.routers.items():
        picture[f"router {name}"] = {
            attribute: getattr(router, attribute) for attribute in Router.__slots__
        }
    return picture


def _check_routers(state: State) -> None:
    routers = [*state.routers.values()]
    assert {id(r) for r in routers} == {id(r) for r in state.routers_by_number.values()}
    assert sum(map(len, state.routers_out.values())) == len(routers), "edges by source"
    assert sum(map(len, state.routers_in.values())) == len(routers), "edges by destination"
    for router in routers:
        source, dest = state.instances[router.source], state.instances[router.dest]
        where = f"router {router.name}"
        assert router in state.routers_out[source.number], where
        assert router in state.routers_in[dest.number], where
        assert 0 <= router.cursor <= source.head, f"{where}: cursor {router.cursor} {source.head}"
        assert router.number < state.next_topic, f"{where}: instance numbers are given out once"
        sources = {other.source for other in state.routers_in[dest.number]}
        assert len(sources) == 1, f"{where}: its destination has {len(sources)} sources"


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
    assert not topic.batches or topic.batches.last.last_seq <= topic.head, f"{where}: head"
    assert 0 <= topic.cap_floor <= topic.head, f"{where}: cap floor above the head"
    assert 0 <= topic.ttl_floor <= topic.head, f"{where}: TTL floor above the head"
    at = topic.floor
    for first, last in topic.holes:
        assert at < last <= topic.head and first <= last, f"{where}: hole {first}-{last}"
        assert not any(topic.holds(seq) for seq in range(first, last + 1)), f"{where}: hole"
        at = last
    assert topic.floor < topic.earliest_seq <= topic.head + 1, f"{where}: earliest seq"
    for key, write in topic.keys.items():
        last = max((seq for seq, _ in write.results), default=write.first_seq + write.records - 1)
        assert last <= write.head <= topic.head, f"{where}: {key}"
    _check_particulars(topic)


def _check_particulars(topic: Topic) -> None:
    where, particulars = topic.name, topic.particulars
    expiries = set()
    size = 0
    for batch in topic.batches:
        if not batch.is_plain:
            view = View(batch.block)
            for index in batch.live_indexes():
                size += 8 * (view.number_bits >> DELAY).bit_count() + len(view.text(KEY, index))
                expires_at = timing.expires_at(view, index, batch.ts_at(index))
                if expires_at:
                    expiries.add(moment(expires_at, batch.seq_at(index)))
    if particulars is None:
        assert not size, f"{where}: particulars that nobody knows"
        return
    assert particulars.bytes == size, f"{where}: particulars of {size} bytes"
    assert expiries == set(particulars.expiries), f"{where}: expiries"


def _check_chunks(topic: Topic) -> None:
    where = topic.name
    for chunk, start in zip(topic.batches.chunks, topic.batches._starts, strict=True):
        assert chunk.batches and start == chunk.firsts[0], f"{where}: chunk {start}"
        assert chunk.firsts == [batch.first_seq for batch in chunk.batches], where
        assert chunk.live == sum(batch.live for batch in chunk.batches), f"{where}: chunk {start}"
        assert chunk.size == sum(map(live_size, chunk.batches)), f"{where}: bytes of chunk {start}"
        assert all(batch.newest <= chunk.newest for batch in chunk.batches), where
        assert all(batch.segment >= chunk.oldest_segment for batch in chunk.batches), where
    assert topic.live == sum(chunk.live for chunk in topic.batches.chunks), where
    assert topic.live_bytes == sum(chunk.size for chunk in topic.batches.chunks), where


def _check_tags(topic: Topic) -> None:
    """Every live tagged record is found through the index, once."""
    where = topic.name
    tagged: dict[bytes, list[int]] = {}
    for batch in topic.batches:
        for seq, _, texts in batch.records():
            if texts[TAG]:
                tagged.setdefault(texts[TAG], []).append(seq)
    index = topic.tags
    if index is None:
        assert not tagged, f"{where}: tagged records and no index"
        return
    known = [*index._new, *(tag for run in index._runs for tag in run)]
    assert sorted(known) == sorted(index._seqs), f"{where}: tags by prefix"
    assert all(a < b for run in index._runs for a, b in pairwise(run)), f"{where}: a run of tags"
    entries = 0
    for tag, entry in index._seqs.items():
        held = [entry] if isinstance(entry, int) else [*entry]
        entries += len(held)
        assert len(set(held)) == len(held), f"{where}: {tag!r} has a record twice"
        live = [seq for seq in sorted(held) if topic.holds(seq)]
        assert live == tagged.pop(tag, []), f"{where}: records tagged {tag!r}"
    assert not tagged, f"{where}: tags the index does not know: {[*tagged]}"
    assert entries == index.entries, f"{where}: {index.entries} entries, {entries} are"


def _check_queue(topic: Topic, queue: Queue, next_lease: int) -> None:
    where = topic.name
    reclaim, delayed, held = set[int](), set[int](), set[int]()
    leases: list[int] = []
    streams: dict[int, set[int]] = {}
    grants: Counter[int] = Counter()
    leased = orphans = 0
    for seq, job in queue.jobs.items():
        assert 0 <= job.given_back <= job.deliveries, f"{where}: deliveries of {seq}"
        assert job.live == topic.holds(seq), f"{where}: job {seq} lives and its record does not"
        if job.grant is not None:
            _check_lease(where, seq, job, job.grant)
            grants[id(job.grant)] += 1
            leases.append(job.lease)
            leased += job.live
            orphans += not job.live
            if job.grant.stream:
                streams.setdefault(job.grant.stream, set()).add(seq)
        else:
            assert job.live, f"{where}: orphan {seq} has no holder"
            if seq in queue.held:
                held.add(seq)
                assert not job.ready_at, f"{where}: {seq} is held and delayed"
            elif job.ready_at:
                delayed.add(moment(job.ready_at, seq))
            else:
                reclaim.add(seq)
    timed = _timed(topic)
    for seq, due in timed.items():
        if seq not in queue.jobs:
            is_delayed = moment(due, seq) in queue.delayed
            assert is_delayed != (seq in queue.reclaim), f"{where}: timed {seq} is not in one place"
            if is_delayed:
                delayed.add(moment(due, seq))
            else:
                reclaim.add(seq)
    assert leased == queue.leased, f"{where}: {queue.leased} leased, {leased} are"
    assert orphans == queue.orphans, f"{where}: {queue.orphans} orphans, {orphans} are"
    assert held == queue.held.keys(), f"{where}: holds"
    assert reclaim == set(queue.reclaim) and len(reclaim) == len(queue.reclaim), where
    assert delayed == set(queue.delayed) and len(delayed) == len(queue.delayed), where
    assert streams == queue.streams, f"{where}: leases by stream"
    assert len(set(leases)) == len(leases), f"{where}: a lease number is given out once"
    assert all(lease < next_lease for lease in leases), f"{where}: lease numbers only grow"
    _check_grants(where, queue, grants)
    assert 1 <= queue.cursor <= topic.head + 1, f"{where}: cursor {queue.cursor} {topic.head}"
    _check_places(topic, queue, timed)
    assert all(count >= 0 for count in queue.finished.values()), where


def _timed(topic: Topic) -> dict[int, int]:
    """Live jobs that come by their own time, and when they are due."""
    found: dict[int, int] = {}
    for batch in topic.batches:
        if not batch.is_plain:
            view = View(batch.block)
            for index in batch.live_indexes():
                seq, ts = batch.seq_at(index), batch.ts_at(index)
                if timing.is_timed(view, index, ts):
                    found[seq] = timing.due_at(view, index, ts)
    return found


def _check_places(topic: Topic, queue: Queue, timed: Container[int]) -> None:
    """Every live job is in exactly one place, and the claim cursor finds the fresh ones."""
    where = topic.name
    live = [seq for batch in topic.batches for seq in batch.live_seqs()]
    for seq in live:
        known = seq in queue.jobs or seq in timed or queue.has_overdue
        assert known or seq >= queue.cursor, f"{where}: job {seq} below the cursor is lost"
        offered = seq < queue.cursor or seq in timed or seq in queue.held
        assert seq not in queue.jobs or offered, f"{where}: job {seq} would be offered twice"
        passed = queue.behind_passed(seq) > seq
        assert not passed or seq in timed, f"{where}: fresh job {seq} is passed over"
    fresh = sum(s >= queue.cursor and s not in timed and s not in queue.held for s in live)
    if queue.has_overdue:
        fresh += sum(s < queue.cursor and s not in timed and s not in queue.jobs for s in live)
    assert topic.ready == len(queue.reclaim) + fresh, f"{where}: ready"
    waiting = topic.ready + len(queue.delayed)
    assert waiting + queue.leased + len(queue.held) == topic.live, f"{where}: a job without a state"
    keyed: dict[bytes, int] = {}
    for seq in live:
        key, written_at = topic.key_of(seq)
        if key and queue.is_waiting(seq):
            assert queue.keys is not None, f"{where}: a key that nobody knows"
            keyed[key] = max(keyed.get(key, 0), moment(written_at, seq))
            rivals = queue.keys.find(key) != seq
            assert rivals == (seq in queue.keys.superseded), f"{where}: {seq} has a rival"
    if queue.keys is not None:
        newest = {key: timing.seq_of(entry) for key, entry in keyed.items()}
        assert dict(queue.keys.items()) == newest, f"{where}: keys"


def _check_lease(where: str, seq: int, job: Job, grant: Grant) -> None:
    assert job.deliveries > 0 and job.lease > 0, f"{where}: {seq} leased, never delivered"
    assert seq in grant.seqs, f"{where}: {seq} is under a grant that does not name it"
    assert not job.ready_at, f"{where}: {seq} is leased and delayed"


def _check_grants(where: str, queue: Queue, used: Counter[int]) -> None:
    grants = queue._grants.grants()
    for grant in grants:
        assert grant.live == used[id(grant)], f"{where}: a grant counts {grant.live} leases"
    assert used.keys() <= {id(grant) for grant in grants}, f"{where}: a lease that never runs out"
    spent = sum(not grant.live for grant in grants)
    counted = queue._grants.spent
    assert spent == counted, f"{where}: {counted} spent grants, not {spent}"
    first = queue._grants.first()
    soonest = min((grant.deadline for grant in grants if grant.live), default=None)
    assert (first.deadline if first is not None else None) == soonest, f"{where}: deadlines"


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
    if topic.particulars is not None:
        picture["particulars"] = _particulars_portrait(topic)
    if topic.queue is not None:
        picture["queue"] = _queue_portrait(topic.queue)
    return picture


def _particulars_portrait(topic: Topic) -> dict[int, tuple[Any, ...]]:
    found: dict[int, tuple[Any, ...]] = {}
    for batch in topic.batches:
        view = View(batch.block)
        for index in batch.live_indexes():
            numbers = [view.number(c, index) for c in range(DELAY, len(NUMBER_COLUMNS))]
            own = (view.text(KEY, index), *numbers)
            if any(own):
                found[batch.seq_at(index)] = own
    return found


def _queue_portrait(queue: Queue) -> dict[str, Any]:
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
        else:
            jobs[seq] = ("reclaimed", job.deliveries)
    for packed in queue.delayed:
        seq = timing.seq_of(packed)
        if seq not in queue.jobs:
            jobs[seq] = ("delayed", 0, timing.time_of(packed))
    return {
        "jobs": dict(sorted(jobs.items())),
        "orphans": orphans,
        "dead_lettered": queue.dead_lettered,
        "given back": {s: job.given_back for s, job in queue.jobs.items() if job.given_back},
        "errors": {s: job.error for s, job in sorted(queue.jobs.items()) if job.error is not None},
        "finished": dict(sorted(queue.finished.items())),
    }
