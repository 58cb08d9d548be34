"""Copies of data directories: of one that no server has open, of a running server, of an archive.

Owns: how files get into a new directory, each read back and compared. Must not know: commands,
reports, which files a copy of a running server has.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol

from logqueue.cli.exits import CommandError

COPY_BYTES = 1 << 20
LOGS_FILE = "LOGS"
_NAMES = re.compile(r"LOGS|(?:jobs|leases)/(?:HEAD|[0-9]{20}\.wal)", re.ASCII)


class Readable(Protocol):
    """A file that is read once, from front to back."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most so many; none at the end."""
        ...


def copy_stopped(source: Path, target: Path, names: Iterable[Path]) -> None:
    """Copy files of a data directory that no server has open.

    Args:
        source: The data directory.
        target: A directory that is there and empty.
        names: The files, relative to the source.

    Raises:
        CommandError: A file reads back other than it was written.
        OSError: A file cannot be read or written.
    """
    for name in names:
        with (source / name).open("rb") as file:
            _write(target / name, _parts_of(file))


def copy_running(source: Path, target: Path) -> None:
    """Copy both logs of a running server, with notes of what must be in the copy.

    Args:
        source: Its data directory.
        target: A directory that is there and empty.

    Raises:
        CommandError: No copy can be made now, or a file reads back other than it was written.
        WalCorrupt: The note of a log cannot be read.
        OSError: A file cannot be read or written.
    """
    from logqueue.server.storage.snapshot import SnapshotFailed, SnapshotFile, take_snapshot
    from wal import OsFileSystem

    def parts(file: SnapshotFile) -> Iterator[bytes]:
        offset = 0
        while part := file.read(COPY_BYTES, offset):
            offset += len(part)
            yield part

    _allow_many_files()
    steps = take_snapshot(OsFileSystem(), str(source))
    try:
        while True:
            next(steps)
    except StopIteration as end:
        files: list[SnapshotFile] = end.value
    except SnapshotFailed as problem:
        raise CommandError(str(problem)) from problem
    try:
        for file in files:
            _write(target / file.name, parts(file))
    finally:
        for file in files:
            file.close()


def unpack(archive: Readable, target: Path) -> None:
    """Make a directory of a backup that was downloaded, or is being downloaded.

    Args:
        archive: The tar archive; it is read once, from front to back.
        target: A directory that is there and empty.

    Raises:
        CommandError: It is not a whole backup.
        OSError: A file cannot be written.
    """
    seen: set[str] = set()
    try:
        # A stream of tarfile asks for nothing but `read`.
        file: Any = archive
        with tarfile.open(fileobj=file, mode="r|", bufsize=COPY_BYTES) as files:
            for entry in files:
                name = "/".join(PurePosixPath(entry.name).parts[1:])
                if entry.isdir() and name in ("", "jobs", "leases"):
                    continue
                content = files.extractfile(entry) if entry.isreg() else None
                if content is None or not _NAMES.fullmatch(name) or name in seen:
                    raise CommandError(f"{entry.name!a} does not belong in a backup of a server")
                _write(target / name, _parts_of(content))
                seen.add(name)
    except tarfile.TarError as error:
        raise CommandError(f"this is not a whole backup of a server: {error}") from error
    if LOGS_FILE not in seen:
        raise CommandError("this is not a whole backup of a server: its end is missing")


def _parts_of(file: IO[bytes]) -> Iterator[bytes]:
    while part := file.read(COPY_BYTES):
        yield part


def _write(target: Path, parts: Iterable[bytes]) -> None:
    target.parent.mkdir(mode=0o750, exist_ok=True)
    written = hashlib.sha256()
    with target.open("xb") as new:
        target.chmod(0o640)
        for part in parts:
            written.update(part)
            new.write(part)
        new.flush()
        os.fsync(new.fileno())
    with target.open("rb") as new:
        if hashlib.file_digest(new, "sha256").digest() != written.digest():
            raise CommandError(f"{target.name} reads back other than it was written: bad disk?")


def _allow_many_files() -> None:
    import resource  # where there are no such limits, nothing else of this program misses it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
