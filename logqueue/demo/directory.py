"""The demo's directory: made fresh each time, and never one that the demo did not make itself.

Owns: the marker file, and the names of the files in the directory. Must not know: what is stored.
"""

from __future__ import annotations

import shutil
from pathlib import Path

MARKER = ".logqueue-demo"
MARKER_TEXT = "Made by the demo of logqueue, which deletes this directory when it runs again.\n"


class NotOurs(Exception):
    """The directory holds something and was not made by the demo: it stays as it is."""


def fresh(directory: Path) -> Path:
    """Recreate the directory and mark it as ours; refuse one with other content."""
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise NotOurs(f"{directory} is not a plain directory; choose another with --data-dir")
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARKER).is_file():
            raise NotOurs(
                f"{directory} holds files that the demo did not make; it was left alone: "
                "move it away or choose another with --data-dir"
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARKER).write_text(MARKER_TEXT, encoding="utf-8")
    return directory.resolve()
