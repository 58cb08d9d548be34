"""How fast a client must send: requests and messages that are not complete yet.

Owns: the bounds. Must not know: what is sent, timers.
"""

from __future__ import annotations

GRACE_S = 30.0
"""Whatever its length, anything may take so long; and it may pause so long at most."""
BYTES_PER_S_MIN = 4096
"""How fast it must come on average once the grace is over."""

ADVICE = f"send at least {BYTES_PER_S_MIN} bytes/s and never pause for {GRACE_S:.0f} s"


class Pace:
    """Watches one thing that arrives. Look at it every `GRACE_S`."""

    __slots__ = ("_before", "began_s")

    def __init__(self, now_s: float) -> None:
        """It begins now."""
        self.began_s = now_s
        self._before = 0

    def is_too_slow(self, now_s: float, received: int) -> bool:
        """Whether it is too slow, with so many bytes received so far."""
        due = (now_s - self.began_s - GRACE_S) * BYTES_PER_S_MIN
        is_slow = received == self._before or received < due
        self._before = received
        return is_slow
