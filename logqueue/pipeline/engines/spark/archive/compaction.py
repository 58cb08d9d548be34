"""Compaction of an archive: small files of days that are over become few.

Owns: which files are merged, who merges them, and which are deleted when. Must not know: how files
become one (`merging`).

Groups of files are merged in this process, or by tasks of Spark where the archive is large: either
way the same files come out. Some hundreds of merges make a manifest, which names the new files and
those they replace: readers see either the old ones or the new ones, and what a compaction has done
before it is killed stays done. The old files stay for a day, for readers that began before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.contents import live_entries
from logqueue.pipeline.archive.manifests import TABLES, FileEntry, Manifest, Table
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.rows.archive_merging import Merged, merge_group
from logqueue.pipeline.rows.file_sizes import FILE_BYTES, neighbours
from logqueue.pipeline.storage.checking import require_files
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.storage.tree import FileTree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Group = list[FileEntry]
Merging = Callable[[FileTree, Table, Sequence[Group], str], Iterable[Merged]]

GROUPS_PER_MANIFEST: Final = 500
KEPT_S: Final = 24 * 3600
"""How long files stay that do not count."""


def run_compact(
    root: str,
    *,
    spark: SparkSession | None = None,
    target_bytes: int = FILE_BYTES,
    now_s: Callable[[], float] = time.time,
    note: Note = silent,
) -> dict[str, Any]:
    """Merge small files of days that are over, and delete files that have not counted for a day.

    A day is over when the same table has files of a later day. It may run while an archive is
    being written and read.

    Args:
        root: Of the archive.
        spark: The session whose tasks merge files; None to merge them in this process, without
            Spark.
        target_bytes: What files are merged up to; those of half of it and more stay as they are.
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
            merge = merge_here if spark is None else merge_on(spark)
            merged, made = _merge(place, table, target_bytes, merge, note)
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


def _merge(
    root: FileTree, table: Table, target: int, merge: Merging, note: Note
) -> tuple[int, int]:
    """Merge what can be merged; returns how many files went and came."""
    archive = manifests.compaction_id(table)
    number = (manifests.epochs(root, archive) or [-1])[-1] + 1
    groups = [*_groups(root, table, target)]
    gone = made = 0
    for place in range(0, len(groups), GROUPS_PER_MANIFEST):
        note(f"compacting {table}", place / len(groups))
        some = groups[place : place + GROUPS_PER_MANIFEST]
        merged = [*merge(root, table, some, f"-c{number}")]
        if not merged:
            continue
        require_files(root, [each.made for each in merged])
        manifest = Manifest(
            table=table,
            archive=archive,
            epoch=number,
            files=[each.made for each in merged],
            supersedes=sorted(path for each in merged for path in each.gone),
        )
        if not manifests.create(root, manifest):
            raise PipelineError(
                f"another compaction of {root.url} has ended just now: nothing was changed"
            )
        gone, made, number = gone + len(manifest.supersedes), made + len(merged), number + 1
    return gone, made


def merge_here(
    root: FileTree, table: Table, groups: Sequence[Group], suffix: str
) -> Iterator[Merged]:
    """Merge groups one after the other in this process."""
    for group in groups:
        yield from merge_group(root, table, group, suffix)


def merge_on(spark: SparkSession) -> Merging:
    """What merges groups in tasks of Spark, each group in one task."""

    def merge(
        root: FileTree, table: Table, groups: Sequence[Group], suffix: str
    ) -> Iterator[Merged]:
        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for text in batch.column(0).to_pylist():
                    group = msgspec.json.decode(text, type=list[FileEntry])
                    done = msgspec.json.encode(merge_group(root, table, group, suffix))
                    yield pa.record_batch({"merged": pa.array([done], pa.binary())})

        listed = [(place, msgspec.json.encode(group)) for place, group in enumerate(groups)]
        rows = spark.createDataFrame(listed, "place INT, files BINARY")
        tasks = rows.repartitionById(len(groups), "place").select("files")
        for row in tasks.mapInArrow(task, "merged BINARY").collect():
            yield from msgspec.json.decode(row["merged"], type=list[Merged])

    return merge


def _groups(root: FileTree, table: Table, target: int) -> Iterator[Group]:
    """Neighbouring small files of one topic and day that go into one."""
    entries = live_entries(root, table)
    latest = max((_day(entry) for entry in entries), default="")
    found: dict[tuple[str, str, str], Group] = {}
    for entry in sorted(entries, key=lambda entry: (entry.first, entry.last)):
        if _day(entry) < latest and entry.bytes < target // 2:
            found.setdefault((entry.topic, entry.log_id, _day(entry)), []).append(entry)
    for small in found.values():
        for places in neighbours([entry.bytes for entry in small], target):
            if len(places) > 1:
                yield [small[place] for place in places]


def _day(entry: FileEntry) -> str:
    """The date in a file's path."""
    return entry.path.split("/")[-2]


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
