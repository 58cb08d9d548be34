"""A clock that tests move."""

from __future__ import annotations


class ManualClock:
    """A clock that stands still until told otherwise, for simulations."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self._now_ms

    def advance(self, by_ms: int) -> int:
        """Move by this many milliseconds (may be negative) and return the new time."""
        self._now_ms += by_ms
        return self._now_ms
