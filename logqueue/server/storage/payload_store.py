"""Record data in the segment files of the jobs log instead of in memory.

Owns: which blocks have their data in memory still and where their frames are, the move from memory
to the file once a segment is sealed, checked reads, the bounded cache, open files. Must not know:
topics, events, who reads.

A block that enters the state with its frame is held in two parts (`events/split_block`); small
ones, and those without a frame, stay whole. When the segment is sealed, `offload` takes a checksum
of each page of the data and frees the memory. From then on data is read with `pread`, page by page,
and each page is compared with its checksum: damage and I/O errors are a `StorageUnreadable` for
the request of that record. (A memory map would end the process with a signal instead, and would
deliver damaged bytes as if they were good.)

Threads: `in_frame` and `keep` are for logging and replay; `read` and all else may be called
from any thread.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Generator, Sequence
from itertools import accumulate
from struct import Struct
from threading import Lock
from typing import NamedTuple
from weakref import ref
from zlib import crc32

from logqueue.errors import StorageUnreadable
from logqueue.events import split_block
from logqueue.events.split_block import Block, BlockData, DataSource, data_bounds, split
from wal import File, FileSystem, segment_path

PAGE_BYTES = 64 << 10
"""Data that has one checksum, and is read and kept together."""

CACHE_BYTES_MAX = 32 << 20
OPEN_FILES_MAX = 64
AHEAD_BYTES = 8 << 20
"""What is read ahead when a segment is read from front to back."""

STEP_BYTES = 1 << 20
STEP_BLOCKS = 64
_ENTRY_BYTES = 150

logger = logging.getLogger("logqueue.payloads")


class _Unsealed(NamedTuple):
    """A block whose segment still grows; `offset` is where its data begins in the file."""

    data: ref[BlockData]
    offset: int


class PayloadFile:
    """A segment that data is read from. Its file is opened when it is needed.

    Attributes:
        id: Of the segment.
        is_pinned: Whether the file has to stay open because its name is about to go.
    """

    __slots__ = ("_ahead", "_file", "_fs", "_path", "_read_to", "id", "is_pinned")

    def __init__(self, fs: FileSystem, path: str, id: int) -> None:
        self.id = id
        self.is_pinned = False
        self._fs = fs
        self._path = path
        self._file: File | None = None
        # Where the last read ended, and up to where the system was asked to read.
        self._read_to = self._ahead = 0

    def note_read(self, offset: int, end: int) -> None:
        """A part was read: a reader that continues after it finds what follows in memory.

        Raises:
            OSError: As the file system does.
        """
        goes_on = 0 <= offset - self._read_to <= PAGE_BYTES
        self._read_to = end
        if not goes_on:
            self._ahead = end
        elif end + AHEAD_BYTES // 2 > self._ahead:
            self.open().will_read(max(self._ahead, end), AHEAD_BYTES)
            self._ahead = max(self._ahead, end) + AHEAD_BYTES

    def open(self) -> File:
        """The open file.

        Raises:
            OSError: As the file system does.
        """
        if self._file is None:
            self._file = self._fs.open(self._path)
        return self._file

    def close(self) -> None:
        """Close the file, if it is open."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __del__(self) -> None:
        # A segment was dropped, and now the last one who could read from it is gone, too.
        self.close()


class _StoredData:
    """The data of one block in a segment file.

    Attributes:
        sums: The checksum of each page.
    """

    __slots__ = ("_file", "_length", "_offset", "_store", "_sums")

    def __init__(
        self,
        store: PayloadStore,
        file: PayloadFile,
        offset: int,
        length: int,
        sums: tuple[int, ...],
    ) -> None:
        self._store = store
        self._file = file
        self._offset = offset
        self._length = length
        self._sums = sums

    def read(self, start: int, end: int) -> bytes:
        """See DataSource."""
        if start >= end:
            return b""
        first, last = start // PAGE_BYTES, (end - 1) // PAGE_BYTES
        pages = self._store.pages(
            self._file, self._offset, self._length, self._sums, first, last + 1
        )
        start -= first * PAGE_BYTES
        end -= last * PAGE_BYTES
        if first == last:
            return pages[0][start:end]
        return b"".join((pages[0][start:], *pages[1:-1], pages[-1][:end]))


