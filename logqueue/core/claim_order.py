"""Jobs that a queue hands out in another order than that of their seqs.

Owns: the jobs with a priority that are claimable, and what all orders have in common. The orders of
queues whose jobs come by groups are in `group_orders`. Must not know: commands, events, leases
beyond that there is one.

A queue has an order from its first job with a priority on, or from its first job with a group if it
has `groups`. An order *owns* some of the jobs; the others are claimable as in any queue: those in
`QueueState.reclaim`, and the fresh ones that the cursor finds. What a claim takes is decided
without changing the order; it changes by what `apply` says was claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from sortedcontainers import SortedList

from logqueue.core.places import Ageing, in_order, place_of, seq_at_place


class OrderOf(NamedTuple):
    """What the order of claims depends on, of one job.

    Attributes:
        group: A JSON string fragment; b"" for none.
    """

    seq: int
    priority: int
    group: bytes


class JobRecords(Protocol):
    """What an order asks about the records of its queue."""

    def orders_of(self, seqs: Sequence[int]) -> list[OrderOf]:
        """The live ones among ascending seqs."""
        ...

    def is_claimable(self, seq: int) -> bool:
        """Whether a live job is neither leased nor held nor delayed."""
        ...

    def claimable_again(self, seq: int) -> None:
        """A job that an order has kept back is claimable by its seq."""
        ...

    def keep_back(self, seq: int) -> None:
        """Such a job is not claimable, or no longer."""
        ...


class Sift:
    """What a claim takes of the jobs that it meets.

    Attributes:
        accepts: Whether it takes a job.
        is_over: It has met as many as one pass may.
    """

    def __init__(self, accepts: Callable[[int], bool], looked_max: int) -> None:
        self._accepts = accepts
        self._left = looked_max

    @property
    def is_over(self) -> bool:
        """Whether no more may be looked at."""
        return self._left <= 0

    def takes(self, seq: int) -> bool:
        """Whether a claim takes this job."""
        self._left -= 1
        return self._left >= 0 and self._accepts(seq)

    def taken(self, places: Iterator[int]) -> Iterator[int]:
        """Those of some places whose jobs a claim takes."""
        for place in places:
            if self._left <= 0:
                return
            self._left -= 1
            if self._accepts(seq_at_place(place)):
                yield place


class ClaimOrder:
    """The order of a queue without groups: by priority, then by seq.

    Attributes:
        levels: Places of claimable jobs with a priority.
        is_bare: Whether it has never owned a job.
        built_to: While the order is made for jobs that are there already: the first seq that it
            does not know yet. None when it knows all.
    """

    __slots__ = ("built_to", "is_bare", "levels", "records")

    def __init__(self, records: JobRecords) -> None:
        self.records = records
        self.levels: SortedList[int] = SortedList()
        self.built_to: int | None = None
        self.is_bare = True

    # -- queries ---------------------------------------------------------------------------------

    def pick(
        self, wanted: int, low: Iterator[int], sift: Sift, ageing: Ageing | None, now: int
    ) -> list[int]:
        """The jobs that a claim takes, in order.

        Args:
            wanted: How many at most.
            low: The claimable jobs that the order does not own, ascending; found only when their
                turn comes.
            sift: Which jobs are taken.
            ageing: How jobs rise by waiting; None when they do not.
            now: The clock.
        """
        places = in_order(self.levels or None, ageing, low)
        return [*map(seq_at_place, islice(sift.taken(places), wanted))]

    def next_due(self) -> int | None:
        """When time next lets a job go, ms since the epoch; None when it does not."""
        return None

    @property
    def is_building(self) -> bool:
        """Whether it is being made for jobs that were there before it."""
        return self.built_to is not None

    @property
    def has_blocked(self) -> bool:
        """Whether jobs that are ready may wait for others of their group."""
        return False

    # -- changes (by core/queue_state, core/record_attributes and core/apply only) ----------------

    def owns(self, job: OrderOf) -> bool:
        """Whether this order hands the job out."""
        return job.priority > 0

    def knows(self, job: OrderOf) -> bool:
        """Whether the order has come to this job while it is made."""
        return self.built_to is None or job.seq < self.built_to

    def join(self, job: OrderOf) -> None:
        """A job that the order owns is there, in whatever state."""
        self.is_bare = False

    def part(self, job: OrderOf) -> None:
        """The record of a job is about to go."""
        if job.priority:
            self.levels.discard(place_of(job.seq, job.priority))

    def admit(self, job: OrderOf) -> None:
        """A job that the order owns has become claimable."""
        place = place_of(job.seq, job.priority)
        if place not in self.levels:
            self.levels.add(place)

    def withdraw(self, job: OrderOf) -> None:
        """A job that the order owns is no longer claimable."""
        self.levels.discard(place_of(job.seq, job.priority))

    def claimed(self, jobs: Sequence[OrderOf], at: int) -> None:
        """Jobs were handed out."""
        discard = self.levels.discard
        for seq, priority, _ in jobs:
            if priority:
                discard(place_of(seq, priority))

    def leased(self, job: OrderOf) -> None:
        """A job is under a lease that began before this order did."""

    def unleased(self, seq: int) -> None:
        """A lease ended; if its job is still there, `settled` follows."""

    def settled(self, seq: int) -> None:
        """A job whose lease has ended, or that was held, is where it belongs now."""

    def elapse(self, now: int, jobs_max: int) -> bool:
        """Let time act on so many; whether there are more."""
        return False

    def release(self) -> list[list[Any] | dict[Any, Any]]:
        """What is large, to be freed bit by bit; the order must no longer be used."""
        return [*self.levels._lists]
