"""Files that appear whole or not at all.

Owns: a temporary name beside the file, the sync, the rename. Must not know: what is written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress


def write_file(to: str, write: Callable[[str], None]) -> None:
    """Let `write` fill a file beside `to`, then put it in its place.

    Args:
        to: The path it shall have; directories on the way are made.
        write: Given the temporary path. When it raises, nothing is left and `to` is as it was.

    Raises:
        OSError: A directory or file cannot be written.
    """
    folder = os.path.dirname(os.path.abspath(to))
    os.makedirs(folder, exist_ok=True)
    handle, beside = tempfile.mkstemp(prefix=f".{os.path.basename(to)[:40]}-", dir=folder)
    os.close(handle)
    try:
        write(beside)
        with open(beside, "rb") as written:
            os.fsync(written.fileno())
        os.chmod(beside, 0o644)
        os.replace(beside, to)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


def write_text(to: str, content: str) -> None:
    """Write a text as UTF-8, line ends as they are.

    Raises:
        OSError: A directory or file cannot be written.
    """

    def fill(path: str) -> None:
        with open(path, "w", encoding="utf-8", newline="") as opened:
            opened.write(content)

    write_file(to, fill)
