"""The seam between the log and the disk, and the real disk behind it.

Owns the FileSystem and File protocols, OsFileSystem, the directory lock, and two duties that are
easy to forget elsewhere: the first sync of a new file also syncs its directory, and short reads
and writes are carried on. Must not know segments or frames.
"""

import contextlib
import errno
import fcntl
import os
from typing import Final, Protocol

# What a refusal for want of space looks like, and what a file system says that cannot allocate.
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
CANNOT_ALLOCATE: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
# What a file system says that cannot give this file a second name there.
CANNOT_LINK: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
)


class File(Protocol):
    """An open file. Every method may raise OSError."""

    def pread(self, length: int, offset: int) -> bytes:
        """Read `length` bytes at `offset`; fewer only at the end of the file."""

    def will_read(self, offset: int, length: int) -> None:
        """Say what is read soon, so that it need not be waited for. Does not wait for the disk."""

    def pwrite(self, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`."""

    def size(self) -> int:
        """Size in bytes, preallocated space included."""

    def allocate(self, offset: int, length: int) -> None:
        """Get disk space for a range, growing the file with zeros; what is there stays."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def sync(self) -> None:
        """Make data, size and (the first time) the name of the file survive a power cut."""

    def close(self) -> None:
        """Close; makes nothing durable."""


class DirectoryLock(Protocol):
    """The exclusive hold on a log directory, with a note that outlives the holder."""

    def note(self) -> str:
        """What the last holder left."""

    def set_note(self, text: str) -> None:
        """Leave a note; it is not synced."""

    def release(self) -> None:
        """Release it."""

    def take_back(self) -> None:
        """Release it, and remove the file if this lock created it."""


class FileSystem(Protocol):
    """Everything the log asks of a file system. Paths are plain strings."""

    def open(self, path: str, *, writable: bool = False) -> File:
        """Open an existing file."""

    def create(self, path: str) -> File:
        """Create an empty file, emptying one that is there."""

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing `new`."""

    def link(self, old: str, new: str) -> None:
        """Give a file a second name, on the same file system; FileExistsError if it is taken."""

    def remove(self, path: str) -> None:
        """Remove a file, or this one of its names."""

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents, durably; fine if it is there."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory survive a power cut."""

    def lock(self, path: str) -> DirectoryLock:
        """Lock the file `path`, creating it; BlockingIOError with the note if it is held."""

    def boot_id(self) -> str:
        """Changes whenever unsynced bytes may have been lost; empty when that is unknown."""


class OsFile:
    """A file descriptor."""

    def __init__(self, fd: int, directory: str | None) -> None:
        """Args: `directory` is synced once, with the first sync; None for files not new."""
        assert fd >= 0
        self._fd = fd
        self._directory = directory
        self._size_changed = directory is not None

    def pread(self, length: int, offset: int) -> bytes:
        """See File."""
        assert length >= 0 and offset >= 0
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        parts, done = [data], len(data)
        while done < length and (data := os.pread(self._fd, length - done, offset + done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def will_read(self, offset: int, length: int) -> None:
        """See File."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, offset, length, os.POSIX_FADV_WILLNEED)

    def pwrite(self, data: bytes, offset: int) -> None:
        """See File."""
        assert offset >= 0
        done = os.pwrite(self._fd, data, offset)
        while done < len(data):
            wrote = os.pwrite(self._fd, memoryview(data)[done:], offset + done)
            if wrote == 0:
                raise OSError(errno.EIO, "nothing was written")
            done += wrote

    def size(self) -> int:
        """See File."""
        return os.fstat(self._fd).st_size

    def allocate(self, offset: int, length: int) -> None:
        """See File."""
        assert offset >= 0 and length > 0
        if not hasattr(os, "posix_fallocate"):
            raise OSError(errno.EOPNOTSUPP, "this system cannot allocate disk space")
        os.posix_fallocate(self._fd, offset, length)

    def truncate(self, size: int) -> None:
        """See File."""
        assert size >= 0
        os.ftruncate(self._fd, size)
        self._size_changed = True

    def sync(self) -> None:
        """See File."""
        # fdatasync need not write a size that shrank, and a cut must not come undone.
        if self._size_changed or not hasattr(os, "fdatasync"):
            _sync_fully(self._fd)
            self._size_changed = False
        else:
            os.fdatasync(self._fd)
        if self._directory is not None:
            _sync_directory(self._directory)
            self._directory = None

    def close(self) -> None:
        """See File."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsLock:
    """flock on a small file; it dies with the process."""

    def __init__(self, fd: int, path: str, *, new: bool) -> None:
        self._fd = fd
        self._path = path
        self._new = new

    def note(self) -> str:
        """See DirectoryLock."""
        return os.pread(self._fd, 200, 0).decode("ascii", "replace").strip()

    def set_note(self, text: str) -> None:
        """See DirectoryLock."""
        data = text.encode("ascii") + b"\n"
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))

    def take_back(self) -> None:
        """See DirectoryLock."""
        if self._new and self._fd >= 0:
            os.remove(self._path)
        self.release()

    def release(self) -> None:
        """See DirectoryLock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFileSystem:
    """The real thing."""

    def open(self, path: str, *, writable: bool = False) -> OsFile:
        """See FileSystem."""
        return OsFile(os.open(path, os.O_RDWR if writable else os.O_RDONLY), None)

    def create(self, path: str) -> OsFile:
        """See FileSystem."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o640)
        return OsFile(fd, os.path.dirname(path) or ".")

    def listdir(self, path: str) -> list[str]:
        """See FileSystem."""
        return sorted(os.listdir(path))

    def rename(self, old: str, new: str) -> None:
        """See FileSystem."""
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        """See FileSystem."""
        os.link(old, new)

    def remove(self, path: str) -> None:
        """See FileSystem."""
        os.remove(path)

    def mkdir(self, path: str) -> None:
        """See FileSystem."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.mkdir(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o750)
        _sync_directory(parent)

    def sync_dir(self, path: str) -> None:
        """See FileSystem."""
        _sync_directory(path)

    def lock(self, path: str) -> OsLock:
        """See FileSystem."""
        new = not os.path.exists(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
        lock = OsLock(fd, path, new=new)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            note = lock.note()
            lock.release()
            raise BlockingIOError(errno.EWOULDBLOCK, note, path) from error
        except BaseException:
            lock.release()
            raise
        return lock

    def boot_id(self) -> str:
        """See FileSystem."""
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""


def _sync_fully(fd: int) -> None:
    # On macOS fsync stops at the drive's cache; F_FULLFSYNC flushes that, too.
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(fd)
    else:
        fcntl.fcntl(fd, full)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
