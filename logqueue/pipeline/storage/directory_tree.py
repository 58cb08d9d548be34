"""Files of a local or mounted directory.

Owns: writing that is whole, durable and in its place at once; the lock of a directory. Must not
know: what files hold.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.checking import unwritable
from logqueue.pipeline.storage.tree import FileInfo


class DirectoryTree:
    """The files of a directory; see `FileTree`."""

    def __init__(self, directory: str | Path) -> None:
        """Nothing is read or made yet.

        Args:
            directory: Made absolute here, so that it means the same in every process.
        """
        self._root = os.path.abspath(directory)

    @property
    def url(self) -> str:
        """See FileTree."""
        return self._root

    @property
    def directory(self) -> str | None:
        """See FileTree."""
        return self._root

    def path(self, name: str) -> str:
        """See FileTree."""
        return os.path.join(self._root, name)

    def below(self, folder: str) -> DirectoryTree:
        """See FileTree."""
        return DirectoryTree(self.path(folder))

    def read(self, name: str) -> bytes:
        """See FileTree."""
        try:
            return Path(self.path(name)).read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(self.path(name)) from error
        except OSError as error:
            raise PipelineError(f"{self.path(name)} cannot be read: {error.strerror}") from error

    def source(self, name: str) -> str:
        """See FileTree."""
        if not os.path.exists(self.path(name)):
            raise FileNotFoundError(self.path(name))
        return self.path(name)

    def info(self, name: str) -> FileInfo | None:
        """See FileTree."""
        try:
            found = os.stat(self.path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileInfo(name, found.st_size, found.st_mtime_ns // 1_000_000)

    def files(self, prefix: str = "") -> Iterator[FileInfo]:
        """See FileTree."""
        for folder, _, names in os.walk(self.path(prefix)):
            for name in names:
                path = os.path.join(folder, name)
                if name.startswith("_lock") or os.path.islink(path):
                    continue
                with suppress(FileNotFoundError):
                    state = os.stat(path)
                    below = os.path.relpath(path, self._root).replace(os.sep, "/")
                    yield FileInfo(below, state.st_size, state.st_mtime_ns // 1_000_000)

    def folders(self, prefix: str = "") -> list[str]:
        """See FileTree."""
        try:
            with os.scandir(self.path(prefix)) as found:
                return sorted(entry.name for entry in found if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def create(self, name: str, data: bytes) -> bool:
        """See FileTree."""
        path = self.path(name)
        with self._reported(path), self.scratch(name) as draft:
            write_synced(draft, data)
            try:
                os.link(draft, path)
            except FileExistsError:
                return self.read(name) == data
            sync_directory(os.path.dirname(path))
        return True

    def replace(self, name: str, data: bytes) -> None:
        """See FileTree."""
        with self._reported(self.path(name)), self.scratch(name) as draft:
            write_synced(draft, data)
            self.add(draft, name)

    def add(self, local: str, name: str) -> None:
        """See FileTree."""
        path = self.path(name)
        with self._reported(path):
            make_directory(os.path.dirname(path))
            with open(local, "rb") as file:
                os.fsync(file.fileno())
            try:
                os.replace(local, path)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                # Another file system: copied to beside its place, then renamed.
                with self.scratch(name) as draft:
                    shutil.copyfile(local, draft)
                    self.add(draft, name)
                os.unlink(local)
            sync_directory(os.path.dirname(path))

    @contextmanager
    def scratch(self, name: str) -> Iterator[str]:
        """See FileTree; beside the place of the file, so that a rename puts it there."""
        folder, _, last = self.path(name).rpartition("/")
        with self._reported(folder):
            make_directory(folder)
        draft = os.path.join(folder, f".{last[:100]}.{uuid.uuid4().hex[:12]}.tmp")
        try:
            yield draft
        finally:
            with suppress(OSError):
                os.unlink(draft)

    def remove(self, names: Iterable[str]) -> None:
        """See FileTree; directories that become empty go, too."""
        folders = set()
        for name in names:
            with self._reported(self.path(name)), suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(self.path(name))
            folders.add(os.path.dirname(self.path(name)))
        for folder in folders:
            while folder != self._root and folder.startswith(self._root):
                try:
                    os.rmdir(folder)
                except OSError:
                    break
                folder = os.path.dirname(folder)

    def lock(self, work: str) -> DirectoryTreeLock:
        """See FileTree."""
        return DirectoryTreeLock(self._root, work)

    @contextmanager
    def _reported(self, path: str) -> Iterator[None]:
        """Turns a failed write into a refusal that names the machine: it may be an executor."""
        try:
            yield
        except OSError as error:
            raise unwritable(path, error) from error


class DirectoryTreeLock:
    """That only one process does a kind of work in a directory. Use it as a context manager.

    The system releases it when its holder ends, however it ends: a lock file left over
    blocks no other process.
    """

    def __init__(self, root: str, work: str) -> None:
        self._root = root
        self._work = work
        self._number: int | None = None

    def __enter__(self) -> Self:
        """Take it.

        Raises:
            PipelineError: Another process holds it; the message names that.
        """
        try:
            make_directory(self._root)
            path = os.path.join(self._root, f"_lock-{self._work}")
            number = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise PipelineError(
                f"{self._root} cannot be written: {error.strerror}; choose another directory"
            ) from error
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(number, 1000).decode("utf-8", "replace").strip() or "another process"
            os.close(number)
            raise PipelineError(
                f"{holder} is working on {self._root} ({self._work}): wait for it, or end it"
            ) from error
        os.ftruncate(number, 0)
        os.write(number, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        self._number = number
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._number is not None:
            os.close(self._number)
            self._number = None


def make_directory(path: str) -> None:
    """Make a directory and those above it, on the disk when this returns."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_directory(above)
    with suppress(FileExistsError):
        os.mkdir(path)
    sync_directory(above)


def write_synced(path: str, data: bytes) -> None:
    """Write a file, on the disk when this returns."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: str) -> None:
    """Put a directory's names onto the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
