"""What is left of a claim rate: a bucket of jobs that refills with time.

Owns: the arithmetic. Must not know: queues, groups, whose rate it is.

What is spent is kept as time: how long it takes to refill.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from logqueue.model.config import ClaimRateOptions


class RateSpent(NamedTuple):
    """What of a rate was spent.

    Attributes:
        until: When all of it is refilled, ms since the epoch.
        at: When it was last spent.
    """

    until: float = 0.0
    at: int = 0

    def left_to_refill(self, rate: ClaimRateOptions, now: int) -> float:
        """What is spent now, in milliseconds of its refilling.

        While the clock, set back, is before the last claim, nothing refills. By more than a whole
        burst takes it must not be: then the burst is refilled.
        """
        if self.at - now > rate.burst_jobs * 1000 / rate.per_s:
            return 0.0
        return max(self.until - max(now, self.at), 0.0)

    def allows(self, rate: ClaimRateOptions, now: int) -> int:
        """How many jobs may be handed out now."""
        cost = 1000 / rate.per_s
        spent = self.left_to_refill(rate, now)
        # A hair more: what was refilled to the millisecond must not be lost to rounding.
        return max(int((rate.burst_jobs * cost - spent) / cost + 1e-6), 0)

    def refills_in(self, rate: ClaimRateOptions, now: int) -> int:
        """Milliseconds until the next job may be handed out."""
        cost = 1000 / rate.per_s
        wait = ceil(self.left_to_refill(rate, now) - (rate.burst_jobs - 1) * cost - 1e-6)
        return wait + max(self.at - now, 0) if wait > 0 else 0

    def spend(self, rate: ClaimRateOptions, jobs: int, now: int) -> RateSpent:
        """Jobs were handed out."""
        return RateSpent(now + self.left_to_refill(rate, now) + jobs * 1000 / rate.per_s, now)

    def changed(
        self, before: ClaimRateOptions | None, after: ClaimRateOptions | None, now: int
    ) -> RateSpent:
        """Another rate: what was handed out counts by the jobs, not by the time it cost."""
        if before is None or after is None:
            return RateSpent(0.0, now)
        spent = self.left_to_refill(before, now)
        return RateSpent(now + spent * before.per_s / after.per_s, now)
