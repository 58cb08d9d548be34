"""When to try again, and how long to wait before.

Owns: the one rule of which failures are safe to repeat, and the growth of delays. Must not know:
HTTP, threads, event loops. It sleeps nowhere: it says for how long to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from logqueue.errors import (
    LogqueueError,
    NotReady,
    NotWriter,
    ReplicaUnavailable,
    ShuttingDown,
)

Clock = Callable[[], float]
"""Seconds that only grow."""

AWAY = (NotReady, NotWriter, ReplicaUnavailable, ShuttingDown)
"""What a server says that will take calls again, or whose place another one will take."""

Chance = Callable[[], float]
"""A number from 0.0 up to, not including, 1.0."""

OnRetry = Callable[[LogqueueError, float, float], object]
"""Hears of a failed try that is repeated: the error, how long the call has been tried, and how long
it waits now, in seconds."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How patient a client is.

    The delay before try n+1 is drawn from the upper half of `first_s * factor ** (n - 1)`, at most
    `cap_s`; what the server asks for in Retry-After comes on top.

    A server that is away (refused, restarting, silent, or one that is to be replaced) is waited for
    until `total_s`. One that answers that it has no room now gets `refusals` tries: waiting longer
    seldom helps. With several servers, a try asks one after the other until the writer is found,
    and delays are between such rounds.

    Attributes:
        attempts: How often a call is made at most, at least 1; None for any number.
        first_s: The first delay in seconds.
        factor: By how much delays grow, at least 1.
        cap_s: The longest delay; at most a second while a standby answers that has not taken over.
        total_s: No further try begins later than this after the first; None for no bound. Must be
            longer than the client's `timeout_s`, or a call that timed out is never repeated.
        refusals: How often a running server may refuse for want of room, at least 1; None for any
            number.
        on_retry: Called before each wait, in the thread of the call: with the error, the seconds
            since the first try, and the seconds until the next one.
    """

    attempts: int | None = None
    first_s: float = 0.1
    factor: float = 2.0
    cap_s: float = 5.0
    total_s: float | None = 40.0
    refusals: int | None = 5
    on_retry: OnRetry | None = None

    def __post_init__(self) -> None:
        for name in ("attempts", "refusals"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, or None for any number")
        if self.first_s < 0 or self.cap_s < 0 or self.factor < 1:
            raise ValueError("first_s and cap_s must not be negative, factor not below 1")
        if self.total_s is not None and self.total_s < 0:
            raise ValueError("total_s must not be negative; None sets no bound")


TAKEOVER_CAP_S = 1.0
"""The longest delay while a standby answers: it may take over at any moment."""

NO_RETRIES = Backoff(attempts=1)
STREAM_BACKOFF = Backoff(first_s=0.5, cap_s=15.0, total_s=None, refusals=None)

STREAM_HEALTHY_S = 5.0
"""After a stream that lived so long, or delivered anything, delays restart from the first."""


class Attempts:
    """The tries of one call.

    Attributes:
        is_unsure: A try failed in a way that may still have had its effect.
    """

    def __init__(self, backoff: Backoff, clock: Clock, chance: Chance) -> None:
        self._backoff = backoff
        self._clock = clock
        self._chance = chance
        self._began = clock()
        self._failed = 0
        self._refused = 0
        self.is_unsure = False

    def delay_after(
        self, error: LogqueueError, is_repeatable: bool, *, goes_on: bool = False
    ) -> float | None:
        """Seconds to wait before the next try; None when there must be none.

        Args:
            is_repeatable: Whether doing the call twice is as good as doing it once.
            goes_on: The next try is part of this one: it asks another server.
        """
        self.is_unsure |= not error.had_no_effect
        if not error.retryable or not (error.had_no_effect or is_repeatable):
            return None
        return self.next_delay(error, goes_on=goes_on)

    def next_delay(self, error: LogqueueError, *, goes_on: bool = False) -> float | None:
        """Seconds to wait before the next try of what may be tried again; None after the last."""
        if goes_on:
            return None if self._is_late(0.0) else 0.0
        self._failed += 1
        self._refused += _is_refusal(error)
        backoff = self._backoff
        if backoff.refusals is not None and self._refused >= backoff.refusals:
            return None
        if backoff.attempts is not None and self._failed >= backoff.attempts:
            return None
        # Beyond 64 doublings every delay is the longest one; the exponent must not overflow.
        grown = backoff.first_s * backoff.factor ** min(self._failed - 1, 64)
        cap_s = backoff.cap_s
        if isinstance(error, NotWriter):
            cap_s = min(cap_s, TAKEOVER_CAP_S)
        delay = min(grown, cap_s) * (0.5 + self._chance() / 2)
        delay += error.retry_after_s or 0
        if self._is_late(delay):
            return None
        if backoff.on_retry is not None:
            backoff.on_retry(error, self._clock() - self._began, delay)
        return delay

    def _is_late(self, delay: float) -> bool:
        """Whether no try may begin after so many seconds more."""
        total_s = self._backoff.total_s
        return total_s is not None and self._clock() - self._began + delay > total_s


def _is_refusal(error: LogqueueError) -> bool:
    """Whether a running server said that it has no room, and will be there tomorrow to say so."""
    return error.status > 0 and not isinstance(error, AWAY)


class StreamRetry:
    """The tries of one endless iteration: few until the first stream opens, many after.

    Attributes:
        retry_ms: How long the server asks to wait after a break; None when it did not say.
    """

    def __init__(self, first: Backoff, later: Backoff, clock: Clock, chance: Chance) -> None:
        self._later = later
        self._clock = clock
        self._chance = chance
        self._attempts = Attempts(first, clock, chance)
        self._was_open = False
        self._opened_at: float | None = None
        self._has_delivered = False
        self.retry_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether a stream was accepted and has not failed since."""
        return self._opened_at is not None

    def opened(self) -> None:
        """A stream was accepted."""
        if not self._was_open:
            self._attempts = self._fresh_attempts()
        self._was_open = True
        self._opened_at = self._clock()
        self._has_delivered = False

    def delivered(self) -> None:
        """A stream said something worth having."""
        self._has_delivered = True

    def delay_after(self, error: LogqueueError, *, goes_on: bool = False) -> float | None:
        """Seconds to wait before the next stream; None when there must be none.

        Args:
            goes_on: Another server is asked for it as part of this try.
        """
        if self._opened_at is not None:
            lived_s = self._clock() - self._opened_at
            if self._has_delivered or lived_s >= STREAM_HEALTHY_S:
                self._attempts = self._fresh_attempts()
            self._opened_at = None
        delay = self._attempts.next_delay(error, goes_on=goes_on)
        if delay is None or goes_on or self.retry_ms is None:
            return delay
        return max(delay, self.retry_ms / 1000 * (0.5 + self._chance() / 2))

    def _fresh_attempts(self) -> Attempts:
        return Attempts(self._later, self._clock, self._chance)
