"""Which tables in Parquet are at a place: those of a version, or whatever files are there.

Owns: finding them. Must not know: who wrote them, how an engine reads them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from logqueue.pipeline.lifecycle.publishing import Published, TableFile, published
from logqueue.pipeline.storage.fetching import local_copies
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.storage.tree import FileTree

SUFFIX = ".parquet"


@dataclass(frozen=True)
class StoredTable:
    """A table.

    Attributes:
        tree: Where it is.
        files: Its files; their `day` is the column `date` where they are kept by day.
    """

    name: str
    tree: FileTree
    files: Sequence[TableFile]

    def local_files(self, scratch: str) -> list[str]:
        """Its files as paths of this machine, below directories such as `date=2026-01-31`.

        Args:
            scratch: A directory for copies, where the place is not a directory of this machine;
                the caller deletes it.

        Raises:
            PipelineError: A file cannot be fetched.
        """
        if self.tree.directory is not None:
            return [self.tree.path(file.path) for file in self.files]
        names = {
            file.path: os.path.join(
                os.path.dirname(file.name), f"{place}-{os.path.basename(file.name)}"
            )
            for place, file in enumerate(self.files)
        }
        return local_copies(self.tree, names, scratch)


def tables_at(place: str) -> list[StoredTable]:
    """The tables at a place, by name.

    Of a place where a job has published, those of the newest version; elsewhere every Parquet file
    and every directory of such files, without what begins with `_` or a dot.
    """
    tree = open_tree(place)
    return tables_in(tree, published(tree))


def tables_in(tree: FileTree, version: Published | None) -> list[StoredTable]:
    """The tables of a version, by name; None for the files of no version."""
    files = _loose(tree) if version is None else version.files
    found: dict[str, list[TableFile]] = {name: [] for name in (version.tables if version else ())}
    for file in files:
        if file.name.endswith(SUFFIX):
            found.setdefault(file.table.removesuffix(SUFFIX), []).append(file)
    return [StoredTable(name, tree, found[name]) for name in sorted(found)]


def _loose(tree: FileTree) -> Iterable[TableFile]:
    """Files of no version; a directory in which a job has published is a place of its own."""
    is_other = {
        name: next(tree.files(f"{name}/_manifest/"), None) is not None for name in tree.folders()
    }
    for info in tree.files():
        parts = info.name.split("/")
        if is_other.get(parts[0]) or any(part.startswith(("_", ".")) for part in parts):
            continue
        yield TableFile(path=info.name, name=info.name, rows=-1, bytes=info.bytes)
