"""Ascending, disjoint ranges of numbers (first and last, inclusive), and their arithmetic.

Owns: ranges as plain lists of pairs, neighbours joined. Must not know: what the numbers count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Ranges = list[tuple[int, int]]
"""Ascending, disjoint, never touching: (1, 3) and (4, 6) are always (1, 6)."""


def add(ranges: Ranges, first: int, last: int) -> None:
    """Put a range into `ranges`; cheap behind the last one."""
    if not ranges or first > ranges[-1][1] + 1:
        ranges.append((first, last))
        return
    start, end = ranges[-1]
    if first >= start:
        if last > end:
            ranges[-1] = (start, last)
        return
    # Everything that overlaps or touches becomes one.
    low = bisect_right(ranges, (first,))
    if low and ranges[low - 1][1] >= first - 1:
        low -= 1
    high = bisect_right(ranges, (last + 1, ranges[-1][1]))
    if low < high:
        first, last = min(first, ranges[low][0]), max(last, ranges[high - 1][1])
    ranges[low:high] = [(first, last)]


def union(*many: Iterable[tuple[int, int]]) -> Ranges:
    """All numbers that are in any of them."""
    found: Ranges = []
    for first, last in sorted(pair for ranges in many for pair in ranges):
        add(found, first, last)
    return found


def cut(ranges: Ranges, first: int, last: int) -> Ranges:
    """The part of `ranges` from `first` to `last`."""
    found: Ranges = []
    at = bisect_right(ranges, (first,))
    if at and ranges[at - 1][1] >= first:
        at -= 1
    while at < len(ranges) and ranges[at][0] <= last:
        found.append((max(ranges[at][0], first), min(ranges[at][1], last)))
        at += 1
    return found


def both(some: Ranges, others: Ranges) -> Ranges:
    """All numbers that are in one and the other."""
    found: Ranges = []
    i = j = 0
    while i < len(some) and j < len(others):
        first, last = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if first <= last:
            found.append((first, last))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return found


def without(some: Ranges, others: Ranges) -> Ranges:
    """All numbers of `some` that are not in `others`."""
    found: Ranges = []
    at = 0
    for first, last in some:
        while at < len(others) and others[at][1] < first:
            at += 1
        look = at
        while look < len(others) and others[look][0] <= last:
            if others[look][0] > first:
                found.append((first, others[look][0] - 1))
            first = others[look][1] + 1
            look += 1
        if first <= last:
            found.append((first, last))
    return found


def holds(ranges: Ranges, first: int, last: int) -> bool:
    """Whether every number from `first` to `last` is in `ranges`."""
    at = bisect_right(ranges, (first, ranges[-1][1])) - 1 if ranges else -1
    return at >= 0 and ranges[at][0] <= first and last <= ranges[at][1]


def count(ranges: Iterable[tuple[int, int]]) -> int:
    """How many numbers there are."""
    return sum(last - first + 1 for first, last in ranges)
