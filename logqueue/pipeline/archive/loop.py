"""An archive that is being written: look, archive what is new epoch by epoch, and again.

Owns: the loop around `archive.run`, the ids and numbers of epochs, the summary. Must not know: the
engine that reads and writes an epoch, where the log is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.committing import FileWritten, commit
from logqueue.pipeline.archive.contents import Contents, contents
from logqueue.pipeline.archive.manifests import FileEntry, Manifest, Table
from logqueue.pipeline.archive.run import BATCH_BYTES, ArchiveEpoch, ArchiveRun, Moment
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.reading.offset_planner import Limit
from logqueue.pipeline.reading.options import Reading
from logqueue.pipeline.storage.tree import FileTree

POLL_S: Final = 1


class ArchiveLoop:
    """An archive that is being written. Its caller holds the lock."""

    def __init__(
        self,
        root: FileTree,
        tables: Sequence[Table],
        reading: Reading,
        moment: Callable[[], Moment],
        write: Callable[[ArchiveEpoch], list[FileWritten]],
        *,
        after: Callable[[Table], None] = lambda table: None,
        note: Note = silent,
    ) -> None:
        """Read what the archive holds.

        Args:
            tables: What to archive, in this order.
            reading: Topics, the bound of an epoch, and whether losses are accepted.
            moment: Looks at the log.
            write: Reads the tasks of an epoch and writes the files.
            after: Called when a manifest was written.

        Raises:
            PipelineError: There is no archive, or a manifest is damaged.
        """
        self._root = root
        self._reading = reading
        self._moment = moment
        self._write = write
        self._after = after
        self._note = note
        self._held: dict[Table, Contents] = {table: contents(root, table) for table in tables}
        self._ids = {table: archive_id(root, table) for table in tables}
        self._added: dict[Table, list[Manifest]] = {table: [] for table in tables}

    def archive(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Archive up to the present end of the log.

        Args:
            is_over: Asked after each epoch; what is left is left to the next run.

        Raises:
            DataLossError: Something is gone, and losses are not accepted.
            PipelineError: The log cannot be read, or gives what does not follow.
        """
        self._note("looking at the log", 0.0)
        run = ArchiveRun(
            self._moment(),
            self._held,
            self._reading.selection,
            _limit(self._reading),
            fail_on_data_loss=self._reading.fail_on_data_loss,
        )
        for epoch in run.epochs():
            self._archive(epoch)
            if is_over():
                return
        self._note("archived", 1.0)

    def _archive(self, epoch: ArchiveEpoch) -> None:
        held, archive = self._held[epoch.table], self._ids[epoch.table]
        number = held.through.get(archive, -1) + 1
        self._note(f"archiving {epoch.table}, epoch {number} of {archive}", None)
        written = self._write(epoch) if epoch.tasks else []
        tops = [contents.progress.max_ts for contents in self._held.values()]
        topics = [*held.progress.topics.values(), *epoch.topics]
        paged = {topic.log_id for topic in topics if topic.is_paged}
        tops += [file.entry.max_ts for file in written if file.entry.log_id not in paged]

        def manifest(files: Sequence[FileEntry]) -> Manifest:
            return epoch.manifest(archive, number, files, max(tops, default=0))

        self._added[epoch.table].append(commit(self._root, held, written, manifest))
        self._after(epoch.table)

    def summary(self) -> dict[str, Any]:
        """What was added, by table."""
        return {table: _summary(added) for table, added in self._added.items()}


def repeat(
    work: Callable[[], None],
    every_s: float,
    is_over: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Repeat work until it is over; an interrupt is the ordinary end."""
    with suppress(KeyboardInterrupt):
        while not is_over():
            began = clock()
            work()
            while not is_over() and (left := began + every_s - clock()) > 0:
                pause(min(left, POLL_S))


def _limit(reading: Reading) -> Limit:
    if reading.max_records is not None:
        return Limit(rows=reading.max_records)
    return Limit(bytes=reading.max_bytes or BATCH_BYTES)


def archive_id(root: FileTree, table: Table) -> str:
    """The id under which a table is archived: the last one, unless it goes with a checkpoint of an
    earlier version."""
    known = manifests.archive_ids(root, table)
    streams = set(root.folders("_checkpoint/"))
    number = int(known[-1].rpartition("-")[2]) if known else 1
    latest = known[-1] if known else f"{table}-{number:04d}"
    while latest in streams:
        number += 1
        latest = f"{table}-{number:04d}"
    return latest


def _summary(added: Sequence[Manifest]) -> dict[str, Any]:
    files = [entry for manifest in added for entry in manifest.files]
    epochs = [f"{manifest.archive}/{manifest.epoch}" for manifest in added]
    ranges: dict[str, dict[str, int]] = {}
    for entry in files:
        known = ranges.setdefault(entry.topic, {"first": entry.first, "last": entry.last})
        known["first"] = min(known["first"], entry.first)
        known["last"] = max(known["last"], entry.last)
    return {
        "epochs": len(epochs),
        "first_epoch": epochs[0] if epochs else None,
        "last_epoch": epochs[-1] if epochs else None,
        "files": len(files),
        "rows": sum(entry.rows for entry in files),
        "bytes": sum(entry.bytes for entry in files),
        "topics": dict(sorted(ranges.items())),
    }
