"""Epochs of an archive made to count: what tasks have written becomes a manifest.

Owns: what is checked before that, and the holes between ranges. Must not know: pyspark, how files
are written, what is read next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.contents import Contents
from logqueue.pipeline.archive.manifests import FileEntry, Hole, Manifest, Table
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.checking import require_files
from logqueue.pipeline.storage.tree import FileTree


@dataclass(frozen=True)
class FileWritten:
    """A file and the ranges of places in it without gaps."""

    entry: FileEntry
    runs: tuple[tuple[int, int], ...]


def commit(
    tree: FileTree,
    held: Contents,
    written: Iterable[FileWritten],
    manifest: Callable[[Sequence[FileEntry]], Manifest],
) -> Manifest:
    """Make an epoch count: its manifest is written and taken into what is held.

    Args:
        held: The table as it is.
        written: What tasks have written.
        manifest: Makes the manifest of these files, without holes.

    Raises:
        PipelineError: Files begin before the end of what is archived, are not there, or another
            process has archived meanwhile.
    """
    files = sorted(written, key=lambda file: (file.entry.topic, file.entry.log_id, file.runs))
    holes = [*_holes(files, held.progress.ends, held.table)]
    made = msgspec.structs.replace(manifest([file.entry for file in files]), holes=holes)
    require_files(tree, made.files)
    if not manifests.create(tree, made):
        raise PipelineError(
            f"epoch {made.epoch} of archive {made.archive} was archived by another process just "
            f"now: nothing was changed; run it again"
        )
    held.add(made)
    held.write_checkpoint(tree)
    return made


def _holes(files: Sequence[FileWritten], ends: Mapping[str, int], table: Table) -> Iterator[Hole]:
    """The seqs between the end of a topic and the end of its new files that are in none of them."""
    runs: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for file in files:
        runs.setdefault((file.entry.topic, file.entry.log_id), []).extend(file.runs)
    for (topic, log_id), spans in runs.items():
        spans.sort()
        # The log gives all events of an order at once, so no later epoch begins with it.
        end = ends.get(log_id, 0 if table == "records" else -1)
        if spans[0][0] <= end:
            raise _behind(topic, spans[0][0], end)
        # Orders are of the whole log: those between the events of one topic are others' events.
        for first, last in spans if table == "records" else ():
            if first <= end:
                raise seq_twice(topic, first)
            if first > end + 1:
                yield Hole(topic=topic, log_id=log_id, first=end + 1, last=first - 1)
            end = last


def seq_twice(topic: str, seq: int) -> PipelineError:
    """The error for two records of one seq."""
    return PipelineError(
        f"the source gave seq {seq} of topic {topic} twice in one micro-batch, so nothing is "
        "archived; audit its log with logqueue pipeline audit"
    )


def _behind(topic: str, first: int, end: int) -> PipelineError:
    return PipelineError(
        f"topic {topic} is archived up to {end}, and these rows begin at {first}: nothing was "
        "archived. Does the archive belong to another log?"
    )
