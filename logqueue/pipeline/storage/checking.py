"""Files that tasks have written, looked at before they count; and what cannot be written.

Owns: the sentences about places that machines do not share. Must not know: what files hold.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Protocol

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.tree import FileTree

SHARED = "a directory that the driver and all executors share, or the URL of an object store"


class WrittenFile(Protocol):
    """A file as the task that wrote it describes it."""

    @property
    def path(self) -> str:
        """Below the root."""
        ...

    @property
    def bytes(self) -> int:
        """Its size."""
        ...


def require_files(tree: FileTree, files: Sequence[WrittenFile]) -> None:
    """Look at every file before a manifest names it.

    Raises:
        PipelineError: One is missing or has another size.
    """
    if tree.directory is None and len(files) > 1:
        found = {info.name: info.bytes for info in tree.files(_common_folder(files))}
    else:
        infos = (tree.info(file.path) for file in files)
        found = {info.name: info.bytes for info in infos if info is not None}
    missing = [file.path for file in files if file.path not in found]
    if missing:
        raise PipelineError(
            f"{len(missing)} of {len(files)} files that tasks have written are not in {tree.url} "
            f"on the machine of the driver, so nothing was published; the first is {missing[0]}. "
            f"Executors write to disks of their own: give {SHARED}"
        )
    for file in files:
        if found[file.path] != file.bytes:
            raise PipelineError(
                f"{tree.path(file.path)} has {found[file.path]} bytes and was written with "
                f"{file.bytes}, so nothing was published: is {tree.url} full, or another "
                "directory on other machines?"
            )


def _common_folder(files: Sequence[WrittenFile]) -> str:
    folder = os.path.commonpath([os.path.dirname(file.path) for file in files])
    return f"{folder}/" if folder else ""


def unwritable(path: str, error: OSError) -> PipelineError:
    """A failed write as a refusal that names the machine: it may be an executor."""
    return PipelineError(
        f"{path} cannot be written on {socket.gethostname()} ({error.strerror or error}): give "
        f"{SHARED}"
    )
