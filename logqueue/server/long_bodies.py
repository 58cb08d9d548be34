"""Whose turn it is to write a piece of a long body: a large reply, a download.

Owns: that a turn of the event loop writes one piece of one of them, and that they leave the
processors to writers of records. Must not know: HTTP, what is in a body, who waits for a reply.

A client that reads the whole log, as fast as it comes, keeps two processors busy: the server's and
its own. A reply that the log holds back is due whenever the disk is done, and then three threads
must run, one after the other: that of the log, the event loop, and the client. So long bodies rest
now and then while there are such replies; otherwise they continue without a break.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

REST_EVERY_BYTES: Final = 512 << 10
"""Of all long bodies together. Sending so much takes about half a millisecond."""
REST_S: Final = 0.001


class LongBodies:
    """The long bodies that are being written."""

    def __init__(self, held_back: Callable[[], int]) -> None:
        """There is none.

        Args:
            held_back: How many replies the log has held back so far.
        """
        self._held_back = held_back
        self._lock = asyncio.Lock()
        # Since the last rest, or where there could have been one.
        self._written = 0
        self._held_before = 0

    async def turn(self, size: int) -> None:
        """Wait until a piece may be written, which the caller does at once.

        Args:
            size: Of the piece, in bytes.
        """
        async with self._lock:
            rest_s = 0.0
            if self._written == 0:
                self._held_before = self._held_back()
            self._written += size
            if self._written >= REST_EVERY_BYTES:
                self._written = 0
                if self._held_back() != self._held_before:
                    rest_s = REST_S
            await asyncio.sleep(rest_s)
