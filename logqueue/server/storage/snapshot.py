"""A copy of a data directory that a server has open: all that was written before it began.

Owns: which files belong together, where the copy of each log ends, and the order of files in it.
Looks at files only, so the server itself and another process on its machine make the same copy.
Must not know: who takes the copy, where it goes, what is in a log.

A log only grows at its end and loses whole segments at its front, so any run of neighbouring
segments up to the end, read after all of them were opened, is the log as it was at some moment
since. Files stay readable while they are open, even if the server drops them meanwhile; the disk
space of those is free once they are closed. The end of the jobs log is looked for last: what the
leases log tells of is in it, as after a crash.
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import PurePath
from typing import NamedTuple

from logqueue.segments.index import LogName
from logqueue.server.storage.data_directory import NAME as LOGS_NAME
from logqueue.server.storage.data_directory import LogsRecord, encode_known, log_directory
from wal import (
    HEAD_NAME,
    HEADER_BYTES,
    File,
    FileSystem,
    Head,
    SegmentHeader,
    decode_header,
    encode_head_file,
    find_whole_frames,
    read_head,
    segment_ids,
    segment_path,
)

TRIES_MAX = 20
OPENED_PER_STEP = 16
LOGS: tuple[LogName, ...] = ("leases", "jobs")


class SnapshotFailed(Exception):
    """No copy can be made now; the message says why."""


class SnapshotFile(NamedTuple):
    """One file of a copy.

    Attributes:
        name: Below the data directory, such as `jobs/00000000000000000001.wal`.
        size: In bytes; the source may have more.
        content: All of it, for a file that is made for the copy; else b"".
        source: Where the content is, for all others; None for those.
    """

    name: str
    size: int
    content: bytes = b""
    source: File | None = None

    def read(self, length: int, offset: int) -> bytes:
        """Some bytes; fewer only at the end."""
        length = min(length, self.size - offset)
        if self.source is None:
            return self.content[offset : offset + length]
        return self.source.pread(length, offset)

    def close(self) -> None:
        """Release the source."""
        if self.source is not None:
            self.source.close()


class _FoundSegment(NamedTuple):
    """A segment as it was found; its header is None when there is none that can be read."""

    id: int
    header: SegmentHeader | None
    file: File


def take_snapshot(fs: FileSystem, data_dir: str) -> Generator[None, None, list[SnapshotFile]]:
    """Open all that belongs to a copy of both logs. What the server's notes require and a log lacks
    is missing in the copy, too: `logqueue check` shows it.

    Args:
        fs: Where the directory is.
        data_dir: The data directory; a server may have it open.

    Yields:
        After each step of a few milliseconds; they may be made in any thread.

    Returns:
        The files in order, each to be closed by the caller. The last one names both logs: a copy
        without it is not complete.

    Raises:
        SnapshotFailed: The segments went faster than they could be opened, do not fit together, or
            are too many to be open at once.
        WalCorrupt: The note of a log cannot be read.
        OSError: A file cannot be read.
    """
    files: list[SnapshotFile] = []
    known: dict[str, LogsRecord] = {}
    with ExitStack() as stack:
        for log in LOGS:
            identity = yield from _take_log(fs, log_directory(data_dir, log), log, files, stack)
            known[log] = LogsRecord(identity.hex(), 1)
        content = encode_known(known)
        files.append(SnapshotFile(LOGS_NAME, len(content), content))
        stack.pop_all()
    return files


def _take_log(
    fs: FileSystem, directory: str, log: LogName, files: list[SnapshotFile], stack: ExitStack
) -> Generator[None, None, bytes]:
    """Add the files of one log; returns its identity."""
    segments, needed = yield from _open_log(fs, directory, stack)
    last = 0
    for at, (id, header, file) in enumerate(segments):
        size = file.size()
        if header is not None and at + 1 == len(segments):
            size, last = yield from find_whole_frames(file, header)
        path = PurePath(segment_path(log, id))
        files.append(SnapshotFile(str(path), size, source=file))
    oldest, newest = segments[0].id, segments[-1].id
    if needed is not None:
        oldest, newest = min(oldest, needed.oldest), max(newest, needed.newest)
        last = max(last, needed.promised(same_boot=True))
    identity = next(header.identity for _, header, _ in segments if header is not None)
    note = encode_head_file(Head(identity, 1, oldest, newest, last, last))
    files.append(SnapshotFile(f"{log}/{HEAD_NAME}", len(note), note))
    return identity


def _open_log(
    fs: FileSystem, directory: str, stack: ExitStack
) -> Generator[None, None, tuple[list[_FoundSegment], Head | None]]:
    """All segments with a header, oldest first, and what the note of the log requires."""
    for _ in range(TRIES_MAX):
        with ExitStack() as opened:
            # How far the log has come is asked before the look, what may be missing after it.
            before = read_head(fs, directory)
            try:
                newest = before.newest if before else 0
                segments = yield from _open_all(fs, directory, newest, opened)
            except FileNotFoundError:
                continue  # dropped between the look and the opening
            after = read_head(fs, directory)
            needed = before._replace(oldest=after.oldest) if before and after else None
            stack.push(opened.pop_all())
            return segments, needed
    raise SnapshotFailed(
        f"{directory}: segments are dropped faster than they can be read; try again"
    )


def _open_all(
    fs: FileSystem, directory: str, newest: int, opened: ExitStack
) -> Generator[None, None, list[_FoundSegment]]:
    segments: list[_FoundSegment] = []
    ids = segment_ids(fs, directory)
    for count, id in enumerate(ids, 1):
        file = _open(fs, segment_path(directory, id), len(ids))
        opened.callback(file.close)
        _, header = decode_header(file.pread(HEADER_BYTES, 0))
        if header is None and id > newest:
            # Its header may not have been written yet.
            break
        if segments and segments[-1].id + 1 != id:
            raise SnapshotFailed(f"{directory}: segment {segments[-1].id + 1} is missing")
        segments.append(_FoundSegment(id, header, file))
        if count % OPENED_PER_STEP == 0:
            yield
    if not any(header for _, header, _ in segments):
        raise SnapshotFailed(f"{directory}: there is no segment with a header")
    return segments


def _open(fs: FileSystem, path: str, count: int) -> File:
    try:
        return fs.open(path)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise SnapshotFailed(
            f"the process may not open all {count} segments at once: raise its limit of open files "
            "(ulimit -n, LimitNOFILE)"
        ) from error
