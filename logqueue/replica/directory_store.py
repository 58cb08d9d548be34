"""A directory as an object store: a disk, or one that is mounted from elsewhere.

Owns: how objects are files, such that creating and replacing on condition holds between processes
and machines, that no reader sees half an object, and that what was written survives a power cut.
Must not know: what the objects mean.

    KEY                     an object as it was created or put
    KEY~/00…02, KEY~/00…03  what it was replaced by, in order: the highest number is the object
    .drafts/                objects that are being written

An object is created by giving a synced draft its name with `link`, which fails when the name is
taken; that holds on network file systems, too. Replacing version n is creating n + 1. So there are
no locks, and no process that is stopped at any step holds up others.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import NamedTuple

from logqueue.replica.object_store import (
    ObjectChanged,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    StoredObject,
    StoreRefused,
    StoreUnavailable,
)
from wal import CANNOT_LINK

DRAFTS = ".drafts"
DRAFT_AGE_MAX_S = 24 * 3600
"""A draft this old is of a process that has ended."""

VERSIONS_KEPT = 16
"""A version is removed when it is this many behind the newest."""

_VERSIONS = "~"
_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*\Z")

# A refusal by the file system that the next try would meet, too.
_REFUSED = CANNOT_LINK | {errno.EACCES, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR}


class _Newest(NamedTuple):
    """The version of an object that counts; `number` is 1 for the file under its own name."""

    number: int
    path: str


class DirectoryStore:
    """Objects as files below a directory. May be used from any thread."""

    def __init__(self, root: str) -> None:
        """Name the directory; it is made by the first write."""
        self._root = os.path.abspath(root)
        self._drafts = os.path.join(self._root, DRAFTS)
        self._own = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._counter = count(1)

    @property
    def url(self) -> str:
        """See ObjectStore."""
        return f"file://{self._root}"

    def create(self, key: str, data: bytes) -> str:
        """See ObjectStore."""
        path = self._path(key)
        with self._reported(key), self._draft(data) as draft:
            self._make_directory(os.path.dirname(path))
            if not _link(draft, path):
                raise ObjectExists(f"{self.url}/{key} is there already")
            return _version(1, os.stat(draft))

    def replace(self, key: str, data: bytes, version: str) -> str:
        """See ObjectStore."""
        with self._reported(key), self._draft(data) as draft:
            newest = self._newest(key)
            if newest is None or _version_of(newest) != version:
                raise ObjectChanged(f"{self.url}/{key} has changed since it was read")
            self._add_version(key, draft, newest.number + 1)
            return _version(newest.number + 1, os.stat(draft))

    def put(self, key: str, data: bytes) -> None:
        """See ObjectStore."""
        path = self._path(key)
        with self._reported(key), self._draft(data) as draft:
            newest = self._newest(key)
            if newest is None or newest.number == 1:
                self._make_directory(os.path.dirname(path))
                os.rename(draft, path)
                _sync_directory(os.path.dirname(path))
                return
        while True:
            try:
                self.replace(key, data, self.get(key).version)
                return
            except ObjectChanged:
                continue

    def get(self, key: str) -> StoredObject:
        """See ObjectStore."""
        with self._reported(key), self._opened(key) as (number, file):
            found = os.fstat(file)
            return StoredObject(_pread(file, 0, found.st_size), _version(number, found))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        with self._reported(key), self._opened(key) as (_, file):
            return _pread(file, start, length)

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """See ObjectStore."""
        with self._reported(prefix):
            yield from self._listed("", prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        """See ObjectStore."""
        directories = set()
        for key in keys:
            path = self._path(key)
            with self._reported(key):
                with suppress(FileNotFoundError):
                    os.unlink(path)
                    directories.add(os.path.dirname(path))
                with suppress(FileNotFoundError, NotADirectoryError):
                    for name in sorted(os.listdir(path + _VERSIONS)):
                        os.unlink(os.path.join(path + _VERSIONS, name))
                    os.rmdir(path + _VERSIONS)
        for directory in directories:
            with self._reported(""):
                _sync_directory(directory)

    # -- files -----------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        if not _KEY.match(key):
            raise StoreRefused(f"{self.url}: not a key: {key!a}")
        return os.path.join(self._root, key)

    def _newest(self, key: str) -> _Newest | None:
        path = self._path(key)
        try:
            numbers = [int(name) for name in os.listdir(path + _VERSIONS) if name.isdigit()]
        except FileNotFoundError:
            numbers = []
        if numbers:
            return _Newest(max(numbers), _version_path(path, max(numbers)))
        return _Newest(1, path) if os.path.isfile(path) else None

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, int]]:
        """The newest version of an object: its number, and an open file."""
        while True:
            newest = self._newest(key)
            if newest is None:
                raise ObjectMissing(f"{self.url}/{key} is not there")
            try:
                file = os.open(newest.path, os.O_RDONLY | os.O_CLOEXEC)
                break
            except FileNotFoundError:
                continue  # replaced many times meanwhile, or removed
        try:
            yield newest.number, file
        finally:
            os.close(file)

    def _add_version(self, key: str, draft: str, number: int) -> None:
        path = self._path(key)
        self._make_directory(path + _VERSIONS)
        if not _link(draft, _version_path(path, number)):
            raise ObjectChanged(f"{self.url}/{key} has changed since it was read")
        numbers = sorted(int(name) for name in os.listdir(path + _VERSIONS) if name.isdigit())
        for old in numbers:
            if old <= numbers[-1] - VERSIONS_KEPT:
                with suppress(FileNotFoundError):
                    os.unlink(_version_path(path, old))
        if number <= numbers[-1] - VERSIONS_KEPT:
            # The number was free either because it came next, long ago by now, or because the
            # version that had it was removed.
            raise StoreUnavailable(f"{self.url}/{key}: replaced by others many times meanwhile")

    @contextmanager
    def _draft(self, data: bytes) -> Iterator[str]:
        """A synced file that has no key yet."""
        number = next(self._counter)
        if number == 1:
            self._make_directory(self._drafts)
            self._remove_old_drafts()
        path = os.path.join(self._drafts, f"{self._own}-{number}")
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        try:
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(file, rest) :]
                os.fsync(file)
            finally:
                os.close(file)
            yield path
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _remove_old_drafts(self) -> None:
        oldest = time.time() - DRAFT_AGE_MAX_S
        for entry in os.scandir(self._drafts):
            with suppress(FileNotFoundError):
                if entry.stat().st_mtime < oldest:
                    os.unlink(entry.path)

    def _make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        self._make_directory(parent)
        with suppress(FileExistsError):
            os.mkdir(path, 0o750)
        _sync_directory(parent)

    def _listed(self, folder: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Objects below a folder; its name ends with a slash, or is empty."""
        try:
            entries = [*os.scandir(os.path.join(self._root, folder))]
        except (FileNotFoundError, NotADirectoryError):
            return
        for name, entry in sorted((e.name + "/" * e.is_dir(), e) for e in entries):
            key = folder + name
            if name.startswith(".") or name.endswith(f"{_VERSIONS}/"):
                continue
            if name.endswith("/"):
                may_match = key.startswith(prefix) or prefix.startswith(key)
                # All keys in there are greater than the folder's name, and less than its end.
                if may_match and (key > after or after.startswith(key)):
                    yield from self._listed(key, prefix, after)
            elif key.startswith(prefix) and key > after:
                with suppress(FileNotFoundError):
                    newest = self._newest(key)
                    found = os.stat(newest.path) if newest else entry.stat()
                    yield ObjectInfo(key, found.st_size, found.st_mtime_ns // 1_000_000)

    @contextmanager
    def _reported(self, key: str) -> Iterator[None]:
        """Turns errors of the file system into those of a store.

        Raises:
            StoreRefused: The next try would fail, too; nothing was written.
            StoreUnavailable: Any other.
        """
        try:
            yield
        except OSError as error:
            why = f"{self.url}/{key}: {error.strerror or error}"
            if error.errno in CANNOT_LINK:
                why += " (this file system cannot link files: use another, or an object store)"
            kind = StoreRefused if error.errno in _REFUSED else StoreUnavailable
            raise kind(why) from error


def _link(draft: str, path: str) -> bool:
    """Give a draft its name, durably; False when it is taken."""
    try:
        os.link(draft, path)
    except FileExistsError:
        # A network file system may have done it, lost the reply, and tried again.
        if os.stat(draft).st_nlink < 2:
            return False
    _sync_directory(os.path.dirname(path))
    return True


def _sync_directory(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _pread(file: int, start: int, length: int) -> bytes:
    parts: list[bytes] = []
    while length and (part := os.pread(file, length, start)):
        parts.append(part)
        start += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _version_path(path: str, number: int) -> str:
    return f"{path}{_VERSIONS}/{number:020d}"


def _version(number: int, found: os.stat_result) -> str:
    # A put gives the file under the key itself other bytes; all others keep theirs.
    return f"{number}-{found.st_ino}-{found.st_mtime_ns}"


def _version_of(newest: _Newest) -> str:
    return _version(newest.number, os.stat(newest.path))
