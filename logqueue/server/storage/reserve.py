"""Disk space that is kept back so that a full disk can give space back.

Owns: one file beside the segments of the jobs log, which holds nothing but space. Segments are
dropped oldest first, and what lives in the oldest is rewritten before; on a full disk there is
room for that only here. Must not know: what is moved, and when.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from wal import FileSystem

NAME = "RESERVE"
STEP_BYTES = 4 << 20


class Reserve:
    """The file. Losing it loses nothing."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._path = os.path.join(directory, NAME)
        self._bytes: int | None = None

    @property
    def bytes(self) -> int:
        """How much is kept back."""
        if self._bytes is None:
            self._bytes = 0
            with suppress(OSError):
                file = self._fs.open(self._path)
                try:
                    self._bytes = file.size()
                finally:
                    file.close()
        return self._bytes

    def grow(self, wanted: int) -> Iterator[None]:
        """Keep so many bytes back, or as many as there are; never gives any up.

        Yields:
            After each step.
        """
        if wanted <= self.bytes:
            return
        try:
            new = not self.bytes
            file = self._fs.create(self._path) if new else self._fs.open(self._path, writable=True)
            try:
                while self.bytes < wanted:
                    step = min(STEP_BYTES, wanted - self.bytes)
                    file.allocate(self.bytes, step)
                    self._bytes = self.bytes + step
                    yield
            finally:
                file.close()
        except OSError:
            # What there is must do. A file that was made in vain holds no space.
            self._bytes = None

    def release(self) -> int:
        """Release all of it; returns how much that was, in bytes."""
        released = self.bytes
        try:
            self._fs.remove(self._path)
        except OSError:
            released = 0
        self._bytes = None
        return released
