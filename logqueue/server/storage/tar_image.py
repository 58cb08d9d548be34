"""Files as one tar archive that is made while it is read.

Owns: the layout of the archive. Must not know: what the files are, who reads it.
"""

from __future__ import annotations

import tarfile
from bisect import bisect_right
from collections.abc import Sequence

from logqueue.server.storage.snapshot import SnapshotFile

BLOCK_BYTES = tarfile.BLOCKSIZE
FILE_MODE = 0o640


class TarImage:
    """A tar archive of some files. It is read from front to back, and a file is closed once it is
    behind.

    Attributes:
        size: Of the archive, in bytes; known before anything is read.
    """

    def __init__(self, files: Sequence[SnapshotFile], folder: str, mtime: int) -> None:
        """Nothing is read yet.

        Args:
            files: In the order of the archive; they are closed with it.
            folder: What all names begin with.
            mtime: Of all files, in seconds since the epoch.
        """
        self._pieces: list[SnapshotFile] = []
        for file in files:
            self._pieces += [
                _header(f"{folder}/{file.name}", file.size, mtime),
                file,
                SnapshotFile("", -file.size % BLOCK_BYTES, bytes(BLOCK_BYTES)),
            ]
        self._pieces.append(SnapshotFile("", 2 * BLOCK_BYTES, bytes(2 * BLOCK_BYTES)))
        self._starts = [0]
        for piece in self._pieces:
            self._starts.append(self._starts[-1] + piece.size)
        self.size = self._starts[-1]
        self._closed = 0

    def read(self, length: int, offset: int) -> bytes:
        """Some bytes of one piece: fewer than asked for at its end, none where a file was cut.

        Raises:
            OSError: A file cannot be read.
        """
        # Of several pieces that begin there all but the last are empty.
        place = bisect_right(self._starts, offset) - 1
        self._close_before(place)
        piece, start = self._pieces[place], self._starts[place]
        return piece.read(length, offset - start)

    def close(self) -> None:
        """Close all files. May be called again."""
        self._close_before(len(self._pieces))

    def _close_before(self, place: int) -> None:
        while self._closed < place:
            self._pieces[self._closed].close()
            self._closed += 1


def _header(name: str, size: int, mtime: int) -> SnapshotFile:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, mtime, FILE_MODE
    content = entry.tobuf(tarfile.GNU_FORMAT)
    return SnapshotFile("", len(content), content)
