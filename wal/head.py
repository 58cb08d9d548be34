"""HEAD: the note in the directory of a log that says what must be there.

Owns the bytes of the note, and writing it so that a crash leaves an old one or a new one. Must not
know how segments are read, or what is done about a log that falls short of its note.

The theory: each value was true when it was written and is a lower bound for ever after, so an
older note is a weaker one, never a false one. So it need not be synced with every round: a killed
process leaves the newest one, a power cut one that the system has flushed by itself, or the one
that was synced when the newest segment was started. Only what allows something to be missing
(`oldest`) must be durable before the thing is removed.

Two slots are written in turn, each in a block of its own, so that one of them is always whole.
"""

import os
import struct
import threading
from contextlib import suppress
from typing import Final, NamedTuple
from zlib import crc32

from wal.errors import WalCorrupt
from wal.files import NO_SPACE, File, FileSystem

HEAD_NAME: Final = "HEAD"
_DRAFT: Final = ".new"
_MAGIC: Final = b"WALHEAD\n"
_VERSION: Final = 1
_SLOT: Final = struct.Struct("<8sIIQQQQQQ16s")
_CHECK: Final = struct.Struct("<I")
_SLOT_BYTES: Final = 4096


class Head(NamedTuple):
    """What must be there.

    Attributes:
        identity: of the log.
        starts: how often the log was opened.
        oldest: id of the oldest segment that was not dropped.
        newest: id of the newest segment that was started.
        durable: highest frame number that was synced.
        written: highest frame number that was handed to the system; what a restart of the machine
            may have taken is between the two.
    """

    identity: bytes
    starts: int
    oldest: int
    newest: int
    durable: int
    written: int

    def promised(self, *, same_boot: bool) -> int:
        """The highest frame number that must be there.

        Args:
            same_boot: whether the machine ran on since the log was last opened.
        """
        return max(self.durable, self.written) if same_boot else self.durable


def head_path(directory: str) -> str:
    """Where the note of a log is."""
    return os.path.join(directory, HEAD_NAME)


def read_head(fs: FileSystem, directory: str) -> Head | None:
    """The note of a log; None when there is none.

    Raises:
        WalCorrupt: there is one, and it cannot be read.
    """
    found = _read(fs, directory)
    return found[1] if found else None


def _read(fs: FileSystem, directory: str) -> tuple[int, Head] | None:
    path = head_path(directory)
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return None
    try:
        slots = [_decode(file.pread(_SLOT.size + _CHECK.size, at)) for at in (0, _SLOT_BYTES)]
    finally:
        file.close()
    whole = [slot for slot in slots if slot is not None]
    if not whole:
        raise WalCorrupt(path, None, "the note of what must be in this log cannot be read")
    return max(whole)


def _encode(generation: int, head: Head) -> bytes:
    identity, starts, oldest, newest, durable, written = head
    data = _SLOT.pack(
        _MAGIC, _VERSION, 0, generation, starts, oldest, newest, durable, written, identity
    )
    return data + _CHECK.pack(crc32(data))


def encode_head_file(head: Head) -> bytes:
    """The whole file of a new note."""
    return _encode(0, head).ljust(_SLOT_BYTES, b"\0") * 2


def _decode(data: bytes) -> tuple[int, Head] | None:
    if len(data) < _SLOT.size + _CHECK.size:
        return None
    if _CHECK.unpack_from(data, _SLOT.size) != (crc32(data[: _SLOT.size]),):
        return None
    magic, version, _, generation, *numbers, identity = _SLOT.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        return None
    return generation, Head(identity, *numbers)


class HeadFile:
    """The note of an open log. May be used from any thread."""

    def __init__(self, file: File | None, generation: int, head: Head) -> None:
        """Not for callers: use `take` or `make`. `file` is None when there was no room for it."""
        self._lock = threading.Lock()
        self._file = file
        self._generation = generation
        self._head = head

    @classmethod
    def take(cls, fs: FileSystem, directory: str, head: Head) -> "HeadFile":
        """Bring the note of a log up to date, durably, making it if there is none.

        Raises:
            OSError: as the file system does; never for a full disk.
        """
        try:
            found = _read(fs, directory)
        except WalCorrupt:
            found = None
        if found is None or found[1].identity != head.identity or head.newest < found[1].newest:
            return cls.make(fs, directory, head)
        if head.durable < found[1].durable:
            return cls.make(fs, directory, head)
        taken = cls(fs.open(head_path(directory), writable=True), found[0], found[1])
        try:
            taken._write_both(head)
        except BaseException:
            taken.close()
            raise
        return taken

    @classmethod
    def make(cls, fs: FileSystem, directory: str, head: Head) -> "HeadFile":
        """Write a new note, in place of any other, durably.

        Raises:
            OSError: as the file system does; never for a full disk.
        """
        path = head_path(directory)
        draft = path + _DRAFT
        file: File | None = None
        try:
            file = fs.create(draft)
            file.pwrite(encode_head_file(head), 0)
            file.sync()
            fs.rename(draft, path)
            fs.sync_dir(directory)
        except OSError as error:
            if file is not None:
                file.close()
                with suppress(OSError):
                    fs.remove(draft)
            if error.errno not in NO_SPACE:
                raise
            # A log without a note is what every log was once; the next open makes it.
            return cls(None, 0, head)
        return cls(file, 0, head)

    @property
    def head(self) -> Head:
        """As last written."""
        return self._head

    def reach(self, newest: int, durable: int, written: int) -> None:
        """Note how far the log has come. Not synced.

        Raises:
            OSError: the old note is unchanged.
        """
        with self._lock:
            identity, starts, oldest, *reached = self._head
            if reached != [newest, durable, written]:
                # Once in every round of the committer.
                self._write(Head(identity, starts, oldest, newest, durable, written))

    def note_removal(self, oldest: int) -> None:
        """Note, durably, that segments before this one may be missing.

        Raises:
            OSError: whether the note was written is unknown; nothing may be removed.
        """
        with self._lock:
            self._write_both(self._head._replace(oldest=max(oldest, self._head.oldest)))

    def _write_both(self, head: Head) -> None:
        """Write durably what no crash may take back: when a later write to one slot is torn, and
        the one to the other slot never reached the disk, this still counts."""
        for _ in range(2):
            self._write(head)
            self.sync()

    def _write(self, head: Head) -> None:
        if self._file is not None:
            self._generation += 1
            slot = self._generation % 2 * _SLOT_BYTES
            self._file.pwrite(_encode(self._generation, head), slot)
        self._head = head

    def sync(self) -> None:
        """Make the note survive a power cut. Raises OSError as the file system does."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
