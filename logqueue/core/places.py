"""The places of jobs that are handed out by priority: numbers that sort as a claim takes them.

Owns: the packing of a priority with a seq, small and large sets of such numbers, and what ageing
makes of their order. Must not know: queues, groups, records beyond when they were written.

A place is the seq less the priority in steps of 2**64: a higher priority sorts first, then a lower
seq. A job without a priority is at its seq, and that number need not be kept twice.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import chain
from typing import Protocol, TypeAlias

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


class Dated(Protocol):
    """Some neighbouring jobs and when they were accepted."""

    first_seq: int
    last_seq: int

    def index_of(self, seq: int) -> int:
        """Where a live job is among them, -1 when it is not."""
        ...

    def ts_at(self, index: int) -> int:
        """When the job there was accepted, ms since the epoch."""
        ...


class Ageing:
    """How waiting raises jobs."""

    __slots__ = ("_batch", "_batch_of", "_now", "_step_ms")

    def __init__(self, now: int, step_ms: int, batch_of: Callable[[int], Dated | None]) -> None:
        """A job gains one level per so many milliseconds since it was accepted."""
        self._now, self._step_ms, self._batch_of = now, step_ms, batch_of
        self._batch: Dated | None = None

    def rank(self, place: int) -> tuple[int, int]:
        """What sorts as the claim takes jobs: the effective priority down, then the seq."""
        seq = place & _SEQ_MASK
        batch = self._batch
        if batch is None or not batch.first_seq <= seq <= batch.last_seq:
            batch = self._batch = self._batch_of(seq)
        ts = batch.ts_at(batch.index_of(seq)) if batch is not None else self._now
        gained = (self._now - ts) // self._step_ms if ts < self._now else 0
        level = gained - (place >> _SEQ_BITS)
        return (-level if level < limits.JOB_PRIORITY_MAX else -limits.JOB_PRIORITY_MAX), seq


def in_order(
    places: Places | None, ageing: Ageing | None, low: Iterator[int] | None = None
) -> Iterator[int]:
    """Places as a claim takes them. Within one priority the lower seq is always first; between
    two the first of each are compared.

    Args:
        places: Those to take; None for none.
        ageing: How jobs rise by waiting; None when they do not.
        low: Further places, without a priority, ascending. Without ageing they come last, and are
            not looked at before.
    """
    levels = [iter((places,))] if isinstance(places, int) else []
    if places is not None and not isinstance(places, int):
        is_level = ageing is None or priority_at(places[0]) == priority_at(places[-1])
        levels = [iter(places)] if is_level else [*_levels(places)]
    if low is not None:
        levels.append(low)
    if len(levels) == 1:
        return levels[0]
    return chain.from_iterable(levels) if ageing is None else merge(*levels, key=ageing.rank)


def _levels(places: list[int] | SortedList[int]) -> Iterator[Iterator[int]]:
    """The places of each priority, those of the highest first."""
    for priority in range(priority_at(places[0]), priority_at(places[-1]) - 1, -1):
        first, last = place_of(0, priority), place_of(_SEQ_MASK, priority)
        if isinstance(places, list):
            yield iter(places[bisect_left(places, first) : bisect_left(places, last)])
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


def count_of(places: Places) -> int:
    """How many there are."""
    return 1 if isinstance(places, int) else len(places)


def lowest_seq(places: Places) -> int:
    """The lowest seq among some places."""
    if isinstance(places, int):
        return places & _SEQ_MASK
    return min(next(level, _SEQ_MASK) & _SEQ_MASK for level in _levels(places))
