"""Runs of seqs that the claim cursor passes over, because all their jobs come by their own time.

Owns: the runs, and keeping them few. Must not know: jobs, records beyond whether there are any in a
range, the cursor.

A run may hold seqs of jobs that are gone, so neighbours become one as soon as no record is live
between them. Each new run pays for two looks at such a pair, in turn: there are never more than
about twice as many runs as live records keep apart.
"""

from __future__ import annotations

from collections.abc import Callable

from sortedcontainers import SortedDict

IsBare = Callable[[int, int], bool]
"""Whether no record is live from one seq to another, both counted in."""

LOOKS_PER_RUN = 2


class TimedRuns:
    """The runs of one queue, ascending."""

    __slots__ = ("_at", "_lasts")

    def __init__(self) -> None:
        self._lasts: SortedDict[int, int] = SortedDict()
        self._at = 0

    def __len__(self) -> int:
        return len(self._lasts)

    def clear(self) -> None:
        """Forget all."""
        self._lasts.clear()
        self._at = 0

    def behind(self, seq: int) -> int:
        """The first seq from this one on that is in no run."""
        at = self._lasts.bisect_right(seq) - 1
        if at >= 0:
            last: int = self._lasts.peekitem(at)[1]
            if last >= seq:
                return last + 1
        return seq

    def add(self, first: int, last: int, is_bare: IsBare) -> None:
        """Note a run."""
        at = self._lasts.bisect_right(first) - 1
        if at >= 0:
            start, end = self._lasts.peekitem(at)
            if end >= first - 1:
                self._lasts[start] = max(end, last)
                return
        self._lasts[first] = last
        for _ in range(LOOKS_PER_RUN):
            self._join_runs(is_bare)

    def _join_runs(self, is_bare: IsBare) -> None:
        """Join the next pair of neighbours if there is nothing between them."""
        lasts = self._lasts
        at = lasts.bisect_right(self._at)
        if at + 1 >= len(lasts):
            self._at = 0
            return
        start, end = lasts.peekitem(at)
        following, its_last = lasts.peekitem(at + 1)
        if end + 1 >= following or is_bare(end + 1, following - 1):
            lasts[start] = max(end, its_last)
            del lasts[following]
        else:
            self._at = start
