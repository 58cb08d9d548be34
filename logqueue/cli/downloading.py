"""A download as a file that is read once.

Owns: the parts that have come, and how far it is, on a terminal. Must not know: what is downloaded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from logqueue.cli import output
from logqueue.cli.terminal import Bar

REFRESH_S = 0.2


class DownloadedFile:
    """What is downloaded, as far as it has come."""

    def __init__(self, parts: Iterator[bytes], what: str) -> None:
        """Nothing is downloaded yet.

        Args:
            parts: Of the download, in order.
            what: What it is, for the terminal.
        """
        self._parts = parts
        self._rest = b""
        self._what = what
        self._bar = Bar(sys.stderr) if sys.stderr.isatty() else None
        self._began = self._shown = time.monotonic()
        self._done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def read(self, size: int) -> bytes:
        """The next bytes, at most so many; none at the end."""
        if not self._rest:
            self._rest = next(self._parts, b"")
            self._done += len(self._rest)
            self._show()
        part, self._rest = self._rest[:size], self._rest[size:]
        return part

    def _show(self) -> None:
        now = time.monotonic()
        if self._bar is not None and now - self._shown >= REFRESH_S:
            self._shown = now
            rate = output.size(int(self._done / (now - self._began)))
            self._bar.show(self._what, None, f"{output.size(self._done)}, {rate}/s")
