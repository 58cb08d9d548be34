"""What must hold of the order of claims, for tests and `logqueue check`.

Owns: which jobs an order must offer, from the places of all jobs. Must not know: who asks.
"""

from __future__ import annotations

from collections import Counter

from logqueue.core.claim_order import ClaimOrder, OrderOf
from logqueue.core.contradictions import Contradiction
from logqueue.core.group_orders import FairOrder, FifoOrder, GroupOrder
from logqueue.core.places import Places, place_of
from logqueue.core.queue_topic import QueueTopic


def check_order(topic: QueueTopic, order: ClaimOrder, claimable: set[int]) -> set[int]:
    """Check the order of a queue.

    Args:
        topic: Read only.
        order: Its order.
        claimable: The jobs that come by themselves and are neither leased nor held nor delayed.

    Returns:
        Those of them that are not among the jobs that are claimable by their seqs.

    Raises:
        Contradiction: Something is wrong.
    """
    live = [seq for batch in topic.batches for seq in batch.live_seqs()]
    known = [job for job in topic.orders_of(live) if order.owns(job) and order.knows(job)]
    owned = [job for job in known if job.seq in claimable]
    if isinstance(order, GroupOrder):
        _check_in_flight(topic, order, known)
    if isinstance(order, FairOrder):
        _check_turns(topic, order, owned)
        return {job.seq for job in owned}
    offered = owned
    if isinstance(order, FifoOrder):
        _check_members(topic, order, known)
        firsts = _firsts(known)
        offered = [
            job
            for job in owned
            if not job.group or (firsts[job.group] == job.seq and not order.is_blocked(job.group))
        ]
    high = sorted(place_of(job.seq, job.priority) for job in offered if job.priority)
    if not order.built_to and high != [*order.levels]:
        raise Contradiction(f"{topic.name}: jobs by priority")
    low = {job.seq for job in offered if not job.priority}
    return {job.seq for job in owned} - low


def _firsts(jobs: list[OrderOf]) -> dict[bytes, int]:
    firsts: dict[bytes, int] = {}
    for job in jobs:
        firsts.setdefault(job.group, job.seq)
    return firsts


def _check_in_flight(topic: QueueTopic, order: GroupOrder, known: list[OrderOf]) -> None:
    leased: Counter[bytes] = Counter()
    for job in known:
        entry = topic.queue.jobs.get(job.seq)
        if job.group and entry is not None and entry.grant is not None:
            leased[job.group] += 1
    if order.in_flight != dict(leased):
        raise Contradiction(f"{topic.name}: {order.in_flight} in flight, {dict(leased)} are")


def _listed(places: Places) -> list[int]:
    return [places] if isinstance(places, int) else [*places]


def _check_turns(topic: QueueTopic, order: FairOrder, owned: list[OrderOf]) -> None:
    by_group: dict[bytes, list[int]] = {}
    for job in owned:
        by_group.setdefault(job.group, []).append(place_of(job.seq, job.priority))
    found = {group: _listed(places) for group, places in order.jobs.items()}
    if found != {group: sorted(places) for group, places in by_group.items()}:
        raise Contradiction(f"{topic.name}: jobs by group")
    taking_part = {group for group in by_group if not (group and order.is_blocked(group))}
    ring = [group for group in order._ring if group not in order._gone]
    if sorted(ring) != sorted(taking_part | {b""}):
        raise Contradiction(f"{topic.name}: {ring} take turns, {taking_part} should")
    if order._ring[0] in order._gone or not order._gone <= set(order._ring):
        raise Contradiction(f"{topic.name}: groups that have left the ring")


def _check_members(topic: QueueTopic, order: FifoOrder, known: list[OrderOf]) -> None:
    by_group: dict[bytes, list[int]] = {}
    for job in known:
        if job.group:
            by_group.setdefault(job.group, []).append(job.seq)
    if {group: _listed(seqs) for group, seqs in order.jobs.items()} != by_group:
        raise Contradiction(f"{topic.name}: jobs by group")
    if order.behind != sum(map(len, by_group.values())) - len(by_group):
        raise Contradiction(f"{topic.name}: {order.behind} behind the first of their group")
