"""Temporary directories of one piece of work, which also go when its process is killed.

Owns: making them, removing them, and those that killed processes left. Must not know: what is put
there.

A directory is held by a lock (flock) on itself, which ends with the process. What is not held, the
next process removes that needs a temporary directory.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "logqueue-scratch-"


@contextmanager
def temporary_folder() -> Iterator[str]:
    """A new directory, which lasts as long as the context.

    Raises:
        OSError: It cannot be made.
    """
    _sweep()
    made, fd = _made()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(fd)


def _made() -> tuple[str, int]:
    """A directory that is held, and the open file that holds it."""
    while True:
        made = tempfile.mkdtemp(prefix=PREFIX)
        try:
            fd = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            # Another process took it for one that was left, before it was held.
            continue
        with suppress(OSError):
            # Some network file systems have no locks on directories; they are not swept either.
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.path.isdir(made):
            return made, fd
        os.close(fd)


def _sweep() -> None:
    """Remove directories whose processes have ended without doing it."""
    for found in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            fd = os.open(found, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(fd).st_uid == os.geteuid():
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(found, ignore_errors=True)
            finally:
                os.close(fd)