class _GatheredData:
    """The data of one block, in several places of a segment file."""

    __slots__ = ("_file", "_offset", "_spans", "_store", "_sums")

    def __init__(
        self, store: PayloadStore, file: PayloadFile, offset: int, spans: bytes, sums: bytes
    ) -> None:
        self._store = store
        self._file = file
        self._offset = offset
        self._spans = spans
        self._sums = sums

    def read(self, start: int, end: int) -> bytes:
        """See DataSource."""
        if start >= end:
            return b""
        return self._store.gather(self._file, self._offset, self._spans, self._sums, start, end)


def _elsewhere(length: int, source: DataSource) -> BlockData:
    """Data that was never in memory."""
    data = BlockData(b"", 0, length)
    data.move_to(source)
    return data


def page_sums(data: memoryview) -> tuple[int, ...]:
    """The checksum of each page of a block's data."""
    return tuple(crc32(data[at : at + PAGE_BYTES]) for at in range(0, len(data), PAGE_BYTES))


def find_block(payload: bytes, block: bytes, start: int) -> int:
    """Where a block begins in a payload, looked for from `start` on and then from the beginning; -1
    when it is not there."""
    needle = block[:64]
    for begin in (start, 0) if start else (0,):
        at = payload.find(needle, begin)
        while at >= 0:
            if payload.startswith(block, at):
                return at
            at = payload.find(needle, at + 1)
    return -1


