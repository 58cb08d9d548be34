"""What the groups of a queue have waiting and in flight, for operators.

Owns: the numbers of a group, and which groups there are. Changes nothing. Must not know: pages, who
asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from logqueue.core.group_orders import FairOrder, FifoOrder, GroupOrder

PER_STEP = 2000
"""Groups that are looked at in one step."""


class GroupStats(NamedTuple):
    """One group.

    Attributes:
        group: A JSON string fragment.
        waiting: Jobs not in flight: those that are ready; of "fifo" also delayed and held ones.
        in_flight: Jobs under a lease.
        oldest_seq: The first of the waiting jobs, 0 when there is none.
        is_blocked: Whether the group may not go now, by a limit or its rate.
    """

    group: bytes
    waiting: int
    in_flight: int
    oldest_seq: int
    is_blocked: bool


def groups_of(order: GroupOrder) -> int:
    """How many groups have jobs that wait or are in flight, about."""
    assert isinstance(order, FairOrder | FifoOrder)
    return max(len(order.jobs) - (b"" in order.jobs), len(order.in_flight))


def stats_in_parts(order: GroupOrder, groups_max: int) -> Iterator[list[GroupStats]]:
    """The numbers of so many groups, in parts of bounded size between which anything may change."""
    assert isinstance(order, FairOrder | FifoOrder)
    busy = [*islice(order.in_flight, groups_max)]
    # Without a look at each: there may be very many.
    names = [*islice(order.jobs, groups_max - len(busy))]
    known = {b"", *busy}
    for at in range(0, len(busy), PER_STEP):
        yield [_stats_of(order, name) for name in busy[at : at + PER_STEP] if name]
    for at in range(0, len(names), PER_STEP):
        yield [_stats_of(order, name) for name in names[at : at + PER_STEP] if name not in known]


def _stats_of(order: FairOrder | FifoOrder, group: bytes) -> GroupStats:
    in_flight = order.in_flight.get(group, 0)
    waiting, oldest = order.waiting(group)
    return GroupStats(group, waiting, in_flight, oldest, order.is_blocked(group))
