"""A heartbeat after silence.

Owns: when it is due. One timer per connection that looks now and then, since resetting a timer
for each frame would cost as much as the frame. Must not know: what the sign looks like.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Heartbeat:
    """Calls back whenever nothing was sent for a while."""

    __slots__ = ("_beat", "_interval_s", "_last", "_loop", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, interval_s: float, beat: Callable[[], None]
    ) -> None:
        """Start counting.

        Args:
            loop: Whose time counts.
            interval_s: Silence in seconds after which `beat` is called, again and again.
            beat: Sends the sign. Never called after `stop`.
        """
        self._loop = loop
        self._interval_s = interval_s
        self._beat: Callable[[], None] | None = beat
        self._last = loop.time()
        self._timer: asyncio.TimerHandle | None = loop.call_later(interval_s, self._beat_if_silent)

    def sent(self, at: float) -> None:
        """Something was sent, at this time of the loop."""
        self._last = at

    def stop(self) -> None:
        """No more of it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._beat = None

    def _beat_if_silent(self) -> None:
        self._timer = None
        now = self._loop.time()
        if now >= self._last + self._interval_s and self._beat is not None:
            self._last = now
            self._beat()
        if self._beat is not None:
            self._timer = self._loop.call_at(self._last + self._interval_s, self._beat_if_silent)