class PayloadStore:
    """The data of one server's records, as far as it is in segment files.

    Attributes:
        reads: Reads from files.
        read_bytes: What they gave.
        failures: Pages that could not be read, or failed their checksum.
        waiting_bytes: About how much data waits in memory for its segment to be sealed.
        cached_bytes: What the cache holds.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        """Of the jobs log in a directory."""
        self.reads = 0
        self.read_bytes = 0
        self.failures = 0
        self.waiting_bytes = 0
        self.cached_bytes = 0
        self._fs = fs
        self._directory = directory
        self._lock = Lock()
        self._files: dict[int, PayloadFile] = {}
        self._open: OrderedDict[int, PayloadFile] = OrderedDict()
        # By segment and offset in it: a page, or all data of a block that is in several places.
        # Segments are never numbered again.
        self._cache: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._waiting: dict[int, list[_Unsealed]] = {}
        self._sizes: dict[int, int] = {}
        self._complained: set[int] = set()
        self._frame: tuple[int, int, Sequence[bytes]] = (0, 0, ())
        self._searched = 0

    # -- in memory -------------------------------------------------------------------------------

    def in_frame(self, segment: int, offset: int, parts: Sequence[bytes]) -> None:
        """Say where the blocks are that `keep` gets next: in this payload, which begins at this
        offset of this segment."""
        self._frame = segment, offset, parts
        self._searched = 0

    def keep(self, block: Block, segment: int) -> Block:
        """See BlockKeeper."""
        if not isinstance(block, bytes):
            return block
        smallest = split_block.SPLIT_FROM_BYTES
        if len(block) < smallest or not segment:
            return block
        base, length = data_bounds(block)
        if length < smallest:
            return block
        place = self._find(block, segment)
        if place is None:
            return block
        parts = split(block)
        self._waiting.setdefault(segment, []).append(_Unsealed(ref(parts.data), place + base))
        self._sizes[segment] = self._sizes.get(segment, 0) + length
        self.waiting_bytes += length
        return parts

    def _find(self, block: bytes, segment: int) -> int | None:
        """Where a block begins in the file of a segment; None when it is not in the frame."""
        found, offset, parts = self._frame
        if found != segment:
            return None
        for part in parts:
            if part is block:
                return offset
            if len(part) > len(block):
                # Blocks are asked for in the order of the frame, so the search continues there.
                at = find_block(part, block, self._searched)
                if at >= 0:
                    self._searched = at + len(block)
                    return offset + at
            offset += len(part)
        return None

    def stored(self, segment: int, offset: int, length: int, sums: tuple[int, ...]) -> BlockData:
        """Data that is in a sealed segment, and was not read.

        Args:
            segment: Its id.
            offset: Where the data begins in its file.
            length: Of the data, in bytes.
            sums: The checksum of each page.
        """
        file = self._file(segment)
        return _elsewhere(length, _StoredData(self, file, offset, length, sums))

    def gathered(
        self, segment: int, offset: int, length: int, spans: bytes, sums: bytes
    ) -> BlockData:
        """The same of data that is in several places of a sealed segment.

        Args:
            segment: Its id.
            offset: Where the first of these places is in its file.
            length: Of all the data, in bytes.
            spans: Of each place how many bytes are in front of it, and how many it has (u32 each).
            sums: The checksum of each part (u32 each).
        """
        file = self._file(segment)
        return _elsewhere(length, _GatheredData(self, file, offset, spans, sums))

    def _file(self, segment: int) -> PayloadFile:
        with self._lock:
            file = self._files.get(segment)
            if file is None:
                path = segment_path(self._directory, segment)
                file = self._files[segment] = PayloadFile(self._fs, path, segment)
            return file

    @property
    def waiting(self) -> list[int]:
        """Segments with data that is still in memory, oldest first."""
        return sorted(self._waiting)

    # -- to the file -----------------------------------------------------------------------------

    def offload(self, segment: int) -> Generator[None, None, None]:
        """Free the memory of a segment's data. Its file must be complete, and must stay as it is.

        Yields:
            After about a millisecond of work each.
        """
        with self._lock:
            file = self._files.get(segment)
            if file is None:
                path = segment_path(self._directory, segment)
                file = PayloadFile(self._fs, path, segment)
            try:
                # Once it is open it can be read, even if its name goes right now.
                self._opened(file)
            except FileNotFoundError:
                self._forget(segment)
                return
            except OSError:
                # Too many open files, for instance: there is a next time.
                return
            self._files[segment] = file
            waiting = self._waiting.get(segment, [])
            self._forget(segment)
        size = 0
        for number, (data_ref, offset) in enumerate(waiting, 1):
            data = data_ref()
            held = data.in_memory if data is not None else None
            if data is None or held is None:
                continue
            data.move_to(_StoredData(self, file, offset, data.length, page_sums(held)))
            size += data.length
            del data, held
            if size >= STEP_BYTES or number % STEP_BLOCKS == 0:
                size = 0
                yield

    def _forget(self, segment: int) -> None:
        """Nothing of a segment waits any longer."""
        self._waiting.pop(segment, None)
        self.waiting_bytes -= self._sizes.pop(segment, 0)

    # -- from the file ---------------------------------------------------------------------------

    def pages(
        self,
        file: PayloadFile,
        offset: int,
        length: int,
        sums: Sequence[int],
        first: int,
        stop: int,
    ) -> list[bytes]:
        """Pages of a block's data, checked.

        Args:
            file: Where it is.
            offset: Where the data begins in the file.
            length: Of the data, in bytes.
            sums: The checksum of each page.
            first, stop: From which page up to, but without, which.

        Raises:
            StorageUnreadable: A page cannot be read, or is damaged.
        """
        with self._lock:
            found: list[bytes | None] = []
            for page in range(first, stop):
                key = file.id, offset + page * PAGE_BYTES
                data = self._cache.get(key)
                if data is not None:
                    self._cache.move_to_end(key)
                found.append(data)
            missing = [page for page, data in enumerate(found, first) if data is None]
            if missing:
                begin = missing[0] * PAGE_BYTES
                end = min((missing[-1] + 1) * PAGE_BYTES, length)
                data = self._read(file, offset + begin, end - begin)
                for page in missing:
                    at = page * PAGE_BYTES - begin
                    part = data[at : at + PAGE_BYTES]
                    if crc32(part) != sums[page]:
                        raise self._unreadable(file, offset + begin + at, "its checksum is wrong")
                    found[page - first] = part
                    self._remember((file.id, offset + begin + at), part)
        return [data for data in found if data is not None]

    def gather(
        self, file: PayloadFile, offset: int, spans: bytes, sums: bytes, start: int, end: int
    ) -> bytes:
        """Data of a block that is in several places, from one offset up to another, checked.

        Args:
            file, offset, spans, sums: See `gathered`.
            start, end: Within the data.

        Raises:
            StorageUnreadable: A part cannot be read, or is damaged.
        """
        key = file.id, offset
        with self._lock:
            data = self._cache.get(key)
            if data is not None:
                self._cache.move_to_end(key)
                return data[start:end]
            bounds = [*accumulate(Struct(f"<{len(spans) // 4}I").unpack(spans))]
            found = self._read(file, offset, bounds[-1])
            parts = [*map(found.__getitem__, map(slice, bounds[::2], bounds[1::2]))]
            wanted = Struct(f"<{len(sums) // 4}I").unpack(sums)
            is_whole = True
            at = 0
            for place, (part, sum) in enumerate(zip(parts, wanted, strict=True)):
                if crc32(part) != sum:
                    is_whole = False
                    if start < at + len(part) and end > at:
                        raise self._unreadable(
                            file, offset + bounds[2 * place], "its checksum is wrong"
                        )
                at += len(part)
            data = b"".join(parts)
            if is_whole:
                self._remember(key, data)
            return data[start:end]

    def _read(self, file: PayloadFile, offset: int, length: int) -> bytes:
        try:
            opened = self._opened(file)
            data = opened.pread(length, offset)
            file.note_read(offset, offset + length)
        except OSError as error:
            raise self._unreadable(file, offset, str(error)) from error
        self.reads += 1
        self.read_bytes += len(data)
        if len(data) < length:
            raise self._unreadable(file, offset, "the file ends before it")
        return data

    def _opened(self, file: PayloadFile) -> File:
        opened = file.open()
        if not file.is_pinned:
            self._open[file.id] = file
            self._open.move_to_end(file.id)
            while len(self._open) > OPEN_FILES_MAX:
                self._open.popitem(last=False)[1].close()
        return opened

    def _remember(self, key: tuple[int, int], page: bytes) -> None:
        self._cache[key] = page
        self.cached_bytes += len(page) + _ENTRY_BYTES
        while self.cached_bytes > CACHE_BYTES_MAX:
            _, oldest = self._cache.popitem(last=False)
            self.cached_bytes -= len(oldest) + _ENTRY_BYTES

    def _unreadable(self, file: PayloadFile, offset: int, problem: str) -> StorageUnreadable:
        self.failures += 1
        if file.id not in self._complained:
            self._complained.add(file.id)
            logger.error(
                "data in segment jobs-%d at byte %d cannot be read: %s; only records there are "
                "refused. Check the disk, then stop the server and run `logqueue check`",
                file.id,
                offset,
                problem,
            )
        return StorageUnreadable.because(f"jobs-{file.id}", offset, problem)

    # -- segments that go ------------------------------------------------------------------------

    def pin_before(self, segment: int) -> None:
        """The files of all segments below this one lose their names: a holder of a record of
        theirs can go on reading it.

        Raises:
            OSError: One cannot be opened.
        """
        with self._lock:
            for id in [id for id in self._files if id < segment]:
                file = self._files[id]
                file.open()
                file.is_pinned = True
                self._open.pop(id, None)
                del self._files[id]
            for id in [id for id in self._waiting if id < segment]:
                self._forget(id)

    def close(self) -> None:
        """Close all files; those that are needed again are opened again."""
        with self._lock:
            for file in self._open.values():
                file.close()
            self._open.clear()
