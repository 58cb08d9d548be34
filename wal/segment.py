"""One segment file: its name, its space, its bytes in order, its seal.

Owns the place of the next frame, and how much of the file is allocated. Must not know what is
pending, who waits, or which other segments there are. A Segment is shared by two parties:
appenders move `end`, `last` and `allocated` under the lock of the log, and the committer alone
touches the file's bytes and `header_durable`.
"""

import os
import re
import threading
from contextlib import suppress
from typing import Final, NamedTuple

from wal.files import CANNOT_ALLOCATE, NO_SPACE, File, FileSystem
from wal.format import HEADER_BYTES, SegmentHeader, encode_header, salt_of

SUFFIX: Final = ".wal"
_NAME: Final = re.compile(r"(\d{20})\.wal", re.ASCII)
# The size of an allocation in a file system that cannot allocate: nothing is ever refused.
_UNBOUNDED: Final = 1 << 62


class SegmentInfo(NamedTuple):
    """A segment as `Log.segments` tells it.

    Attributes:
        id: from 1; its file is named after it.
        path: of the file.
        first: number of the first frame in it, or of the next one if it has none.
        bytes: in use, header included, preallocation not.
        sealed: whether it takes no more frames.
        last: number of the last frame in it; below `first` if it has none.
        header_durable: whether its header is durable, and with it all of the segments before.
    """

    id: int
    path: str
    first: int
    bytes: int
    sealed: bool
    last: int
    header_durable: bool


def segment_path(directory: str, id: int) -> str:
    """Where segment `id` lives."""
    assert id >= 1
    return os.path.join(directory, f"{id:020d}{SUFFIX}")


def segment_ids(fs: FileSystem, directory: str) -> list[int]:
    """Ids of the segment files in a directory, ascending; other names are passed over."""
    matches = (_NAME.fullmatch(name) for name in fs.listdir(directory))
    return sorted(int(match[1]) for match in matches if match and int(match[1]) >= 1)


def read_whole(fs: FileSystem, path: str) -> bytes:
    """All bytes of a segment file."""
    file = fs.open(path)
    try:
        size = file.size()
        # A disk gives a range it knows of faster than one that is asked for bit by bit.
        file.will_read(0, size)
        return file.pread(size, 0)
    finally:
        file.close()


class LogSegment:
    """A segment that can be appended to, or was until it was sealed.

    Attributes:
        id: Its number among the segments, from 1.
    """

    __slots__ = (
        "_file",
        "_space",
        "allocated",
        "end",
        "first",
        "header",
        "header_durable",
        "id",
        "last",
        "path",
        "salt",
    )

    def __init__(self, header: SegmentHeader, path: str, file: File | None) -> None:
        """An empty segment of which not even the header is written. `file` is None if sealed."""
        self.header = header
        self.id = header.id
        self.path = path
        self.first = header.first
        self.last = header.first - 1
        self.end = HEADER_BYTES
        self.allocated = 0
        self.header_durable = False
        self.salt = salt_of(header.identity, header.id)
        self._file = file
        # Held while another thread than the appender's allocates, and while the file is cut or
        # closed.
        self._space = threading.Lock()

    @classmethod
    def recovered(
        cls, header: SegmentHeader, path: str, file: File | None, last: int, end: int
    ) -> "LogSegment":
        """A segment as recovery found it: header durable, frames up to `last` ending at `end`."""
        assert end >= HEADER_BYTES
        assert last >= header.first - 1
        segment = cls(header, path, file)
        segment.last = last
        # What is allocated behind `end` is allocated again: repeating that costs nothing.
        segment.end = segment.allocated = end
        segment.header_durable = True
        return segment

    @property
    def empty(self) -> bool:
        """Whether no frame was ever given to it."""
        return self.last < self.first

    def info(self, is_sealed: bool) -> SegmentInfo:
        """This segment as the owner of the log sees it."""
        return SegmentInfo(
            self.id, self.path, self.first, self.end, is_sealed, self.last, self.header_durable
        )

    def reserve(self, needed: int, wished: int) -> None:
        """Make sure that the first `needed` bytes of the file have disk space.

        Args:
            needed: bytes from the start of the file.
            wished: allocate up to here if it can be had; at least `needed`.

        Raises:
            OSError: there is no space for `needed`; `allocated` is as before.
        """
        assert wished >= needed
        if needed <= self.allocated:
            return
        refusal: OSError | None = None
        for target in (wished, needed):
            try:
                self.file.allocate(self.allocated, target - self.allocated)
            except OSError as error:
                if error.errno in CANNOT_ALLOCATE:
                    self.allocated = _UNBOUNDED
                    return
                refusal = error
            else:
                self.allocated = target
                return
        assert refusal is not None
        raise refusal

    def reserve_ahead(self, start: int, stop: int) -> bool:
        """Allocate a range ahead of need, in a thread of its own; False on failure.

        `allocated` is for the caller to move, under the lock of the log.
        """
        with self._space:
            if self._file is None:
                return False
            try:
                self._file.allocate(start, stop - start)
            except OSError:
                # An append that needs the space reports it.
                return False
            return True

    def reserve_after(self, old: "LogSegment", needed: int, wished: int) -> None:
        """`reserve` for the successor of a segment that is about to be sealed.

        On a full disk, what the old one holds back unused may be the very space that is needed.
        """
        held = old.allocated
        try:
            self.reserve(needed, wished)
        except OSError as error:
            if error.errno not in NO_SPACE or not old.give_back():
                raise
            try:
                self.reserve(needed, needed)
            except OSError:
                # Not enough either; frames may still go where the old segment had space.
                with suppress(OSError):
                    old.reserve(held, held)
                raise

    def give_back(self) -> bool:
        """Free allocated space that no frame uses; False when there is none.

        Raises:
            OSError: As the file system does; nothing was changed.
        """
        if not self.end < self.allocated < _UNBOUNDED or not self.header_durable:
            return False
        with self._space:
            self.file.truncate(self.end)
        self.allocated = self.end
        return True

    @property
    def file(self) -> File:
        """The open file of a segment that is not sealed."""
        assert self._file is not None, "the segment is sealed"
        return self._file

    def take(self, file: File) -> None:
        """Have a file to write to, which makes it the active segment."""
        assert self._file is None
        self._file = file

    def begin(self) -> None:
        """Write and sync the header (and so the name), which no frame may precede."""
        assert not self.header_durable
        self.file.pwrite(encode_header(self.header), 0)
        self.file.sync()
        self.header_durable = True

    def write(self, data: bytes, offset: int) -> None:
        """Write frames at `offset`."""
        assert self.header_durable
        assert offset >= HEADER_BYTES
        assert offset + len(data) <= self.end
        assert self._file is not None, "the segment is sealed"
        self._file.pwrite(data, offset)

    def sync(self) -> None:
        """Make everything written so far durable."""
        assert self.header_durable
        self.file.sync()

    def seal(self) -> None:
        """Give back unused space, sync, close. Everything was written."""
        assert self.header_durable
        with self._space:
            self.file.truncate(self.end)
            self.file.sync()
            self._close()

    def close(self) -> None:
        """Close the file as it is."""
        with self._space:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
