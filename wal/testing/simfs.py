"""A disk in memory that can crash, fail and fill up, the same way every time for the same seed.

Owns SimFileSystem, which answers to the FileSystem protocol. Must not know segments or frames.

The fault model:

    - Synced bytes and names always survive. A crash is a copy: the running instance continues.
    - In a crash each unsynced block of 512 bytes is old or new by chance, so is each unsynced size,
      and each unsynced name operation happened or not, in any order.
    - Space that was allocated reads as zeros.
    - A kill keeps everything that was handed over, and the boot id with it.
    - A write that is cut short by a crash leaves a prefix; any other operation happened or did not.
    - After a sync that failed, the blocks it should have written are forgotten: they still read
      back, but no later sync writes them. (Linux does this, hence no sync is ever tried again.)
    - A second name is a name like others; all names of a file lead to the same bytes.
    - Directories themselves are durable at once; the log makes one, at the very start.
"""

import errno
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from random import Random
from typing import Final, NamedTuple

BLOCK_BYTES: Final = 512


class Op(NamedTuple):
    """One operation, as counted. `number` begins at 1."""

    number: int
    kind: str
    path: str
    offset: int = 0
    length: int = 0


class SimCrash(BaseException):
    """The world stopped; only the clones of the disk go on."""


class _SimNode:
    """A file: what programs see, and what the disk holds."""

    __slots__ = ("data", "dirty", "synced")

    def __init__(self, data: bytes | bytearray = b"", synced: bytes | bytearray = b"") -> None:
        self.data = bytearray(data)
        self.synced = bytearray(synced)
        self.dirty: set[int] = set()

    def write(self, data: bytes, offset: int) -> None:
        """Change what programs see."""
        self.grow(offset)
        self.data[offset : offset + len(data)] = data
        self.soil(offset, offset + len(data))

    def grow(self, size: int) -> None:
        """Add zeros up to `size`."""
        if size > len(self.data):
            self.data.extend(bytes(size - len(self.data)))

    def cut(self, size: int) -> None:
        """Shrink; what is behind may come back in a crash, even if the file grew again."""
        self.soil(size, len(self.data))
        del self.data[size:]

    def soil(self, start: int, stop: int) -> None:
        """Mark the blocks of a range as not synced."""
        if stop > start:
            self.dirty.update(range(start // BLOCK_BYTES, (stop - 1) // BLOCK_BYTES + 1))

    def sync(self) -> None:
        """Make the disk hold what programs see."""
        self.settle(len(self.data), sorted(self.dirty))
        self.dirty.clear()

    def settle(self, size: int, blocks: list[int]) -> None:
        """Make the disk hold `size` and these blocks, in their order, and nothing else of what is
        not synced."""
        disk = self.synced
        del disk[size:]
        disk.extend(bytes(size - len(disk)))
        size = min(size, len(self.data))
        for first, stop in _runs(blocks):
            start, end = first * BLOCK_BYTES, min(stop * BLOCK_BYTES, size)
            if start < end:
                disk[start:end] = self.data[start:end]

    def after_crash(self, rng: Random, chance: float) -> "_SimNode":
        """Its survivor."""
        size = len(self.data) if rng.random() < chance else len(self.synced)
        disk = _SimNode(self.data, self.synced)
        disk.settle(size, [block for block in sorted(self.dirty) if rng.random() < chance])
        return _SimNode(disk.synced, disk.synced)

    def copy(self) -> "_SimNode":
        """The same, apart."""
        node = _SimNode(self.data, self.synced)
        node.dirty = set(self.dirty)
        return node


def _runs(blocks: list[int]) -> Iterator[tuple[int, int]]:
    """First and end of each run of neighbouring blocks in a sorted list."""
    at, count = 0, len(blocks)
    while at < count:
        # Within a run, number and place differ by the same.
        end = bisect_right(
            range(count), blocks[at] - at, at, key=lambda place: blocks[place] - place
        )
        yield blocks[at], blocks[end - 1] + 1
        at = end


class SimFile:
    """An open file."""

    def __init__(self, fs: "SimFileSystem", path: str, node: _SimNode, *, new: bool) -> None:
        self._fs = fs
        self._path = path
        self._node = node
        self._new = new

    def pread(self, length: int, offset: int) -> bytes:
        """See File."""
        self._fs.count("pread", self._path, offset, length)
        return bytes(self._node.data[offset : offset + length])

    def will_read(self, offset: int, length: int) -> None:
        """See File. Everything is in memory."""

    def pwrite(self, data: bytes, offset: int) -> None:
        """See File."""
        stopped = self._fs.crashed
        try:
            self._fs.count("pwrite", self._path, offset, len(data))
        except SimCrash:
            if stopped:
                raise
            prefix = self._fs.rng.randrange(len(data) + 1)
            self._node.write(data[:prefix], offset)
            raise
        self._fs.make_space(offset + len(data) - len(self._node.data))
        self._node.write(data, offset)

    def size(self) -> int:
        """See File."""
        return len(self._node.data)

    def allocate(self, offset: int, length: int) -> None:
        """See File."""
        assert length > 0
        self._fs.count("allocate", self._path, offset, length)
        self._fs.make_space(offset + length - len(self._node.data))
        self._node.grow(offset + length)

    def truncate(self, size: int) -> None:
        """See File."""
        self._fs.count("truncate", self._path, size)
        self._node.cut(size)
        self._node.grow(size)

    def sync(self) -> None:
        """See File."""
        try:
            self._fs.count("sync", self._path)
        except OSError:
            self._node.dirty.clear()
            raise
        self._node.sync()
        if self._new:
            self._fs.sync_dir(os.path.dirname(self._path))
            self._new = False

    def close(self) -> None:
        """See File."""


class SimLock:
    """The lock, and the note in it, which is never synced."""

    def __init__(self, fs: "SimFileSystem", path: str, node: _SimNode, *, new: bool) -> None:
        self._fs = fs
        self._path = path
        self._node = node
        self._new = new

    def note(self) -> str:
        """See DirectoryLock."""
        return bytes(self._node.data).decode("ascii", "replace").strip("\0")

    def set_note(self, text: str) -> None:
        """See DirectoryLock."""
        self._fs.count("note", self._path)
        self._node.cut(0)
        self._node.write(text.encode("ascii"), 0)

    def take_back(self) -> None:
        """See DirectoryLock."""
        if self._new:
            self._fs.remove(self._path)
        self.release()

    def release(self) -> None:
        """See DirectoryLock."""
        self._fs.locked.discard(self._path)


class SimFileSystem:
    """The disk.

    Attributes:
        rng: decides how much of a write that is cut short gets through.
        capacity_bytes: what all files together may take; None for no limit. May be changed.
        ops: operations so far.
        history: of them, in order.
        failures: how many were made to fail by `fail_when`.
        crashed: whether the world stopped.
    """

    def __init__(self, rng: Random, *, capacity_bytes: int | None = None) -> None:
        self.rng = rng
        self.capacity_bytes = capacity_bytes
        self.ops = 0
        self.history: list[Op] = []
        self.failures = 0
        self.crashed = False
        self.locked: set[str] = set()
        self._crash_at: int | None = None
        self._predicate: Callable[[Op], OSError | None] = lambda op: None
        self._boot = f"{rng.getrandbits(64):016x}"
        self._directories: set[str] = set()
        self._names: dict[str, _SimNode] = {}
        self._durable_names: dict[str, _SimNode] = {}
        # Name operations that no directory sync has covered: what each changes.
        self._unsynced: list[dict[str, _SimNode | None]] = []

    def fail_when(self, predicate: Callable[[Op], OSError | None]) -> None:
        """From now on an operation fails with what `predicate` returns for it, if anything."""
        self._predicate = predicate

    def crash_after(self, ops: int) -> None:
        """Let `ops` more operations happen; the one after them raises SimCrash, and all later."""
        assert ops >= 0
        self._crash_at = self.ops + ops

    def crash_clone(self, rng: Random) -> "SimFileSystem":
        """The disk as a power cut at this moment might leave it."""
        chance = rng.choice((0.0, 0.2, 0.5, 0.8, 1.0))
        clone = SimFileSystem(rng, capacity_bytes=self.capacity_bytes)
        names = dict(self._durable_names)
        for change in self._unsynced:
            if rng.random() < chance:
                _apply(names, change)
        clone._directories = set(self._directories)
        survivors: dict[int, _SimNode] = {}
        for path in sorted(names):
            node = names[path]
            if id(node) not in survivors:
                survivors[id(node)] = node.after_crash(rng, chance)
            clone._names[path] = survivors[id(node)]
        clone._durable_names = dict(clone._names)
        return clone

    def kill_clone(self) -> "SimFileSystem":
        """The disk as the death of the process at this moment leaves it."""
        clone = SimFileSystem(Random(self.rng.getrandbits(64)), capacity_bytes=self.capacity_bytes)
        copies: dict[int, _SimNode] = {}

        def copy(node: _SimNode) -> _SimNode:
            return copies.setdefault(id(node), node.copy())

        clone._boot = self._boot
        clone._directories = set(self._directories)
        clone._names = {path: copy(node) for path, node in self._names.items()}
        clone._durable_names = {path: copy(node) for path, node in self._durable_names.items()}
        clone._unsynced = [
            {path: node and copy(node) for path, node in change.items()}
            for change in self._unsynced
        ]
        return clone

    def contents(self) -> dict[str, bytes]:
        """All files as programs see them."""
        return {path: bytes(self._names[path].data) for path in sorted(self._names)}

    def count(self, kind: str, path: str, offset: int = 0, length: int = 0) -> None:
        """Count an operation that is about to happen. Raises SimCrash, or what the test wants."""
        op = Op(self.ops + 1, kind, path, offset, length)
        if self.crashed or (self._crash_at is not None and self.ops >= self._crash_at):
            self.crashed = True
            raise SimCrash(str(op))
        self.ops += 1
        self.history.append(op)
        error = self._predicate(op)
        if error is not None:
            self.failures += 1
            raise error

    def make_space(self, growth: int) -> None:
        """Refuse growth beyond the capacity."""
        if growth <= 0 or self.capacity_bytes is None:
            return
        # A file with several names takes its space once.
        files = {id(node): len(node.data) for node in self._names.values()}
        used = sum(files.values())
        if used + growth > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open(self, path: str, *, writable: bool = False) -> SimFile:
        """See FileSystem."""
        self.count("open", path)
        return SimFile(self, path, self._node(path), new=False)

    def create(self, path: str) -> SimFile:
        """See FileSystem."""
        self.count("create", path)
        node = self._names.get(path)
        if node is None:
            node = _SimNode()
            self._change({path: node})
        else:
            node.cut(0)
        return SimFile(self, path, node, new=True)

    def listdir(self, path: str) -> list[str]:
        """See FileSystem."""
        self.count("listdir", path)
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return sorted(os.path.basename(p) for p in self._names if os.path.dirname(p) == path)

    def rename(self, old: str, new: str) -> None:
        """See FileSystem."""
        self.count("rename", old)
        self._change({old: None, new: self._node(old)})

    def link(self, old: str, new: str) -> None:
        """See FileSystem."""
        self.count("link", new)
        node = self._node(old)
        if new in self._names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        self._change({new: node})

    def remove(self, path: str) -> None:
        """See FileSystem."""
        self.count("remove", path)
        self._node(path)
        self._change({path: None})

    def mkdir(self, path: str) -> None:
        """See FileSystem."""
        self.count("mkdir", path)
        self._directories.add(path)

    def sync_dir(self, path: str) -> None:
        """See FileSystem."""
        self.count("sync_dir", path)
        left: list[dict[str, _SimNode | None]] = []
        for change in self._unsynced:
            if os.path.dirname(next(iter(change))) == path:
                _apply(self._durable_names, change)
            else:
                left.append(change)
        self._unsynced = left

    def lock(self, path: str) -> SimLock:
        """See FileSystem."""
        self.count("lock", path)
        new = path not in self._names
        if new:
            self._change({path: _SimNode()})
        lock = SimLock(self, path, self._names[path], new=new)
        if path in self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, lock.note(), path)
        self.locked.add(path)
        return lock

    def boot_id(self) -> str:
        """See FileSystem."""
        return self._boot

    def _node(self, path: str) -> _SimNode:
        node = self._names.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _change(self, change: dict[str, _SimNode | None]) -> None:
        _apply(self._names, change)
        self._unsynced.append(change)


def _apply(names: dict[str, _SimNode], change: dict[str, _SimNode | None]) -> None:
    for path, node in change.items():
        if node is None:
            names.pop(path, None)
        else:
            names[path] = node
