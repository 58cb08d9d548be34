"""The orders of queues whose jobs come by groups: taking turns, or one at a time.

Owns: which groups may go, whose turn it is, and who is in flight. Must not know: commands, events,
configs beyond `GroupOptions`.

A claim never looks at groups that may not go: they are out of the ring (fair), or their first job
is not claimable (fifo). Whose turn it is and what a group has spent of its rate are observations,
as is the claim rate of a queue: `apply` moves them, no checkpoint has them, and after a restart
groups begin in the order of their first jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from sortedcontainers import SortedList

from logqueue.core.claim_order import ClaimOrder, JobRecords, OrderOf, Sift
from logqueue.core.claim_rates import RateSpent
from logqueue.core.places import (
    Ageing,
    Places,
    count_of,
    first_of,
    in_order,
    lowest_seq,
    place_of,
    put,
    seq_at_place,
    take,
)
from logqueue.events.block import write_string
from logqueue.model import limits
from logqueue.model.config import GroupOptions

_REFILLS_LOOKED_AT = 2
"""Groups whose rate may have been refilled, looked at with each that spends some."""


class GroupOrder(ClaimOrder):
    """What both orders have in common.

    Attributes:
        options: As configured.
        in_flight: How many jobs of a group are under a lease, where any is.
    """

    __slots__ = ("_due", "_in_flight_max", "_leased", "_refills", "_spent", "_waits", "in_flight",
                 "options")  # fmt: skip

    def __init__(self, records: JobRecords, options: GroupOptions, in_flight_max: int) -> None:
        super().__init__(records)
        self.options = options
        self.in_flight: dict[bytes, int] = {}
        self._in_flight_max = in_flight_max
        self._leased: dict[int, bytes] = {}
        self._spent: dict[bytes, RateSpent] = {}
        self._refills: deque[tuple[float, bytes]] = deque()
        self._waits: dict[bytes, int] = {}
        self._due: SortedList[tuple[int, bytes]] = SortedList()

    def owns(self, job: OrderOf) -> bool:
        """See `ClaimOrder`."""
        return bool(job.priority or job.group)

    def is_blocked(self, group: bytes) -> bool:
        """Whether a group may not go now, whatever jobs it has. Jobs without a group always may."""
        if group in self._waits:
            return True
        limit = self._in_flight_max
        return limit > 0 and self.in_flight.get(group, 0) >= limit

    def first_of(self, group: bytes) -> int:
        """The job that all others of a group wait for; 0 where they do not."""
        return 0

    def waits_until(self, group: bytes) -> int:
        """Until when the rate of a group keeps it back, ms since the epoch; 0 when it does not."""
        return self._waits.get(group, 0)

    def next_due(self) -> int | None:
        """See `ClaimOrder`."""
        return self._due[0][0] if self._due else None

    def _room(self, group: bytes, now: int) -> int:
        """How many jobs of a group may go now."""
        room = limits.U32_MAX
        if self._in_flight_max:
            room = self._in_flight_max - self.in_flight.get(group, 0)
        rate = self.options.rate_per_group
        spent = self._spent.get(group) if rate is not None else None
        if rate is not None:
            allowed = spent.allows(rate, now) if spent is not None else rate.burst_jobs
            room = min(room, allowed)
        return room

    def _lease(self, seq: int, group: bytes) -> None:
        if group:
            self._leased[seq] = group
            self.in_flight[group] = self.in_flight.get(group, 0) + 1

    def _end_lease(self, seq: int) -> bytes:
        """The group of the job, b"" for none."""
        group = self._leased.pop(seq, b"")
        if group:
            left = self.in_flight[group] - 1
            if left:
                self.in_flight[group] = left
            else:
                del self.in_flight[group]
        return group

    def _spend(self, group: bytes, jobs: int, at: int) -> None:
        """Jobs of a group were handed out under its rate."""
        rate = self.options.rate_per_group
        if rate is None or not group:
            return
        spent = self._spent.get(group, RateSpent()).spend(rate, jobs, at)
        self._spent[group] = spent
        self._refills.append((spent.until, group))
        for _ in range(_REFILLS_LOOKED_AT):
            if self._refills[0][0] > at:
                break
            _, other = self._refills.popleft()
            known = self._spent.get(other)
            if known is not None and known.until <= at:
                del self._spent[other]
        if not spent.allows(rate, at) and group not in self._waits:
            due = at + spent.refills_in(rate, at)
            self._waits[group] = due
            self._due.add((due, group))

    def elapse(self, now: int, jobs_max: int) -> bool:
        """See `ClaimOrder`."""
        left = jobs_max
        while self._due and self._due[0][0] <= now:
            if not left:
                return True
            left -= 1
            _, group = self._due.pop(0)
            del self._waits[group]
            self._freed(group)
        return False

    def _freed(self, group: bytes) -> None:
        """What kept a group back may be over."""
        raise NotImplementedError

    def release(self) -> list[list[Any] | dict[Any, Any]]:
        """See `ClaimOrder`."""
        known = (self.in_flight, self._leased, self._spent, self._waits)
        return [*super().release(), *known, [*self._refills], *self._due._lists]


class FairOrder(GroupOrder):
    """Groups take turns: deficit round robin, where a job costs one. Jobs without a group are one
    group, which is always in the ring; those of them without a priority are not kept here.

    Attributes:
        jobs: Places of the claimable jobs of each group that has any.
    """

    __slots__ = ("_gone", "_left", "_ring", "_weights", "jobs")

    def __init__(self, records: JobRecords, options: GroupOptions) -> None:
        super().__init__(records, options, options.max_in_flight_per_group)
        self.jobs: dict[bytes, Places] = {}
        weights = options.weights or {}
        self._weights = {write_string(group): weight for group, weight in weights.items()}
        # Whose turn it is comes first. A group that leaves from the middle stays until it gets
        # there, and is in `_gone`: so a group costs 8 bytes here.
        self._ring: deque[bytes] = deque((b"",))
        self._gone: set[bytes] = set()
        # What the first of them may still take in its turn; 0 when the turn has not begun.
        self._left = 0

    # -- queries ---------------------------------------------------------------------------------

    def _is_in(self, group: bytes) -> bool:
        """Whether a group takes part."""
        return not group or (group in self.jobs and not self.is_blocked(group))

    @property
    def has_blocked(self) -> bool:
        """See `ClaimOrder`."""
        taking_part = len(self._ring) - len(self._gone) - 1
        return len(self.jobs) - (b"" in self.jobs) > taking_part

    def pick(
        self, wanted: int, low: Iterator[int], sift: Sift, ageing: Ageing | None, now: int
    ) -> list[int]:
        """See `ClaimOrder`."""
        picked: list[int] = []
        left = self._left
        again: list[tuple[bytes, Iterator[int], int]] = []
        for group in self._ring:
            if group in self._gone:
                continue
            known = self.jobs.get(group)
            if group and isinstance(known, int):
                # Most of very many groups.
                if sift.takes(seq := seq_at_place(known)):
                    picked.append(seq)
                left = 0
                if len(picked) == wanted or sift.is_over:
                    return picked
                continue
            places = sift.taken(in_order(known, ageing, None if group else low))
            room = min(self._room(group, now), wanted) if group else wanted
            room = _take(picked, places, left or self._weights.get(group, 1), room, wanted)
            left = 0
            if len(picked) == wanted or sift.is_over:
                return picked
            if room:
                again.append((group, places, room))
        while again:
            another, again = again, []
            for group, places, room in another:
                room = _take(picked, places, self._weights.get(group, 1), room, wanted)
                if len(picked) == wanted or sift.is_over:
                    return picked
                if room:
                    again.append((group, places, room))
        return picked

    def waiting(self, group: bytes) -> tuple[int, int]:
        """How many jobs of a group are claimable, and the lowest of their seqs, 0 for none."""
        known = self.jobs.get(group)
        return (0, 0) if known is None else (count_of(known), lowest_seq(known))

    # -- changes ---------------------------------------------------------------------------------

    def part(self, job: OrderOf) -> None:
        """See `ClaimOrder`."""
        self.unleased(job.seq)
        self.withdraw(job)

    def admit(self, job: OrderOf) -> None:
        """See `ClaimOrder`."""
        seq, priority, group = job
        is_new = group not in self.jobs
        put(self.jobs, group, place_of(seq, priority))
        if is_new and group and not self.is_blocked(group):
            self._enter(group)

    def withdraw(self, job: OrderOf) -> None:
        """See `ClaimOrder`."""
        seq, priority, group = job
        was_in = self._is_in(group)
        if take(self.jobs, group, place_of(seq, priority)) and was_in and not self._is_in(group):
            self._leave(group)

    def leased(self, job: OrderOf) -> None:
        """See `ClaimOrder`."""
        was_in = self._is_in(job.group)
        self._lease(job.seq, job.group)
        if was_in and not self._is_in(job.group):
            self._leave(job.group)

    def unleased(self, seq: int) -> None:
        """See `ClaimOrder`."""
        group = self._leased.get(seq, b"")
        if group:
            was_in = self._is_in(group)
            self._end_lease(seq)
            if not was_in:
                self._freed(group)

    def _freed(self, group: bytes) -> None:
        if self._is_in(group):
            self._enter(group)

    def claimed(self, jobs: Sequence[OrderOf], at: int) -> None:
        """See `ClaimOrder`."""
        turns: dict[bytes, int] = {}
        strangers: set[bytes] = set()
        known, leased, in_flight = self.jobs, self._leased, self.in_flight
        for seq, priority, group in jobs:
            if group in turns:
                turns[group] += 1
            else:
                turns[group] = 1
                if not self._is_in(group):
                    # Only at replay.
                    strangers.add(group)
            if group or priority:
                take(known, group, place_of(seq, priority) if priority else seq)
            if group:
                leased[seq] = group
                in_flight[group] = in_flight.get(group, 0) + 1
        if self.options.rate_per_group is not None:
            for group, count in turns.items():
                self._spend(group, count, at)
        for group in strangers:
            del turns[group]
        self._take_turns(turns)

    def _take_turns(self, turns: dict[bytes, int]) -> None:
        """Move the ring by how many jobs of which groups were handed out."""
        ring, gone, weights = self._ring, self._gone, self._weights
        passed_over = 0
        while turns and passed_over <= len(ring):
            group = ring[0]
            if group in gone:
                gone.discard(group)
                ring.popleft()
                continue
            may = self._left or weights.get(group, 1)
            given = turns.pop(group, 0)
            passed_over = 0 if given else passed_over + 1
            if given > may:
                turns[group] = given - may
            self._left = 0
            if given <= may and not self._is_in(group):
                ring.popleft()
            elif given >= may or turns:
                ring.rotate(-1)
            else:
                self._left = may - given
        self._drop_gone()

    def _enter(self, group: bytes) -> None:
        if group in self._gone:
            self._gone.discard(group)
        else:
            self._ring.append(group)

    def _leave(self, group: bytes) -> None:
        if self._ring[0] == group:
            self._ring.popleft()
            self._left = 0
            self._drop_gone()
        else:
            self._gone.add(group)

    def _drop_gone(self) -> None:
        """The first of the ring is always one that takes part."""
        ring, gone = self._ring, self._gone
        while ring[0] in gone:
            gone.discard(ring.popleft())

    def release(self) -> list[list[Any] | dict[Any, Any]]:
        """See `ClaimOrder`."""
        return [*super().release(), self.jobs]


class FifoOrder(GroupOrder):
    """One job of a group at a time, in the order of their seqs. Only the first job of a group is
    ever claimable; without a priority it is among the jobs that the order does not own.

    Attributes:
        jobs: Seqs of all live jobs of each group, in whatever state.
        behind: How many of them are not the first of their group.
    """

    __slots__ = ("behind", "jobs")

    def __init__(self, records: JobRecords, options: GroupOptions) -> None:
        super().__init__(records, options, 1)
        self.jobs: dict[bytes, Places] = {}
        self.behind = 0

    @property
    def has_blocked(self) -> bool:
        """See `ClaimOrder`."""
        return self.behind > 0 or bool(self._waits)

    def first_of(self, group: bytes) -> int:
        """See `GroupOrder`."""
        known = self.jobs.get(group)
        return 0 if known is None else first_of(known)

    def waiting(self, group: bytes) -> tuple[int, int]:
        """How many jobs of a group are not in flight, and the first job, 0 for none."""
        known = self.jobs.get(group)
        if known is None:
            return 0, 0
        return count_of(known) - self.in_flight.get(group, 0), first_of(known)

    def join(self, job: OrderOf) -> None:
        """See `ClaimOrder`."""
        super().join(job)
        if not job.group:
            return
        known = self.jobs.get(job.group)
        if known is not None:
            self.behind += 1
            first = first_of(known)
            if job.seq < first:
                self._conceal(first)
        put(self.jobs, job.group, job.seq)

    def part(self, job: OrderOf) -> None:
        """See `ClaimOrder`."""
        seq, _, group = job
        if not group:
            super().part(job)
            return
        was_leased = bool(self._end_lease(seq))
        known = self.jobs.get(group)
        if known is None:
            return
        was_first = first_of(known) == seq
        if was_first:
            self.withdraw(job)
        if take(self.jobs, group, seq) and group in self.jobs:
            self.behind -= 1
        if was_first or was_leased:
            self._freed(group)

    def admit(self, job: OrderOf) -> None:
        """See `ClaimOrder`."""
        seq, _, group = job
        if not group:
            super().admit(job)
            return
        known = self.jobs.get(group)
        # The number that is kept already, so that none is kept twice.
        first = first_of(known) if known is not None else 0
        if first == seq and not self.is_blocked(group):
            self._expose(job._replace(seq=first))

    def withdraw(self, job: OrderOf) -> None:
        """See `ClaimOrder`."""
        if job.priority:
            super().withdraw(job)
        else:
            self.records.keep_back(job.seq)

    def _expose(self, job: OrderOf) -> None:
        """The first job of a group is claimable."""
        if job.priority:
            super().admit(job)
        else:
            self.records.claimable_again(job.seq)

    def _conceal(self, seq: int) -> None:
        """The first job of a group is so no longer."""
        for job in self.records.orders_of((seq,)):
            self.withdraw(job)

    def _freed(self, group: bytes) -> None:
        known = self.jobs.get(group)
        if known is None or self.is_blocked(group):
            return
        first = first_of(known)
        if self.records.is_claimable(first):
            for job in self.records.orders_of((first,)):
                self._expose(job._replace(seq=first))

    def leased(self, job: OrderOf) -> None:
        """See `ClaimOrder`."""
        self._lease(job.seq, job.group)
        if job.group in self.jobs:
            self._conceal(first_of(self.jobs[job.group]))

    def claimed(self, jobs: Sequence[OrderOf], at: int) -> None:
        """See `ClaimOrder`."""
        super().claimed(jobs, at)
        for seq, _, group in jobs:
            if group:
                self._lease(seq, group)
                self._spend(group, 1, at)

    def unleased(self, seq: int) -> None:
        """See `ClaimOrder`."""
        self._end_lease(seq)

    def settled(self, seq: int) -> None:
        """See `ClaimOrder`."""
        for job in self.records.orders_of((seq,)):
            if job.group:
                self._freed(job.group)

    def release(self) -> list[list[Any] | dict[Any, Any]]:
        """See `ClaimOrder`."""
        return [*super().release(), self.jobs]


def order_for(records: JobRecords, options: GroupOptions | None) -> ClaimOrder:
    """The order of a queue that has these options."""
    if options is None:
        return ClaimOrder(records)
    return (FairOrder if options.mode == "fair" else FifoOrder)(records, options)


def _take(picked: list[int], places: Iterator[int], turn: int, room: int, wanted: int) -> int:
    """Take jobs of a group in its turn; how many more it may give, 0 when it has no more."""
    for _ in range(min(turn, room, wanted - len(picked))):
        place = next(places, None)
        if place is None:
            return 0
        picked.append(seq_at_place(place))
        room -= 1
    return room
