"""What happened lately, in bounded memory: the last durations of something, the slowest requests.

Owns: how much is remembered, and for how long. Must not know: what is measured, who shows it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

DURATIONS_MAX = 1024
SLOW_FROM_S = 0.01
"""Faster requests are never slow ones."""
MINUTES = 60
SLOWEST_PER_MINUTE = 10
SLOWEST_MAX = 50
NAME_CHARS_MAX = 200


class Durations:
    """The last durations of something, in seconds. One thread adds, any may look."""

    def __init__(self, size: int = DURATIONS_MAX) -> None:
        self._ring: list[float] = []
        self._size = size
        self.count = 0

    def add(self, seconds: float) -> None:
        """Remember one in place of the oldest."""
        if len(self._ring) < self._size:
            self._ring.append(seconds)
        else:
            self._ring[self.count % self._size] = seconds
        self.count += 1

    def in_order(self) -> list[float]:
        """Those that are remembered, the shortest first."""
        return sorted(self._ring[:])


def quantile(ordered: list[float], share: float) -> float:
    """The value that this share of them does not exceed: the nearest of those there are."""
    assert ordered and 0 <= share <= 1
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


class SlowRequestNote(NamedTuple):
    """One slow request; `at` is in seconds since the epoch."""

    took_s: float
    at: float
    method: str
    route: str
    name: str
    status: int


class SlowRequests:
    """The slowest requests of the last hour: the ten slowest of each minute."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Nothing was slow.

        Args:
            clock: Seconds since the epoch.
        """
        self._clock = clock
        self._minutes: dict[int, list[SlowRequestNote]] = {}

    def note(self, method: str, route: str, name: str, status: int, took_s: float) -> None:
        """Remember a request, if it is among the slowest of its minute."""
        now = self._clock()
        minute = int(now // 60)
        slowest = self._minutes.get(minute)
        if slowest is None:
            slowest = self._minutes[minute] = []
            for old in [other for other in self._minutes if not minute - MINUTES < other <= minute]:
                del self._minutes[old]
        noted = SlowRequestNote(took_s, now, method, route, name[:NAME_CHARS_MAX], status)
        if len(slowest) < SLOWEST_PER_MINUTE:
            slowest.append(noted)
            return
        fastest = min(range(len(slowest)), key=lambda place: slowest[place].took_s)
        if slowest[fastest].took_s < took_s:
            slowest[fastest] = noted

    def slowest(self) -> list[SlowRequestNote]:
        """The slowest of the last hour, the slowest first."""
        since = self._clock() - MINUTES * 60
        found = [
            noted for slowest in self._minutes.values() for noted in slowest if noted.at >= since
        ]
        return sorted(found, key=lambda noted: -noted.took_s)[:SLOWEST_MAX]
