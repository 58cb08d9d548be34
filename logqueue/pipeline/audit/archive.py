"""Rules about an archive: its manifests, and the files they name.

Owns: files held against what their manifests say, and how the ranges of manifests join. Must not
know: the rows in the files, Spark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from logqueue.pipeline.archive import manifests as kept
from logqueue.pipeline.archive.contents import holes as archive_holes
from logqueue.pipeline.archive.contents import live_entries
from logqueue.pipeline.audit.findings import Finding, Rule
from logqueue.pipeline.audit.log import RunTasks
from logqueue.pipeline.progress import Note
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.storage.tree import FileTree
from logqueue.segments import ranges as seq_ranges
from logqueue.segments.ranges import Ranges

RULES = (
    Rule(
        "manifest_files",
        "every file named by a manifest exists with the recorded size and checksum",
    ),
    Rule("manifest_joints", "the ranges of the manifests are contiguous and do not overlap"),
)
_READ_BYTES = 1 << 20


class FileCheck(NamedTuple):
    """A file to hold against its manifest."""

    root: str
    table: kept.Table
    entry: kept.FileEntry


def findings(
    root: str, covers: Callable[[str], bool], run: RunTasks, note: Note
) -> Iterator[Finding]:
    """What is wrong with the files and manifests of an archive.

    Args:
        root: Of the archive.
        covers: Whether a topic is part of the audit.
        run: Does the work for each file.
        note: Called with the progress.
    """
    place = open_tree(root)
    for table in kept.TABLES:
        entries = [e for e in live_entries(place, table) if covers(e.topic)]
        checks = [FileCheck(root, table, entry) for entry in entries]
        results = run(difference_in, checks)
        for count, (entry, difference) in enumerate(zip(entries, results, strict=True), 1):
            note(f"checking files of {table}", count / len(entries))
            if difference is not None:
                yield Finding(
                    "manifest_files",
                    "error",
                    entry.topic,
                    entry.first,
                    entry.last,
                    difference,
                    {"file": entry.path, "table": table},
                )
        if table == "records":
            yield from _joints(place, entries)


def holes(root: str) -> dict[str, Ranges]:
    """Seqs that an archive says it has no record of, by log_id."""
    found: dict[str, Ranges] = {}
    for hole in archive_holes(open_tree(root), "records"):
        ranges = found.setdefault(hole.log_id, [])
        seq_ranges.add(ranges, hole.first, hole.last)
    return found


def difference_in(check: FileCheck) -> str | None:
    """In what a file is not what its manifest says; None when it is."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    root, entry, column = open_tree(check.root), check.entry, kept.PLACE_COLUMNS[check.table]
    digest = hashlib.sha256()
    size = 0
    try:
        source = root.source(entry.path)
        with open(source, "rb") if isinstance(source, str) else source as file:
            while part := file.read(_READ_BYTES):
                digest.update(part)
                size += len(part)
    except OSError as error:
        return f"the file cannot be read: {error.strerror or 'it is missing'}"
    if size != entry.bytes or digest.hexdigest() != entry.sha256:
        return (
            f"the file has {size} bytes with another checksum than the manifest's {entry.bytes}"
            if size != entry.bytes
            else "the file has another checksum than its manifest says"
        )
    try:
        file_rows = pq.ParquetFile(root.source(entry.path))
        found = file_rows.metadata.num_rows
        places = file_rows.read([column]).column(column)
    except (ArrowException, OSError, KeyError) as error:
        return f"the file is not a Parquet that can be read: {error}"
    if found != entry.rows:
        return f"the file has {found} rows, its manifest says {entry.rows}"
    if found and (places[0].as_py(), places[-1].as_py()) != (entry.first, entry.last):
        return f"the file begins and ends with other places than {entry.first} and {entry.last}"
    return None


def _joints(root: FileTree, entries: list[kept.FileEntry]) -> Iterator[Finding]:
    known = holes(root.url)
    by_log: dict[tuple[str, str], list[kept.FileEntry]] = {}
    for entry in entries:
        by_log.setdefault((entry.topic, entry.log_id), []).append(entry)
    for (topic, log_id), files in sorted(by_log.items()):
        files.sort(key=lambda entry: (entry.first, entry.last))
        last, before = 0, ""
        for entry in files:
            evidence = {"log_id": log_id, "file": entry.path, "after": before}
            if entry.first <= last:
                end = min(last, entry.last)
                says = "two files of the archive hold these seqs"
                yield Finding("manifest_joints", "error", topic, entry.first, end, says, evidence)
            elif entry.first > last + 1:
                absent = seq_ranges.without([(last + 1, entry.first - 1)], known.get(log_id, []))
                for first, end in absent:
                    says = "no file of the archive holds these seqs, and no manifest says why"
                    yield Finding("manifest_joints", "error", topic, first, end, says, evidence)
            last, before = max(last, entry.last), entry.path
