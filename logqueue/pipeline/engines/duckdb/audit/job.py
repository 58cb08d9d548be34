"""The audit job on this machine.

Owns: its worker processes and its scratch directory. Must not know: the rules, the command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from logqueue.pipeline.audit import run
from logqueue.pipeline.engines.duckdb.audit.engine import LocalAuditEngine
from logqueue.pipeline.engines.duckdb.workers import WorkerPool
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.storage.temporary import temporary_folder


def run_audit(
    place: InputPlace,
    to: str,
    *,
    against: InputPlace | None = None,
    rules: Sequence[str] | str | None = None,
    note: Note = silent,
) -> dict[str, Any]:
    """Check the history of a log and write what is wrong with it; see `audit.run.run_audit`."""
    with _engine(place) as engine:
        return run.run_audit(engine, place, to, against=against, rules=rules, note=note)


def account(place: InputPlace, *, note: Note = silent) -> dict[str, Any]:
    """The account of all jobs; see `audit.run.account_of`."""
    with _engine(place) as engine:
        return run.account_of(engine, place, note=note)


@contextmanager
def _engine(place: InputPlace) -> Iterator[LocalAuditEngine]:
    with (
        temporary_folder() as scratch,
        WorkerPool() as pool,
    ):
        yield LocalAuditEngine(place, pool, scratch)
