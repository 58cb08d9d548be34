"""Where time comes from. The core never reads a clock: the coordinator does, once per command."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall-clock time."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


class SystemClock:
    """The machine's wall clock. Jumps are passed on as they are."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until told otherwise, for tests and simulations."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self._now_ms

    def advance(self, by_ms: int) -> int:
        """Move by this many milliseconds (may be negative) and return the new time."""
        self._now_ms += by_ms
        return self._now_ms
