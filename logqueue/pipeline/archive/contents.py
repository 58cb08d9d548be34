"""What all manifests of a table say together, and the checkpoints that spare readers most of them.

Owns: which files count, in how few reads; writing and distrusting checkpoints. Must not know: what
is archived next, rows.

A checkpoint holds what the manifests up to a moment say together. It is written when a hundred of
them have come since the last one, and it is only ever an abridgement: manifests stay, a checkpoint
that is damaged, or names manifests that are not there, is passed over.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.manifests import FileEntry, Hole, Manifest, Table
from logqueue.pipeline.archive.progress import ArchiveProgress, ProgressState
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading.offsets import EventsOffset
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.storage.tree import FileTree

EVERY = 100
"""Manifests between two checkpoints."""
KEPT = 2
"""Checkpoints that stay."""


class _Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """All of a table up to a moment.

    Attributes:
        through: By archive id, the last epoch that is in it; compactions too.
    """

    v: int = manifests.VERSION
    table: str
    through: dict[str, int]
    files: list[FileEntry]
    holes: list[Hole]
    progress: ProgressState


_read_checkpoint = msgspec.json.Decoder(_Checkpoint).decode


@dataclass
class Contents:
    """What a table of an archive holds.

    Attributes:
        files: Those that count, by path, in the order in which they were archived.
        holes: Seqs without a record.
        progress: How far topics are archived.
        through: By archive id, the last epoch that is taken into account.
        manifests_read: How many manifests were read one by one.
    """

    table: Table
    files: dict[str, FileEntry] = field(default_factory=dict)
    holes: list[Hole] = field(default_factory=list)
    progress: ArchiveProgress = field(default_factory=ArchiveProgress)
    through: dict[str, int] = field(default_factory=dict)
    manifests_read: int = 0
    _checkpoints: list[int] = field(default_factory=list)

    @property
    def entries(self) -> list[FileEntry]:
        """The files that count."""
        return [*self.files.values()]

    def add(self, manifest: Manifest) -> None:
        """Take in the next manifest."""
        if manifest.archive != manifests.compaction_id(self.table):
            self.progress.add(manifest)
        self.files.update((entry.path, entry) for entry in manifest.files)
        for path in manifest.supersedes:
            self.files.pop(path, None)
        self.holes += manifest.holes
        self.through[manifest.archive] = manifest.epoch
        self.manifests_read += 1

    def write_checkpoint(self, tree: FileTree) -> bool:
        """Write a checkpoint if a hundred manifests have come since the last one."""
        if self.manifests_read < EVERY:
            return False
        folder = _folder(self.table)
        number = (self._checkpoints or [-1])[-1] + 1
        checkpoint = _Checkpoint(
            table=self.table,
            through=self.through,
            files=self.entries,
            holes=self.holes,
            progress=self.progress.state(),
        )
        tree.replace(manifests.manifest_name(folder, number), msgspec.json.encode(checkpoint))
        self._checkpoints.append(number)
        self.manifests_read = 0
        tree.remove([manifests.manifest_name(folder, old) for old in self._checkpoints[:-KEPT]])
        self._checkpoints = self._checkpoints[-KEPT:]
        return True


def contents(tree: FileTree, table: Table) -> Contents:
    """All that the manifests of a table say; a compaction that ends meanwhile is seen whole or not
    at all.

    Raises:
        PipelineError: There is no archive, or a manifest is damaged.
    """
    manifests.require_archive(tree)
    ids = [*manifests.archive_ids(tree, table), manifests.compaction_id(table)]
    known = {archive: manifests.epochs(tree, archive) for archive in ids}
    found = _from_checkpoint(tree, table, known)
    for archive in ids:
        done = found.through.get(archive, -1)
        for epoch in known[archive]:
            if epoch > done:
                found.add(manifests.load(tree, archive, epoch))
    if table == "lease_events" and len(ids) > 1:
        _add_stream_offset(tree, found, ids[-2])
    return found


def _add_stream_offset(tree: FileTree, found: Contents, archive: str) -> None:
    """Take in how far the Spark stream of an earlier version had read beyond the last event: its
    manifests do not say so."""
    name = f"_checkpoint/{archive}/offsets/{found.through.get(archive, -1)}"
    with suppress(OSError, IndexError, msgspec.MsgspecError, PipelineError):
        offset = EventsOffset.parse(msgspec.json.decode(tree.read(name).splitlines()[-1]))
        ends = found.progress.legacy_ends
        ends[offset.log] = max(ends.get(offset.log, 0), offset.next)


def live_entries(tree: FileTree, table: Table) -> list[FileEntry]:
    """The files that count, in the order in which they were archived."""
    return contents(tree, table).entries


def holes(tree: FileTree, table: Table) -> list[Hole]:
    """All ranges of seqs without a record, by topic and seq."""
    return sorted(contents(tree, table).holes)


def archive_files(root: str, table: str) -> list[str]:
    """The Parquet files of a table, from its manifests: what any reader of Parquet may read.

    Args:
        root: Of the archive; URLs come back for the URL of an object store.
        table: `records` or `lease_events`.

    Raises:
        PipelineError: There is no such archive or table, or a manifest is damaged.
    """
    tree = open_tree(root)
    return [tree.path(entry.path) for entry in live_entries(tree, manifests.require_table(table))]


def _from_checkpoint(tree: FileTree, table: Table, known: dict[str, list[int]]) -> Contents:
    numbers = manifests.epochs(tree, _folder(table))
    for number in reversed(numbers):
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            checkpoint = _read_checkpoint(
                tree.read(manifests.manifest_name(_folder(table), number))
            )
            if checkpoint.v > manifests.VERSION or not _fits(checkpoint, known):
                continue
            return Contents(
                table,
                {entry.path: entry for entry in checkpoint.files},
                [*checkpoint.holes],
                ArchiveProgress.of(checkpoint.progress),
                dict(checkpoint.through),
                _checkpoints=numbers,
            )
    return Contents(table, _checkpoints=numbers)


def _fits(checkpoint: _Checkpoint, known: dict[str, list[int]]) -> bool:
    """Whether all manifests are there that a checkpoint abridges: none was removed since."""
    return all(
        sum(epoch <= last for epoch in known.get(archive, [])) == last + 1
        for archive, last in checkpoint.through.items()
    )


def _folder(table: Table) -> str:
    return f"{table}-checkpoints"
