"""What a replica costs, and how fast a data directory is made of it again.

Owns: the rows replica-async, replica-sync and replica-restore. The store is a directory on the disk
of the run: what a network adds is not in these figures.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from time import perf_counter

import uvloop

from bench.appends import measure_append
from bench.load import LoadFailed
from bench.rows import Row, Target
from bench.session import Session
from logqueue.replica.opening import open_store
from logqueue.replica.restoring import restore
from wal import OsFileSystem

CONNECTIONS = 64
PER_REQUEST = 100
MIB = 1 << 20


def replica_modes(session: Session) -> list[Row]:
    """Appends of class fsync with a replica, each beside the same without one."""
    what = f"append, 100 per request, {CONNECTIONS} connections"
    rows = {
        "async": Row(
            "replica-async",
            f"{what}, replica of mode async: share of the throughput without",
            "x",
            Target(0.95, at_most=False),
        ),
        "sync": Row(
            "replica-sync",
            "the same of mode sync, over a directory",
            "x",
            Target(0.7, at_most=False),
        ),
    }
    for _ in range(session.scale.repeats):
        for mode, row in rows.items():
            # Each beside its own: the machine changes with the minutes.
            plain = _rate(session, ())
            place = session.place()
            rate = _rate(session, ("--replica", f"file://{place}", "--replica-mode", mode))
            shutil.rmtree(place)
            row.values.append(rate / plain)
            row.notes.append(f"{rate:,.0f} and {plain:,.0f} records/s")
            session.tell(f"  {row.name}: {row.values[-1]:.2f} ({row.notes[-1]})")
    return [*rows.values()]


def _rate(session: Session, options: Sequence[str]) -> float:
    with session.server(options) as server:
        return uvloop.run(measure_append(server, session, PER_REQUEST, CONNECTIONS)).rate


def replica_restore(session: Session) -> list[Row]:
    """A data directory made of a replica, checks and syncs included."""
    row = Row("replica-restore", "restore from a replica", "MB/s", Target(200.0, at_most=False))
    place = session.place()
    options = ("--replica", f"file://{place}/replica", "--segment-max-bytes", str(8 * MIB))
    with session.server(options) as server:
        uvloop.run(measure_append(server, session, PER_REQUEST, CONNECTIONS))
        if server.stop():
            raise LoadFailed("the server did not stop in order")
    for number in range(session.scale.repeats):
        to = place / f"restored-{number}"
        began = perf_counter()
        made = restore(open_store(f"file://{place}/replica"), OsFileSystem(), str(to))
        row.values.append(made.bytes / 1e6 / (perf_counter() - began))
        row.notes.append(f"{made.bytes / 1e6:.0f} MB")
        session.tell(f"  {row.name}: {row.values[-1]:.0f} MB/s of {row.notes[-1]}")
        shutil.rmtree(to)
    return [row]
