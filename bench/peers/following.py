"""A connection that follows a log and notes when each record arrives, whatever the protocol.

Owns: arrivals, found by the numbers inside payloads. Must not know: whose log it is.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from time import perf_counter
from typing import cast

from bench.load import LoadFailed

_NUMBERS = re.compile(rb'"n":(\d+),"type"')
_TAIL_BYTES = 40
"""More than a number and the names around it take, which may come in two parts."""

Answer = Callable[[bytes], bytes | None]
"""Takes all that came since the last answer; returns what to send next, or None to wait on."""


class Follower(asyncio.Protocol):
    """One watcher; every record must come once and in order."""

    def __init__(self, arrived: Callable[[int, float], None]) -> None:
        self.seen = 0
        self.failure: Exception | None = None
        self.opening = b""
        self.answer: Answer | None = None
        self._arrived = arrived
        self._tail = b""
        self._unanswered = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the log."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self.opening)

    def connection_lost(self, exc: Exception | None) -> None:
        """Followers end only when we end them."""
        if self._transport is not None:
            self.failure = LoadFailed(f"a watcher lost its connection ({exc!r})")

    def data_received(self, data: bytes) -> None:
        """Records, whole or in parts."""
        now = perf_counter()
        text = self._tail + data
        end = 0
        for found in _NUMBERS.finditer(text):
            number = int(found[1])
            if number != self.seen:
                self.failure = LoadFailed(f"a watcher saw record {number} after {self.seen}")
            self.seen = number + 1
            self._arrived(number, now)
            end = found.end()
        self._tail = text[max(end, len(text) - _TAIL_BYTES) :]
        if self.answer is not None:
            self._unanswered += data
            following = self.answer(self._unanswered)
            if following is not None:
                self._unanswered = b""
                assert self._transport is not None
                self._transport.write(following)

    def close(self) -> None:
        """Hang up."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
