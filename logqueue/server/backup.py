"""A backup while a client downloads it.

Owns: that there is one at a time, how far it is, and its end when it is not read or the disk needs
its space. Must not know: HTTP, which files a backup has.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime

from logqueue.errors import Throttled
from logqueue.server.storage.tar_image import TarImage

logger = logging.getLogger("logqueue.backup")

STALL_S = 60.0
"""A client that has read nothing for so long has no more claim on the files."""


class Backup:
    """One backup under way.

    Attributes:
        total_bytes: Of the archive.
        sent_bytes: What was read of it.
        started_at: ms since the epoch.
    """

    def __init__(
        self,
        image: TarImage,
        started_at: int,
        refused: Callable[[], int],
        over: Callable[[], None],
    ) -> None:
        """In the event loop.

        Args:
            image: What is sent.
            started_at: ms since the epoch.
            refused: How many writes were refused for lack of disk space so far.
            over: Called once, at the end.
        """
        self.total_bytes = image.size
        self.sent_bytes = 0
        self.started_at = started_at
        self._image = image
        self._refused = refused
        self._refused_before = refused()
        self._over: Callable[[], None] | None = over
        self._loop = asyncio.get_running_loop()
        self._read_at = self._loop.time()
        self._watch = self._loop.call_later(STALL_S, self._end_if_stalled)
        self._problem = ""
        self._lock = threading.Lock()

    def read(self, length: int, offset: int) -> bytes:
        """The next bytes of the archive. Blocks on the disk; in any thread.

        Raises:
            Throttled: The backup has ended before.
            OSError: A file cannot be read.
        """
        try:
            with self._lock:
                if self._problem:
                    raise Throttled(self._problem)
                self._read_at = self._loop.time()
                data = self._image.read(length, offset)
                self.sent_bytes = offset + len(data)
                return data
        finally:
            if self._problem:
                self._close_image()

    def require_space(self) -> None:
        """End the backup when the disk is full: files that it holds open may have the space.

        Raises:
            Throttled: It is, or the backup has ended before.
        """
        if not self._problem and self._refused() > self._refused_before:
            self._fail("writes are refused for lack of disk space, and the backup held some of it")
        if self._problem:
            raise Throttled(self._problem)

    def close(self) -> None:
        """The backup is over. May be called again."""
        over, self._over = self._over, None
        self._watch.cancel()
        self._problem = self._problem or "the backup is over"
        self._close_image()
        if over is not None:
            over()

    def _close_image(self) -> None:
        # A read that is under way closes it afterwards: its file must not be another one meanwhile.
        if self._lock.acquire(blocking=False):
            try:
                self._image.close()
            finally:
                self._lock.release()

    def _fail(self, problem: str) -> None:
        self._problem = f"the backup was ended: {problem}"
        logger.warning("%s", self._problem)
        self.close()

    def _end_if_stalled(self) -> None:
        idle = self._loop.time() - self._read_at
        if idle >= STALL_S:
            self._fail(f"its client has read nothing for {STALL_S:.0f} s")
        else:
            self._watch = self._loop.call_later(STALL_S - idle, self._end_if_stalled)


def folder_name(at_ms: int) -> str:
    """What a backup that began at this time is called."""
    at = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"logqueue-backup-{at:%Y%m%dT%H%M%SZ}"
