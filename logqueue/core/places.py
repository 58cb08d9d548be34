"""The places of jobs that are handed out by priority: numbers that sort as a claim takes them.

Owns: the packing of a priority with a seq, small and large sets of such numbers, and what ageing
makes of their order. Must not know: queues, groups, records beyond when they were written.

A place is the seq less the priority in steps of 2**64: a higher priority sorts first, then a lower
seq. A job without a priority is at its seq, and that number need not be kept twice.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import NamedTuple, TypeAlias

from sortedcontainers import SortedList

from logqueue.model import limits

_SEQ_BITS = 64
_SEQ_MASK = (1 << _SEQ_BITS) - 1

LIST_MAX = 512
"""Places in a plain list; more of them are sorted in a structure that costs more at first."""

Places: TypeAlias = "int | list[int] | SortedList[int]"
"""One place, some, or many; never none."""


def place_of(seq: int, priority: int) -> int:
    """Where a job is."""
    return seq - (priority << _SEQ_BITS)


def seq_at_place(place: int) -> int:
    """Which job is there."""
    return place & _SEQ_MASK


def priority_at(place: int) -> int:
    """The priority of the job there."""
    return -(place >> _SEQ_BITS)


class Ageing(NamedTuple):
    """How waiting raises jobs.

    Attributes:
        now: The clock.
        step_ms: A job gains one level per this time.
        ts_of: When the job with a seq was accepted, ms since the epoch.
    """

    now: int
    step_ms: int
    ts_of: Callable[[int], int]

    def rank(self, place: int) -> tuple[int, int]:
        """What sorts as the claim takes jobs: the effective priority down, then the seq."""
        seq = seq_at_place(place)
        gained = max(self.now - self.ts_of(seq), 0) // self.step_ms
        return -min(priority_at(place) + gained, limits.JOB_PRIORITY_MAX), seq


def in_order(places: Places, ageing: Ageing | None) -> Iterator[int]:
    """Places as a claim takes them. Within one priority the lower seq is always first; between
    two the first of each are compared."""
    if isinstance(places, int):
        return iter((places,))
    if ageing is None or priority_at(places[0]) == priority_at(places[-1]):
        return iter(places)
    return merge(*_levels(places), key=ageing.rank)


def _levels(places: list[int] | SortedList[int]) -> Iterator[Iterable[int]]:
    """The places of each priority, those of the highest first."""
    for priority in range(priority_at(places[0]), priority_at(places[-1]) - 1, -1):
        first, last = place_of(0, priority), place_of(_SEQ_MASK, priority)
        if isinstance(places, list):
            level = places[bisect_left(places, first) : bisect_left(places, last)]
            if level:
                yield level
        else:
            yield places.irange(first, last)


def put(sets: dict[bytes, Places], name: bytes, place: int) -> None:
    """Add a place to the set with a name."""
    known = sets.get(name)
    if known is None:
        sets[name] = place
    elif isinstance(known, int):
        if known != place:
            sets[name] = [known, place] if known < place else [place, known]
    elif isinstance(known, list):
        if place > known[-1]:
            known.append(place)
        elif known[bisect_left(known, place)] != place:
            insort(known, place)
        if len(known) > LIST_MAX:
            sets[name] = SortedList(known)
    elif place not in known:
        known.add(place)


def take(sets: dict[bytes, Places], name: bytes, place: int) -> bool:
    """Remove a place from the set with a name; whether it was there. An empty set is dropped."""
    known = sets.get(name)
    if known is None:
        return False
    if isinstance(known, int):
        if known != place:
            return False
        del sets[name]
        return True
    if isinstance(known, list):
        index = bisect_left(known, place)
        if index == len(known) or known[index] != place:
            return False
        del known[index]
    elif place in known:
        known.remove(place)
    else:
        return False
    if len(known) == 1:
        sets[name] = known[0]
    return True


def first_of(places: Places) -> int:
    """The lowest of some places."""
    lowest: int = places if isinstance(places, int) else places[0]
    return lowest


def merge_ranked(high: Iterator[int], low: Iterator[int], ageing: Ageing) -> Iterator[int]:
    """Places of two streams in the order of their ranks."""
    return merge(high, low, key=ageing.rank)
