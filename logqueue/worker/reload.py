"""Starting a worker again when its code changes; for development.

Owns: watching files by their times of change, and the child that is replaced. Must not know: what
the child does.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType

POLL_S = 0.5
STOP_S = 30.0

logger = logging.getLogger("logqueue.worker.reload")

_SKIPPED = frozenset({"__pycache__", "node_modules", "build", "dist"})


def snapshot(roots: Iterable[Path]) -> dict[Path, int]:
    """Every Python file below some folders, with when it was changed, in ns."""
    seen: dict[Path, int] = {}
    for path in _files(roots):
        try:
            seen[path] = path.stat().st_mtime_ns
        except FileNotFoundError:
            continue
    return seen


def _files(roots: Iterable[Path]) -> Iterator[Path]:
    for root in roots:
        for folder, folders, names in os.walk(root):
            folders[:] = [
                name for name in folders if not name.startswith(".") and name not in _SKIPPED
            ]
            yield from (Path(folder) / name for name in names if name.endswith(".py"))


def run_reloading(
    command: Sequence[str],
    roots: Iterable[Path],
    *,
    signals: Iterable[signal.Signals] = (),
    poll_s: float = POLL_S,
) -> int:
    """Run a program, and restart it whenever a Python file changes. Blocks.

    Args:
        command: The program, usually `logqueue worker module:app` without `--reload`.
        roots: Folders to watch.
        signals: Which signals mean "stop"; none are touched by default.
        poll_s: How often to look, in seconds.

    Returns:
        The program's exit status once stopped.
    """
    folders = [*roots]
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in signals}
    try:
        while True:
            seen = snapshot(folders)
            child = subprocess.Popen(command)
            try:
                while not stop.wait(poll_s) and (now := snapshot(folders)) == seen:
                    continue
            finally:
                status = _end(child)
            if stop.is_set():
                return status
            changed = sorted(str(path) for path, at in now.items() if seen.get(path) != at)
            logger.info("restarting: %s", ", ".join(changed) or "a file was deleted")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(child: subprocess.Popen[bytes]) -> int:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()
