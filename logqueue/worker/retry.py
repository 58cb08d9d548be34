"""When a failed job is tried again.

Owns: the retry rules, as pure functions of how often a job was delivered and what went wrong. Must
not know: queues, servers, clocks. One formula covers every kind: the delay before attempt n + 1 is
`(first + step * (n - 1)) * factor ** (n - 1)`, at most `cap`, less its share of jitter.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

DEFAULT_JITTER = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A retry rule; exponential by default. See also the named constructors.

    Attributes:
        max_attempts: Runs of a job in all, the first included; None for no bound, 1 for no retry.
        first: Delay before the second attempt, in seconds.
        factor: What each further delay is multiplied by; 1.0 for constant and linear rules.
        step: What each further delay grows by, in seconds.
        cap: The longest delay, in seconds.
        jitter: Share of the delay that is left to chance, 0.0 to 1.0; True for a half, so that a
            delay of 10 s becomes 5 to 10 s.
        max_total_delay: Stop retrying once all delays before the next attempt, without jitter,
            would exceed this many seconds; None for no bound.
        on: Exceptions that are worth another attempt; all of them by default, SystemExit too.
        unless: Exceptions among them that are not.
    """

    max_attempts: int | None = None
    first: float = 1.0
    factor: float = 2.0
    step: float = 0.0
    cap: float = 300.0
    jitter: float | bool = True
    max_total_delay: float | None = None
    on: tuple[type[BaseException], ...] = (BaseException,)
    unless: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        """Refuse rules that make no sense.

        Raises:
            ValueError: A bound is violated; the message names the attribute.
        """
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError("max_attempts counts the first run too: use 1 for no retry")
        if min(self.first, self.step, self.cap) < 0:
            raise ValueError("first, step and cap are seconds and cannot be negative")
        if self.factor < 1:
            raise ValueError("factor must be at least 1.0, so that delays never shrink")
        if not 0 <= self.jitter <= 1:
            raise ValueError("jitter is a share of the delay: 0.0 to 1.0, or True or False")

    @classmethod
    def none(cls) -> Retry:
        """One attempt and no more."""
        return cls(max_attempts=1)

    @classmethod
    def constant(
        cls,
        delay: float = 1.0,
        *,
        max_attempts: int | None = None,
        jitter: float | bool = False,
        max_total_delay: float | None = None,
        on: tuple[type[BaseException], ...] = (BaseException,),
        unless: tuple[type[BaseException], ...] = (),
    ) -> Retry:
        """The same delay, in seconds, before every further attempt."""
        return cls(
            max_attempts=max_attempts,
            first=delay,
            factor=1.0,
            cap=delay,
            jitter=jitter,
            max_total_delay=max_total_delay,
            on=on,
            unless=unless,
        )

    @classmethod
    def linear(
        cls,
        first: float = 1.0,
        step: float = 1.0,
        *,
        cap: float = 300.0,
        max_attempts: int | None = None,
        jitter: float | bool = True,
        max_total_delay: float | None = None,
        on: tuple[type[BaseException], ...] = (BaseException,),
        unless: tuple[type[BaseException], ...] = (),
    ) -> Retry:
        """Delays that grow by `step` seconds each time."""
        return cls(
            max_attempts=max_attempts,
            first=first,
            factor=1.0,
            step=step,
            cap=cap,
            jitter=jitter,
            max_total_delay=max_total_delay,
            on=on,
            unless=unless,
        )

    @classmethod
    def exponential(
        cls,
        first: float = 1.0,
        factor: float = 2.0,
        *,
        cap: float = 300.0,
        max_attempts: int | None = None,
        jitter: float | bool = True,
        max_total_delay: float | None = None,
        on: tuple[type[BaseException], ...] = (BaseException,),
        unless: tuple[type[BaseException], ...] = (),
    ) -> Retry:
        """Delays that grow by `factor` each time."""
        return cls(
            max_attempts=max_attempts,
            first=first,
            factor=factor,
            cap=cap,
            jitter=jitter,
            max_total_delay=max_total_delay,
            on=on,
            unless=unless,
        )

    def planned(self, attempt: int) -> float:
        """The delay after this attempt (from 1), in seconds, before jitter."""
        later = attempt - 1
        try:
            grown = (self.first + self.step * later) * self.factor**later
        except OverflowError:
            return self.cap
        return min(grown, self.cap)

    def delay(self, attempt: int, error: BaseException, chance: Random) -> float | None:
        """How long to wait before the next attempt.

        Args:
            attempt: Which attempt has failed, from 1.
            error: How it failed.
            chance: Where the jitter comes from.

        Returns:
            Seconds, or None to give the job up.
        """
        if not isinstance(error, self.on) or isinstance(error, self.unless):
            return None
        if self.max_attempts is not None and attempt >= self.max_attempts:
            return None
        if self.max_total_delay is not None and self._total(attempt) > self.max_total_delay:
            return None
        planned = self.planned(attempt)
        share = DEFAULT_JITTER if self.jitter is True else float(self.jitter)
        return planned * (1.0 - share * chance.random())

    def _total(self, attempts: int) -> float:
        """All planned delays up to this attempt's, in seconds."""
        assert self.max_total_delay is not None
        total = 0.0
        for attempt in range(1, attempts + 1):
            total += self.planned(attempt)
            if total > self.max_total_delay:
                break
        return total
