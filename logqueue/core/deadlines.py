"""When leases run out: the grants of one queue, soonest deadline first.

Owns: the order. Grants with deadlines within a second share a bucket, and only the soonest bucket
is kept in order, so that neither a claim nor a settle pays for all the leases there are. Must not
know: jobs, what happens when a lease runs out.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count, islice

from logqueue.core.leases import Grant

_BUCKET_BITS = 10
SPENT_MIN = 64
"""Spent grants of a bucket that are not worth a sweep."""

_Entry = tuple[int, int, Grant]


class Deadlines:
    """Grants by their deadlines. A grant is *spent* once none of its leases is left; spent ones go
    when they are the most of their bucket, or when their time comes."""

    __slots__ = ("_buckets", "_numbers", "_open", "_order", "_spent")

    def __init__(self) -> None:
        self._buckets: dict[int, list[_Entry]] = {}
        self._order: list[int] = []
        self._spent: dict[int, int] = {}
        # The bucket that is a heap; all others are in the order of their coming.
        self._open = -1
        self._numbers = count()

    def add(self, grant: Grant) -> None:
        """Take in a grant."""
        place = grant.deadline >> _BUCKET_BITS
        bucket = self._buckets.get(place)
        entry = (grant.deadline, next(self._numbers), grant)
        if bucket is None:
            self._buckets[place] = [entry]
            heappush(self._order, place)
        elif place == self._open:
            heappush(bucket, entry)
        else:
            bucket.append(entry)

    def spend(self, grant: Grant) -> None:
        """The last lease of a grant has ended before its deadline."""
        place = grant.deadline >> _BUCKET_BITS
        bucket = self._buckets[place]
        spent = self._spent.get(place, 0) + 1
        if spent == len(bucket) or (spent > SPENT_MIN and 2 * spent > len(bucket)):
            bucket[:] = [entry for entry in bucket if entry[2].live]
            if place == self._open:
                heapify(bucket)
            spent = 0
        if spent:
            self._spent[place] = spent
        else:
            self._spent.pop(place, None)

    def first(self) -> Grant | None:
        """The grant that runs out next; None when there is none."""
        while self._order:
            place = self._order[0]
            bucket = self._buckets[place]
            if place != self._open:
                heapify(bucket)
                self._open = place
            while bucket and not bucket[0][2].live:
                heappop(bucket)
                self._spent[place] -= 1
            if bucket:
                return bucket[0][2]
            heappop(self._order)
            del self._buckets[place]
            self._spent.pop(place, None)
            self._open = -1
        return None

    def pop(self) -> None:
        """Take out what `first` has returned."""
        heappop(self._buckets[self._open])

    def buckets(self) -> list[list[_Entry]]:
        """What holds the grants now, mostly the soonest first. Each may change when another grant
        comes or goes."""
        return [self._buckets[place] for place in self._order]

    def grants(self) -> list[Grant]:
        """All of them, spent ones included; for checks."""
        return [grant for bucket in self._buckets.values() for _, _, grant in bucket]

    def some(self, looked_max: int) -> list[Grant]:
        """Grants that are not spent, mostly the soonest ones, of so many that are looked at."""
        found: list[Grant] = []
        for place in islice(self._order, looked_max):
            for _, _, grant in islice(self._buckets[place], looked_max):
                looked_max -= 1
                if grant.live:
                    found.append(grant)
            if looked_max <= 0:
                break
        return found

    @property
    def spent(self) -> int:
        """How many spent grants are still here; for checks."""
        return sum(self._spent.values())

    def release(self) -> list[list[_Entry]]:
        """What holds the grants, to be freed bit by bit; it must no longer be used."""
        return [*self._buckets.values()]
