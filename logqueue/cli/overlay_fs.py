"""A file system that only seems to change: what the log writes into it stays in memory.

Owns: the pretence, so that a log can be opened, recovered and replayed without a byte of it being
touched. Must not know: logs, segments.
"""

from __future__ import annotations

import os

from wal import File, OsFileSystem


class _MemoryFile:
    """A file that was written to."""

    def __init__(self, data: bytearray) -> None:
        self._data = data

    def pread(self, length: int, offset: int) -> bytes:
        """See File."""
        return bytes(self._data[offset : offset + length])

    def will_read(self, offset: int, length: int) -> None:
        """See File. Everything is in memory."""

    def pwrite(self, data: bytes, offset: int) -> None:
        """See File."""
        self._grow(offset)
        self._data[offset : offset + len(data)] = data

    def size(self) -> int:
        """See File."""
        return len(self._data)

    def allocate(self, offset: int, length: int) -> None:
        """See File."""
        self._grow(offset + length)

    def truncate(self, size: int) -> None:
        """See File."""
        del self._data[size:]

    def sync(self) -> None:
        """See File."""

    def close(self) -> None:
        """See File."""

    def _grow(self, size: int) -> None:
        self._data.extend(bytes(max(size - len(self._data), 0)))


class _MemoryLock:
    """A lock that excludes no other process; it has the last holder's note."""

    def __init__(self, note: str) -> None:
        self._note = note

    def note(self) -> str:
        """See DirectoryLock."""
        return self._note

    def set_note(self, text: str) -> None:
        """See DirectoryLock."""
        self._note = text

    def take_back(self) -> None:
        """See DirectoryLock."""

    def release(self) -> None:
        """See DirectoryLock."""


class UnchangingFileSystem:
    """Reads from the disk and writes to memory. Its user ensures that no process writes to the
    same directory meanwhile."""

    def __init__(self) -> None:
        self._disk = OsFileSystem()
        self._written: dict[str, bytearray] = {}
        self._gone: set[str] = set()

    def open(self, path: str, *, writable: bool = False) -> File:
        """See FileSystem."""
        if path in self._gone:
            raise FileNotFoundError(path)
        if path not in self._written:
            file = self._disk.open(path)
            if not writable:
                return file
            try:
                self._written[path] = bytearray(file.pread(file.size(), 0))
            finally:
                file.close()
        return _MemoryFile(self._written[path])

    def create(self, path: str) -> File:
        """See FileSystem."""
        self._gone.discard(path)
        self._written[path] = bytearray()
        return _MemoryFile(self._written[path])

    def listdir(self, path: str) -> list[str]:
        """See FileSystem."""
        names = set(self._disk.listdir(path)) if os.path.isdir(path) else set()
        inside = {os.path.basename(p) for p in self._written if os.path.dirname(p) == path}
        gone = {os.path.basename(p) for p in self._gone if os.path.dirname(p) == path}
        return sorted(names - gone | inside)

    def rename(self, old: str, new: str) -> None:
        """See FileSystem."""
        self.open(old, writable=True)
        self._written[new] = self._written[old]
        self._gone.discard(new)
        self.remove(old)

    def link(self, old: str, new: str) -> None:
        """See FileSystem."""
        self.open(old, writable=True)
        self._written[new] = self._written[old]
        self._gone.discard(new)

    def remove(self, path: str) -> None:
        """See FileSystem."""
        self._written.pop(path, None)
        self._gone.add(path)

    def mkdir(self, path: str) -> None:
        """See FileSystem."""

    def sync_dir(self, path: str) -> None:
        """See FileSystem."""

    def lock(self, path: str) -> _MemoryLock:
        """See FileSystem."""
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                return _MemoryLock(file.read(200).strip())
        except FileNotFoundError:
            return _MemoryLock("")

    def boot_id(self) -> str:
        """See FileSystem."""
        return self._disk.boot_id()
