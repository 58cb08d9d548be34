"""Directories that a command makes: they are free before, and durable after.

Owns: both checks. Must not know: what is in them.
"""

from __future__ import annotations

import os
from pathlib import Path

from logqueue.cli.exits import UsageError


def require_free(target: Path) -> None:
    """Refuse a target that holds anything.

    Raises:
        UsageError: It does, or cannot be made.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is not empty: name a directory that is empty or not there")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"{target.absolute().parent} is not a directory: make it first")


def sync(folder: Path) -> None:
    """Make the names in a directory survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
