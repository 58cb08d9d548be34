"""An archive written in this process, without Spark, and what is in it.

Owns: the way from options of a source to files and manifests. Must not know: any single test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.committing import FileWritten
from logqueue.pipeline.archive.contents import live_entries
from logqueue.pipeline.archive.loop import ArchiveLoop
from logqueue.pipeline.archive.manifests import Table
from logqueue.pipeline.archive.run import ArchiveEpoch
from logqueue.pipeline.reading import options
from logqueue.pipeline.rows.archive_files import write_batches
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.stores.live_store import LiveStore
from logqueue.pipeline.stores.wal_store import WalStore

EVENTS: Mapping[Table, str] = {"records": "data", "lease_events": "leases"}


class Crash(Exception):
    """The end of a process."""


def archive(
    source: Mapping[str, str],
    to: Path,
    *,
    tables: Sequence[Table] = ("lease_events", "records"),
    crash_after: int | None = None,
    **given: str,
) -> dict[str, Any]:
    """Archive up to the present end; what was added, by table.

    Args:
        crash_after: Raise `Crash` when so many epochs have their manifest.
    """
    if "topics" not in given:
        given.setdefault("topicPattern", ".*")
    stores: dict[Table, LiveStore | WalStore] = {}
    for table, kind in EVENTS.items():
        found = {**source, **given, "events": kind}
        stores[table] = (
            LiveStore(options.live(found)) if "url" in found else WalStore(options.offline(found))
        )
    tree = open_tree(str(to))
    manifests.begin(tree)
    done = 0

    def write(epoch: ArchiveEpoch) -> list[FileWritten]:
        columns = _columns(epoch.table)
        return [
            written
            for task in epoch.tasks
            for written in write_batches(
                tree,
                epoch.table,
                (rows.select(columns) for rows in stores[epoch.table].read(task)),
            )
        ]

    def after(table: Table) -> None:
        nonlocal done
        done += 1
        if done == crash_after:
            raise Crash

    records, events = stores["records"], stores["lease_events"].given.reading
    loop = ArchiveLoop(
        tree, tables, records.given.reading, lambda: records.moment(events), write, after=after
    )
    loop.archive()
    return loop.summary()


def _columns(table: Table) -> list[str]:
    from logqueue.pipeline.rows.segment_batches import EVENTS_SCHEMA, RECORDS_SCHEMA

    names = RECORDS_SCHEMA().names if table == "records" else EVENTS_SCHEMA.names
    return [name for name in names if name != "segment"]


def rows(root: Path, table: Table) -> list[dict[str, Any]]:
    """All rows that count."""
    tree = open_tree(str(root))
    return [
        row
        for entry in live_entries(tree, table)
        for row in pq.read_table(tree.source(entry.path), partitioning=None).to_pylist()
    ]


def seqs(root: Path) -> dict[str, list[int]]:
    """The seqs of the records of each topic."""
    found: dict[str, list[int]] = {}
    for row in rows(root, "records"):
        found.setdefault(row["topic"], []).append(row["seq"])
    return {topic: sorted(places) for topic, places in found.items()}


def events(root: Path) -> dict[str, list[tuple[str, int]]]:
    """Kind and job of the events of each topic, in order."""
    found: dict[str, list[tuple[int, str, int]]] = {}
    for row in rows(root, "lease_events"):
        found.setdefault(row["topic"], []).append((row["lseq"], row["event"], row["job_seq"]))
    return {topic: [event[1:] for event in sorted(its)] for topic, its in found.items()}
