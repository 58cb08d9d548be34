"""A Delta table beside each table of an archive, made of the very same files.

Owns: which epochs a Delta table has taken in, and the commits that bring it up to date. Must not
know: pyspark, how files are written.

The table's log is in `<root>/<table>/_delta_log`. Each commit carries the archive id and the
epoch as an application transaction, so an epoch is never taken in twice, and one that a crash kept
out is taken in by the next. Nothing is rewritten; statistics for skipping files are those of the
manifests.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Sequence
from typing import Any, Final

from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.contents import live_entries
from logqueue.pipeline.archive.manifests import PLACE_COLUMNS, FileEntry, Manifest, Table
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.tree import FileTree

INSTALL: Final = "a Delta table needs another package: pip install 'logqueue[delta]'"


def require_deltalake() -> None:
    """Refuse where the package is missing.

    Raises:
        PipelineError: Says what to install.
    """
    if importlib.util.find_spec("deltalake") is None:
        raise PipelineError(INSTALL)


def sync(root: FileTree, table: Table) -> int:
    """Bring the Delta table up to what the manifests say; returns how many commits that took.

    Call it as often as you like: what is in it is in it once.

    Raises:
        PipelineError: The package is missing, or the table is damaged.
    """
    require_deltalake()
    if root.directory is None:
        raise PipelineError(
            f"a Delta table is kept beside archives in directories only, not in {root.url}: leave "
            "out delta"
        )
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    place = root.path(table)
    try:
        if not DeltaTable.is_deltatable(place):
            return _begin(root, table, place)
        return _go_on(root, table, DeltaTable(place))
    except DeltaError as error:
        raise PipelineError(
            f"the Delta table {place} cannot be brought up to date: {error}; it can be rebuilt "
            f"from the archive: delete {place}/_delta_log and archive with delta again"
        ) from error


def _begin(root: FileTree, table: Table, place: str) -> int:
    from deltalake.transaction import create_table_with_add_actions

    entries = live_entries(root, table)
    if not entries:
        return 0
    create_table_with_add_actions(
        place,
        _schema(root, entries),
        _actions(table, entries, is_new=True),
        mode="error",
        name=table,
        commit_properties=_properties(_latest(root, table)),
    )
    return 1


def _go_on(root: FileTree, table: Table, delta: Any) -> int:
    commits = 0
    # Epochs first: a compaction may have put other files in place of theirs.
    for archive in [*manifests.archive_ids(root, table), manifests.compaction_id(table)]:
        known = _version(delta, archive)
        for epoch in manifests.epochs(root, archive):
            if epoch > known:
                _commit(table, delta, manifests.load(root, archive, epoch))
                commits += 1
    return commits


def _version(delta: Any, archive: str) -> int:
    version: int | None = delta.transaction_version(archive)
    return -1 if version is None else version


def _latest(root: FileTree, table: Table) -> dict[str, int]:
    """The last epoch of each archive id, compactions counted in."""
    ids = [*manifests.archive_ids(root, table), manifests.compaction_id(table)]
    found = {archive: manifests.epochs(root, archive) for archive in ids}
    return {archive: epochs[-1] for archive, epochs in found.items() if epochs}


def _commit(table: Table, delta: Any, manifest: Manifest) -> None:
    """Take in an epoch; of a compaction the log says that it changes no data, so that those who
    follow the table's changes pass over it."""
    from deltalake.transaction import RemoveAction

    now_ms = time.time_ns() // 1_000_000
    is_new = not manifest.supersedes
    gone = [RemoveAction(_path(table, path), False, now_ms) for path in manifest.supersedes]
    delta.create_write_transaction(
        [*_actions(table, manifest.files, is_new=is_new), *gone],
        mode="append",
        schema=delta.schema(),
        partition_by=[],
        commit_properties=_properties({manifest.archive: manifest.epoch}),
    )


def _properties(versions: dict[str, int]) -> Any:
    from deltalake import CommitProperties, Transaction

    transactions = [Transaction(archive, epoch) for archive, epoch in sorted(versions.items())]
    return CommitProperties(app_transactions=transactions)


def _schema(root: FileTree, entries: Sequence[FileEntry]) -> Any:
    import pyarrow.parquet as pq
    from deltalake import Schema

    schema = pq.read_schema(root.source(entries[-1].path))
    return Schema.from_arrow(schema.remove_metadata())


def _actions(table: Table, entries: Sequence[FileEntry], *, is_new: bool) -> list[Any]:
    from deltalake.transaction import AddAction

    place = PLACE_COLUMNS[table]
    actions = []
    for entry in entries:
        stats = {
            "numRecords": entry.rows,
            "minValues": {place: entry.first},
            "maxValues": {place: entry.last},
            "nullCount": {place: 0},
        }
        path = _path(table, entry.path)
        actions.append(AddAction(path, entry.bytes, {}, entry.max_ts, is_new, json.dumps(stats)))
    return actions


def _path(table: Table, path: str) -> str:
    """A file as the package takes it. In the log paths are URLs; it escapes them itself."""
    return path.removeprefix(f"{table}/")
