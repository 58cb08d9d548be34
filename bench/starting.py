"""How long Python programs wait for us before they begin.

Owns: the rows import-time and help-time. Each value is the median of several fresh interpreters.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter

from bench.load import LoadFailed
from bench.rows import Row, Target
from bench.session import Session

IMPORT = "from time import perf_counter as t; b = t(); import logqueue; print(t() - b)"


def import_time(session: Session) -> list[Row]:
    """`import logqueue`, in an interpreter that runs."""
    row = Row("import-time", "import logqueue", "ms", Target(150.0, at_most=True))
    return [_measured(session, row, lambda: float(_run("-c", IMPORT)))]


def help_time(session: Session) -> list[Row]:
    """`logqueue --help`, from the start of the process to its end."""

    def asked() -> float:
        began = perf_counter()
        if "serve" not in _run("-m", "logqueue", "--help"):
            raise LoadFailed("logqueue --help does not list its commands")
        return perf_counter() - began

    row = Row("help-time", "logqueue --help, start to end", "ms", Target(300.0, at_most=True))
    return [_measured(session, row, asked)]


def _measured(session: Session, row: Row, seconds: Callable[[], float]) -> Row:
    seconds()  # what is compiled and cached at the first time is not asked for again
    for _ in range(session.scale.repeats):
        row.values.append(statistics.median(seconds() for _ in range(session.scale.starts)) * 1000)
        session.tell(f"  {row.name}: {row.values[-1]:.0f} ms")
    return row


def _run(*arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if ended.returncode:
        raise LoadFailed(f"python {' '.join(arguments)}: {ended.stderr.strip()[-300:]}")
    return ended.stdout
