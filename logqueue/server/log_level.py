"""How much the server writes to its log, and for how long.

Owns: the level of the loggers of the project, the one it started with, and the return to that.
Must not know: who asks, where the log goes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

logger = logging.getLogger("logqueue.server")


class LogVerbosity:
    """The level of everything that the project logs.

    Attributes:
        until: When the level returns to the one of the start, ms since the epoch; None when it
            stays.
        on_change: Called after each change.
    """

    def __init__(
        self, root: str = "logqueue", clock_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    ) -> None:
        """As the process has set it up.

        Args:
            root: Name of the logger above all that belong to the project.
            clock_ms: The clock, ms since the epoch.
        """
        self._logger = logging.getLogger(root)
        self._own_level = self._logger.level
        self._clock_ms = clock_ms
        self._return: asyncio.TimerHandle | None = None
        self.configured = _name_of(self._logger.getEffectiveLevel())
        self.until: int | None = None
        self.on_change: Callable[[], None] = lambda: None

    @property
    def level(self) -> str:
        """The level as of now, a name of `LEVELS`."""
        return _name_of(self._logger.getEffectiveLevel())

    def change(self, level: str, for_ms: int | None) -> None:
        """Set the level. In the event loop.

        Args:
            level: A name of `LEVELS`.
            for_ms: After so long it returns to the one of the start; None for never.
        """
        self._forget_return()
        if for_ms is not None:
            self.until = self._clock_ms() + for_ms
            self._return = asyncio.get_running_loop().call_later(for_ms / 1000, self.restore)
        logger.warning("log level: %s%s", level, "" if for_ms is None else f", for {for_ms} ms")
        self._set(LEVELS[level])

    def restore(self) -> None:
        """Return to the level of the start. May be called again."""
        self._forget_return()
        if self._logger.level != self._own_level:
            self._set(self._own_level)
            logger.warning("log level: %s again", self.level)

    def _set(self, level: int) -> None:
        self._logger.setLevel(level)
        self.on_change()

    def _forget_return(self) -> None:
        self.until = None
        if self._return is not None:
            self._return.cancel()
            self._return = None


def _name_of(level: int) -> str:
    """The name of the highest level that a level lets through at least."""
    names = [name for name, least in LEVELS.items() if least >= level]
    return names[0] if names else "error"
