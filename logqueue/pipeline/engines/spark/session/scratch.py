"""Temporary directories of sessions: what Spark spills, its warehouse, its log settings.

Owns: making them, and removing them, also those of processes that were killed. Must not know: what
is put there.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

PREFIX = "logqueue-spark-"
LOCK = ".held"
YOUNG_S = 60.0
"""Minimum age, in seconds, at which a directory without a holder is removed."""

_held: dict[Path, int] = {}
"""Directories of this process, and the open files that hold them."""


def folder() -> Path:
    """A new directory, which lasts as long as this process, or until `remove`."""
    sweep()
    made = Path(tempfile.mkdtemp(prefix=PREFIX))
    fd = os.open(made / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    if not _held:
        atexit.register(remove)
    _held[made] = fd
    return made


def remove() -> None:
    """Remove all directories of this process."""
    for made, fd in _held.items():
        shutil.rmtree(made, ignore_errors=True)
        os.close(fd)
    _held.clear()


def sweep() -> None:
    """Remove directories that processes have left behind which could not do it themselves."""
    for found in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - found.stat().st_mtime < YOUNG_S:
                continue
            fd = os.open(found / LOCK, os.O_RDWR)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(found, ignore_errors=True)
            finally:
                os.close(fd)
