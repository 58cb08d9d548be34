"""Compaction of an archive: small files of days that are over become few.

Owns: which files are merged, and which are deleted when. Must not know: pyspark.

A merge is one manifest that names the new files and those they replace: readers see either the
old ones or the new ones. The old files stay for a day, for readers that began before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.contents import live_entries
from logqueue.pipeline.archive.manifests import TABLES, FileEntry, Manifest, Table
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.rows.archive_files import digest_of, write_rows
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.storage.tree import FileTree

TARGET_BYTES: Final = 64 << 20
"""Files of half this size and more are left as they are."""
KEPT_S: Final = 24 * 3600
"""How long files stay that do not count."""


def run_compact(
    root: str,
    *,
    target_bytes: int = TARGET_BYTES,
    now_s: Callable[[], float] = time.time,
    note: Note = silent,
) -> dict[str, Any]:
    """Merge small files of days that are over, and delete files that have not counted for a day.

    A day is over when the same table has files of a later day. It may run while an archive is
    being written and read.

    Args:
        root: Of the archive.
        target_bytes: What files are merged up to.
        now_s: The time in seconds since the epoch, for the age of files.
        note: Called with the progress.

    Returns:
        By table: files merged, files made of them, files and bytes deleted.

    Raises:
        PipelineError: There is no archive, another compaction runs, or a file is not what its
            manifest says.
    """
    place = open_tree(root)
    manifests.require_archive(place)
    tables: dict[str, dict[str, int]] = {}
    with place.lock("compact"):
        for done, table in enumerate(TABLES):
            note(f"compacting {table}", done / len(TABLES))
            merged, made = _merge(place, table, target_bytes)
            if next(place.files(f"{table}/_delta_log/"), None) is not None:
                from logqueue.pipeline.engines.spark.archive.delta import sync

                sync(place, table)
            deleted, freed = _collect(place, table, now_s() - KEPT_S)
            tables[table] = {
                "merged": merged,
                "made": made,
                "deleted": deleted,
                "bytes_deleted": freed,
            }
        note("compacted", 1.0)
    return {"job": "compact", "archive": place.url, "tables": tables}


def _merge(root: FileTree, table: Table, target: int) -> tuple[int, int]:
    """Merge what can be merged, as one manifest; returns how many files went and came."""
    archive = manifests.compaction_id(table)
    number = (manifests.epochs(root, archive) or [-1])[-1] + 1
    made: list[FileEntry] = []
    gone: list[str] = []
    for group in _groups(root, table, target):
        tables = [pq.read_table(root.source(entry.path), partitioning=None) for entry in group]
        rows = pa.concat_tables(tables)
        made.append(write_rows(root, table, rows, f"-c{number}").entry)
        gone += [entry.path for entry in group]
    if made:
        manifest = Manifest(
            table=table, archive=archive, epoch=number, files=made, supersedes=sorted(gone)
        )
        if not manifests.create(root, manifest):
            raise PipelineError(
                f"another compaction of {root.url} has ended just now: nothing was changed"
            )
    return len(gone), len(made)


def _groups(root: FileTree, table: Table, target: int) -> Iterator[list[FileEntry]]:
    """Neighbouring small files of one topic and day that go into one."""
    entries = live_entries(root, table)
    latest = max((_day(entry) for entry in entries), default="")
    found: dict[tuple[str, str, str], list[FileEntry]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.first, entry.last)):
        if _day(entry) < latest and entry.bytes < target // 2:
            found.setdefault((entry.topic, entry.log_id, _day(entry)), []).append(entry)
    for small in found.values():
        group: list[FileEntry] = []
        shape: Any = None
        for entry in small:
            _require_whole(root, entry)
            schema = pq.read_schema(root.source(entry.path))
            is_full = sum(known.bytes for known in group) + entry.bytes > target
            if group and (is_full or not schema.equals(shape)):
                if len(group) > 1:
                    yield group
                group = []
            shape = schema
            group.append(entry)
        if len(group) > 1:
            yield group


def _day(entry: FileEntry) -> str:
    """The date in a file's path."""
    return entry.path.split("/")[-2]


def _require_whole(root: FileTree, entry: FileEntry) -> None:
    """Refuse a file that is not the one its manifest names.

    Raises:
        PipelineError: It is missing or damaged.
    """
    digest = digest_of(root, entry.path)
    if digest != entry.sha256:
        raise PipelineError(
            f"{root.path(entry.path)} is {'damaged' if digest else 'missing'}: its manifest has "
            "another sha256. Nothing was merged; restore the file from a backup"
        )


def _collect(root: FileTree, table: Table, before_s: float) -> tuple[int, int]:
    """Delete files that no reader needs; returns how many, and their bytes.

    Those are files in no manifest, and files that were superseded, that long ago each.
    """
    named: set[str] = set()
    superseded: dict[str, int] = {}
    for manifest in manifests.manifests(root, table):
        named.update(entry.path for entry in manifest.files)
        if manifest.supersedes:
            written = root.info(manifests.manifest_name(manifest.archive, manifest.epoch))
            at = written.modified_ms if written is not None else 0
            superseded.update(dict.fromkeys(manifest.supersedes, at))
    gone = [
        file
        for file in root.files(f"{table}/")
        if file.name.startswith(f"{table}/topic=")
        and (file.name not in named or file.name in superseded)
        and max(file.modified_ms, superseded.get(file.name, 0)) < before_s * 1000
    ]
    root.remove(file.name for file in gone)
    return len(gone), sum(file.bytes for file in gone)
