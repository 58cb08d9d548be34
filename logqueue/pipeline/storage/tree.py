"""The seam to places that hold files: what jobs of the pipeline need of a directory or a bucket.

Owns: the protocol `FileTree`. Must not know: which places there are, what files hold.

Names are relative to the root of the tree, with forward slashes. A tree is small and can be
pickled: tasks take it along and open what they need where they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol


class FileInfo(NamedTuple):
    """A file in a listing; `modified_ms` is the clock of the place, ms since the epoch."""

    name: str
    bytes: int
    modified_ms: int


class FileTree(Protocol):
    """Files below one root.

    All methods raise `PipelineError` where the place refuses or cannot be reached. What a write has
    returned from is durable.
    """

    @property
    def url(self) -> str:
        """The root, absolute: a path, or a URL without credentials."""
        ...

    @property
    def directory(self) -> str | None:
        """The root as a path of this machine; None when it is not a directory."""
        ...

    def path(self, name: str) -> str:
        """A file as users and engines write it: an absolute path or a URL."""
        ...

    def below(self, folder: str) -> FileTree:
        """The files of a directory in it."""
        ...

    def read(self, name: str) -> bytes:
        """A file whole.

        Raises:
            FileNotFoundError: It is not there.
        """
        ...

    def source(self, name: str) -> Any:
        """What pyarrow reads a file from: its path, or its content.

        Raises:
            FileNotFoundError: It is not there.
        """
        ...

    def info(self, name: str) -> FileInfo | None:
        """A file's size and time; None when it is not there."""
        ...

    def files(self, prefix: str = "") -> Iterator[FileInfo]:
        """All files whose names begin with a prefix, empty or ending in `/`, in any order. Files
        that are being written are among them, under names with a dot before; locks are not."""
        ...

    def folders(self, prefix: str = "") -> list[str]:
        """The names between a prefix, empty or ending in `/`, and the next `/`, in order."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless there is one; false when there was one of other content."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, whatever was there; readers see the old or the new one whole."""
        ...

    def add(self, local: str, name: str) -> None:
        """Put a finished file of this machine there; it may be moved."""
        ...

    def scratch(self, name: str) -> AbstractContextManager[str]:
        """A path of this machine to write a file at that `add` brings to `name`."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; those that are not there count as removed."""
        ...

    def lock(self, work: str) -> AbstractContextManager[Any]:
        """That only one process does a kind of work in the tree.

        Raises:
            PipelineError: Another process holds it; the message names that.
        """
        ...
