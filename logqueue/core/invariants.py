"""What must hold of every state.

Owns: `check`, which raises. Changes nothing. Must not know: commands, the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from itertools import pairwise

from logqueue.core import record_times
from logqueue.core.batches import live_size
from logqueue.core.contradictions import Contradiction as Contradiction
from logqueue.core.leases import Grant, JobEntry
from logqueue.core.order_invariants import check_order
from logqueue.core.queue_state import QueueState
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.record_times import moment
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.events.block import DELAY, KEY, TAG, TEXTS, BlockView
from logqueue.events.follow import members_in


def check(state: State) -> None:
    """Look at every invariant of a state. Walks all of it: for tests, and for directories at rest.

    Raises:
        Contradiction: Something does not hold; the message says where.
    """
    if len(state.topics) != len(state.instances):
        raise Contradiction("a topic is known by name and by number")
    live_bytes = sum(topic.live_bytes for topic in state.instances.values())
    if state.live_bytes != live_bytes:
        raise Contradiction(f"{state.live_bytes} bytes in all, not {live_bytes}")
    for number, topic in state.instances.items():
        name = topic.name
        if not (topic.number == number and state.topics.get(name) is topic):
            raise Contradiction(name)
        if not (topic.number < state.next_topic):
            raise Contradiction(f"{name}: instance numbers are given out once")
        _check_records(topic)
        _check_chunks(topic)
        _check_tags(topic)
        if isinstance(topic, QueueTopic) != topic.config.is_queue:
            raise Contradiction(name)
        if isinstance(topic, QueueTopic):
            _check_queue(topic, state.next_lease)
    _check_routers(state)
    _check_schedules(state)
    _check_batches(state)


def _check_batches(state: State) -> None:
    left: Counter[str] = Counter()
    for topic in state.instances.values():
        members: Counter[str] = Counter()
        for batch in topic.batches:
            if not batch.is_plain:
                members += members_in(BlockView(batch.block), [*batch.live_indexes()])
        attributes = topic.attributes
        if members != Counter(attributes.members if attributes is not None else {}):
            raise Contradiction(f"{topic.name}: jobs of batches")
        left += members
    if left != Counter(state.batches.left) and not state.replacing:
        raise Contradiction("jobs left of batches")
    for name, batch in state.batches.by_name.items():
        if state.batches.failed(batch) < 0:
            raise Contradiction(f"batch {name}")
        is_over = bool(batch.closed_at) and not batch.ended_at and not left[name]
        if is_over != (name in state.batches.due) and not state.replacing:
            raise Contradiction(f"batch {name}: due")


def _check_schedules(state: State) -> None:
    schedules = state.schedules
    waiting = 0
    for name, schedule in schedules.by_name.items():
        if schedule.name != name:
            raise Contradiction(f"schedule {name}")
        is_waiting = schedule.next_at > 0 and not schedule.paused
        if is_waiting and not schedules.has_turn(schedule):
            raise Contradiction(f"schedule {name}: not known by its time")
        waiting += is_waiting
    if schedules.bytes != schedules.measured():
        raise Contradiction(f"schedules: {schedules.bytes} bytes")
    if waiting != schedules.waiting():
        raise Contradiction("schedules by name and by time")


def _check_routers(state: State) -> None:
    routers = [*state.routers.values()]
    if {id(r) for r in routers} != {id(r) for r in state.routers_by_number.values()}:
        raise Contradiction("routers by name and by number")
    if sum(map(len, state.routers_out.values())) != len(routers):
        raise Contradiction("edges by source")
    if sum(map(len, state.routers_in.values())) != len(routers):
        raise Contradiction("edges by destination")
    for router in routers:
        source, dest = state.instances[router.source], state.instances[router.dest]
        where = f"router {router.name}"
        if router not in state.routers_out[source.number]:
            raise Contradiction(where)
        if router not in state.routers_in[dest.number]:
            raise Contradiction(where)
        if not (0 <= router.cursor <= source.head):
            raise Contradiction(f"{where}: cursor {router.cursor} {source.head}")
        if not (router.number < state.next_topic):
            raise Contradiction(f"{where}: instance numbers are given out once")
        sources = {other.source for other in state.routers_in[dest.number]}
        if len(sources) != 1:
            raise Contradiction(f"{where}: its destination has {len(sources)} sources")


def _check_records(topic: Topic) -> None:
    where = topic.name
    live = size = 0
    for earlier, later in pairwise(topic.batches):
        if not (earlier.last_seq < later.first_seq):
            raise Contradiction(f"{where}: batches overlap")
    for batch in topic.batches:
        indexes = [*batch.live_indexes()]
        if not (indexes and len(indexes) == batch.live):
            raise Contradiction(f"{where}: count of batch {batch.first_seq}")
        if BlockView(batch.block).count != batch.count:
            raise Contradiction(where)
        seqs = [batch.seq_at(i) for i in range(batch.count)]
        if not (seqs[0] == batch.first_seq and seqs[-1] == batch.last_seq):
            raise Contradiction(where)
        if not all(a < b for a, b in pairwise(seqs)):
            raise Contradiction(f"{where}: seqs ascend within a batch")
        live += batch.live
        size += sum(BlockView(batch.block).size(i) for i in indexes)
    if topic.live != live:
        raise Contradiction(f"{where}: {topic.live} live, its batches hold {live}")
    if topic.live_bytes != size:
        raise Contradiction(f"{where}: {topic.live_bytes} bytes, its batches hold {size}")
    if not (not topic.batches or topic.batches.last.last_seq <= topic.head):
        raise Contradiction(f"{where}: head")
    if not (0 <= topic.cap_floor <= topic.head):
        raise Contradiction(f"{where}: cap floor above the head")
    if not (0 <= topic.ttl_floor <= topic.head):
        raise Contradiction(f"{where}: TTL floor above the head")
    at = topic.floor
    for first, last in topic.holes:
        if not (at < last <= topic.head and first <= last):
            raise Contradiction(f"{where}: hole {first}-{last}")
        if any(topic.holds(seq) for seq in range(first, last + 1)):
            raise Contradiction(f"{where}: hole")
        at = last
    if not (topic.floor < topic.earliest_seq <= topic.head + 1):
        raise Contradiction(f"{where}: earliest seq")
    for key, write in topic.keys.items():
        last = max((seq for seq, _ in write.results), default=write.first_seq + write.records - 1)
        if not (last <= write.head <= topic.head):
            raise Contradiction(f"{where}: {key}")
    _check_attributes(topic)


def _check_attributes(topic: Topic) -> None:
    where, attributes = topic.name, topic.attributes
    expiries = set()
    size = 0
    for batch in topic.batches:
        if not batch.is_plain:
            view = BlockView(batch.block)
            for index in batch.live_indexes():
                size += 8 * (view.number_bits >> DELAY).bit_count() + sum(
                    len(view.text(column, index)) for column in TEXTS[KEY:]
                )
                expires_at = record_times.expires_at(view, index, batch.ts_at(index))
                if expires_at:
                    expiries.add(moment(expires_at, batch.seq_at(index)))
    if attributes is None:
        if size:
            raise Contradiction(f"{where}: attributes that no index has")
        return
    if attributes.bytes != size:
        raise Contradiction(f"{where}: attributes of {size} bytes")
    if expiries != set(attributes.expiries):
        raise Contradiction(f"{where}: expiries")


def _check_chunks(topic: Topic) -> None:
    where = topic.name
    for chunk, start in zip(topic.batches.chunks, topic.batches._starts, strict=True):
        if not (chunk.batches and start == chunk.firsts[0]):
            raise Contradiction(f"{where}: chunk {start}")
        if chunk.firsts != [batch.first_seq for batch in chunk.batches]:
            raise Contradiction(where)
        if chunk.live != sum(batch.live for batch in chunk.batches):
            raise Contradiction(f"{where}: chunk {start}")
        if chunk.size != sum(map(live_size, chunk.batches)):
            raise Contradiction(f"{where}: bytes of chunk {start}")
        if not all(batch.newest <= chunk.newest for batch in chunk.batches):
            raise Contradiction(where)
        if not all(batch.segment >= chunk.oldest_segment for batch in chunk.batches):
            raise Contradiction(where)
    if topic.live != sum(chunk.live for chunk in topic.batches.chunks):
        raise Contradiction(where)
    if topic.live_bytes != sum(chunk.size for chunk in topic.batches.chunks):
        raise Contradiction(where)


def _check_tags(topic: Topic) -> None:
    """Every live tagged record is found through the index, once."""
    where = topic.name
    tagged: dict[bytes, list[int]] = {}
    for batch in topic.batches:
        tags = BlockView(batch.block).column(TAG) or [b""] * batch.count
        for place in batch.live_indexes():
            if tags[place]:
                tagged.setdefault(tags[place], []).append(batch.seq_at(place))
    index = topic.tags
    if index is None:
        if tagged:
            raise Contradiction(f"{where}: tagged records and no index")
        return
    known = [*index._new, *(tag for run in index._runs for tag in run)]
    if sorted(known) != sorted(index._seqs):
        raise Contradiction(f"{where}: tags by prefix")
    if not all(a < b for run in index._runs for a, b in pairwise(run)):
        raise Contradiction(f"{where}: a run of tags")
    entries = 0
    for tag, entry in index._seqs.items():
        held = [entry] if isinstance(entry, int) else [*entry]
        entries += len(held)
        if len(set(held)) != len(held):
            raise Contradiction(f"{where}: '{tag.decode()}' has a record twice")
        live = [seq for seq in sorted(held) if topic.holds(seq)]
        if live != tagged.pop(tag, []):
            raise Contradiction(f"{where}: records tagged '{tag.decode()}'")
    if tagged:
        raise Contradiction(f"{where}: tags the index does not know: {[*tagged]}")
    if entries != index.entries:
        raise Contradiction(f"{where}: {index.entries} entries, {entries} are")


def _check_queue(topic: QueueTopic, next_lease: int) -> None:
    where, queue = topic.name, topic.queue
    reclaim, delayed, held = set[int](), set[int](), set[int]()
    leases: list[int] = []
    streams: dict[int, set[int]] = {}
    grants: Counter[int] = Counter()
    leased = orphans = 0
    for seq, job in queue.jobs.items():
        if not (0 <= job.given_back <= job.deliveries):
            raise Contradiction(f"{where}: deliveries of {seq}")
        if job.live != topic.holds(seq):
            raise Contradiction(f"{where}: job {seq} lives and its record does not")
        if job.grant is not None:
            _check_lease(where, seq, job, job.grant)
            grants[id(job.grant)] += 1
            leases.append(job.lease)
            leased += job.live
            orphans += not job.live
            if job.grant.stream:
                streams.setdefault(job.grant.stream, set()).add(seq)
        else:
            if not job.live:
                raise Contradiction(f"{where}: orphan {seq} has no holder")
            if seq in queue.held:
                held.add(seq)
                if job.ready_at:
                    raise Contradiction(f"{where}: {seq} is held and delayed")
            elif job.ready_at:
                delayed.add(moment(job.ready_at, seq))
            else:
                reclaim.add(seq)
    timed = _timed(topic)
    for seq, due in timed.items():
        if seq not in queue.jobs:
            is_delayed = moment(due, seq) in queue.delayed
            if queue.order is None and is_delayed == (seq in queue.reclaim):
                raise Contradiction(f"{where}: timed {seq} is not in one place")
            if is_delayed:
                delayed.add(moment(due, seq))
            else:
                reclaim.add(seq)
    if leased != queue.leased:
        raise Contradiction(f"{where}: {queue.leased} leased, {leased} are")
    if orphans != queue.orphans:
        raise Contradiction(f"{where}: {queue.orphans} orphans, {orphans} are")
    if held != queue.held.keys():
        raise Contradiction(f"{where}: holds")
    kept_back = check_order(topic, queue.order, reclaim) if queue.order is not None else set[int]()
    if queue.order is not None and queue.order.is_building:
        return
    claimable = reclaim - kept_back
    if not (claimable == set(queue.reclaim) and len(claimable) == len(queue.reclaim)):
        raise Contradiction(f"{where}: claimable by its seq")
    if not (delayed == set(queue.delayed) and len(delayed) == len(queue.delayed)):
        raise Contradiction(where)
    if streams != queue.streams:
        raise Contradiction(f"{where}: leases by stream")
    if len(set(leases)) != len(leases):
        raise Contradiction(f"{where}: a lease number is given out once")
    if not all(lease < next_lease for lease in leases):
        raise Contradiction(f"{where}: lease numbers only grow")
    _check_grants(where, queue, grants)
    if not (1 <= queue.cursor <= topic.head + 1):
        raise Contradiction(f"{where}: cursor {queue.cursor} {topic.head}")
    _check_places(topic, timed, len(reclaim))
    if not all(count >= 0 for count in queue.finished.values()):
        raise Contradiction(where)


def _timed(topic: Topic) -> dict[int, int]:
    """Live jobs that come by their own time, and when they are due."""
    found: dict[int, int] = {}
    for batch in topic.batches:
        if not batch.is_plain:
            view = BlockView(batch.block)
            for index in batch.live_indexes():
                seq, ts = batch.seq_at(index), batch.ts_at(index)
                if record_times.is_timed(view, index, ts):
                    found[seq] = record_times.due_at(view, index, ts)
    return found


def _check_places(topic: QueueTopic, timed: Container[int], back: int) -> None:
    """Every live job is in exactly one place, and the claim cursor finds the fresh ones."""
    where, queue = topic.name, topic.queue
    live = [seq for batch in topic.batches for seq in batch.live_seqs()]
    for seq in live:
        known = seq in queue.jobs or seq in timed or queue.has_overdue
        if not (known or seq >= queue.cursor):
            raise Contradiction(f"{where}: job {seq} below the cursor is lost")
        offered = seq < queue.cursor or seq in timed or seq in queue.held
        offered = offered or seq <= queue.entered_to
        if not (seq not in queue.jobs or offered):
            raise Contradiction(f"{where}: job {seq} would be offered twice")
        passed = queue.timed_runs.behind(seq) > seq
        if not (not passed or seq in timed):
            raise Contradiction(f"{where}: fresh job {seq} is passed over")
    fresh = sum(s >= queue.cursor and s not in timed and s not in queue.placed for s in live)
    if queue.has_overdue:
        fresh += sum(s < queue.cursor and s not in timed and s not in queue.jobs for s in live)
    if topic.ready != back + fresh:
        raise Contradiction(f"{where}: ready")
    waiting = topic.ready + len(queue.delayed)
    if waiting + queue.leased + len(queue.held) != topic.live:
        raise Contradiction(f"{where}: a job without a state")
    keyed: dict[bytes, int] = {}
    busy: dict[bytes, int] = {}
    for seq in live:
        key, written_at, unique = topic.key_of(seq)
        if key and unique and not queue.is_waiting(seq):
            busy[key] = seq
        if key and queue.is_waiting(seq):
            if queue.keys is None:
                raise Contradiction(f"{where}: an unknown key")
            if queue.keys.holder(key) == queue.keys.find(key):
                keyed[key] = max(keyed.get(key, 0), moment(written_at, seq))
            rivals = queue.keys.find(key) != seq
            if rivals != (seq in queue.keys.superseded):
                raise Contradiction(f"{where}: {seq} has a rival")
    if queue.keys is not None:
        newest = {key: record_times.seq_of(entry) for key, entry in keyed.items()}
        if dict(queue.keys.items()) != newest:
            raise Contradiction(f"{where}: keys")
        if queue.keys.busy() != busy:
            raise Contradiction(f"{where}: keys of jobs in flight or on hold")


def _check_lease(where: str, seq: int, job: JobEntry, grant: Grant) -> None:
    if not (job.deliveries > 0 and job.lease > 0):
        raise Contradiction(f"{where}: {seq} leased, never delivered")
    if seq not in grant.seqs:
        raise Contradiction(f"{where}: {seq} is under a grant that does not name it")
    if job.ready_at:
        raise Contradiction(f"{where}: {seq} is leased and delayed")


def _check_grants(where: str, queue: QueueState, used: Counter[int]) -> None:
    grants = queue._grants.grants()
    for grant in grants:
        if grant.live != used[id(grant)]:
            raise Contradiction(f"{where}: a grant counts {grant.live} leases")
    if not (used.keys() <= {id(grant) for grant in grants}):
        raise Contradiction(f"{where}: a lease that never runs out")
    spent = sum(not grant.live for grant in grants)
    counted = queue._grants.spent
    if spent != counted:
        raise Contradiction(f"{where}: {counted} spent grants, not {spent}")
    first = queue._grants.first()
    soonest = min((grant.deadline for grant in grants if grant.live), default=None)
    if (first.deadline if first is not None else None) != soonest:
        raise Contradiction(f"{where}: deadlines")
    next_due = queue.next_due()
    if next_due is not None and queue.rests_to >= next_due:
        raise Contradiction(
            f"{where}: time has something to do at {next_due}, which it passes over"
        )
