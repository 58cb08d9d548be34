"""A copy of a data directory that a server has open: all that was written before it began.

Owns: which files belong together, and where the copy of each log ends. Must not know: commands,
reports, what is in a log.

A log only grows at its end and loses whole segments at its front, so any run of neighbouring
segments up to the end, read after all of them were opened, is the log as it was at some moment
since. Files stay readable while they are open, even if the server drops them meanwhile. The jobs
log is read last: what the leases log tells of is in it, as after a crash.
"""

from __future__ import annotations

import hashlib
import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from logqueue.cli.exits import CommandError
from logqueue.server.storage.data_directory import LogsRecord, write_known
from wal import (
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    File,
    Head,
    HeadFile,
    OsFileSystem,
    SegmentHeader,
    Walk,
    decode_header,
    read_head,
    salt_of,
    segment_ids,
    segment_path,
)

TRIES_MAX = 20
COPY_BYTES = 1 << 20


class _Opened(NamedTuple):
    """A segment as it was found; its header is None when there is none that can be read."""

    id: int
    header: SegmentHeader | None
    file: File


class _FoundLog(NamedTuple):
    """A log: its segments with a header, oldest first, and what its note requires."""

    segments: list[_Opened]
    needed: Head | None


def copy_running(source: Path, target: Path) -> None:
    """Copy both logs of a running server, with notes of what must be in the copy.

    What the server's notes require and the log lacks is missing in the copy, too: `logqueue check`
    shows it.

    Args:
        source: Its data directory.
        target: A directory that is there and empty.

    Raises:
        CommandError: The segments went faster than they could be opened, or do not fit together.
        WalCorrupt: The note of a log cannot be read.
        OSError: A file cannot be read or written.
    """
    _allow_many_files()
    known = {}
    for log in ("leases", "jobs"):
        folder = target / log
        folder.mkdir(mode=0o750)
        with _opened(source / log) as (segments, needed):
            last = 0
            for at, (id, header, file) in enumerate(segments):
                path = Path(segment_path(str(folder), id))
                if header is None or at + 1 < len(segments):
                    _copy_whole(file, path)
                else:
                    last = _copy_frames(header, file, path)
            identity = next(header.identity for _, header, _ in segments if header is not None)
        oldest, newest = segments[0].id, segments[-1].id
        if needed is not None:
            oldest, newest = min(oldest, needed.oldest), max(newest, needed.newest)
            last = max(last, needed.promised(same_boot=True))
        head = Head(identity, 1, oldest, newest, last, last)
        HeadFile.make(OsFileSystem(), str(folder), head).close()
        known[log] = LogsRecord(identity.hex(), 1)
    write_known(OsFileSystem(), str(target), known)


def _allow_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def _opened(directory: Path) -> Iterator[_FoundLog]:
    """All segments with a header, oldest first, and the ids that must be among them."""
    fs = OsFileSystem()
    for _ in range(TRIES_MAX):
        with ExitStack() as stack:
            # How far the log has come is asked before the look, what may be missing after it.
            before = read_head(fs, str(directory))
            try:
                segments = _open_all(directory, stack, before.newest if before else 0)
            except FileNotFoundError:
                continue  # dropped between the look and the opening
            after = read_head(fs, str(directory))
            needed = before._replace(oldest=after.oldest) if before and after else None
            yield _FoundLog(segments, needed)
            return
    raise CommandError(f"{directory}: segments are dropped faster than they can be read; try again")


def _open_all(directory: Path, stack: ExitStack, newest: int) -> list[_Opened]:
    segments: list[_Opened] = []
    for id in segment_ids(OsFileSystem(), str(directory)):
        file = OsFileSystem().open(segment_path(str(directory), id))
        stack.callback(file.close)
        _, header = decode_header(file.pread(HEADER_BYTES, 0))
        if header is None and id > newest:
            # Its header may not have been written yet.
            break
        if segments and segments[-1].id + 1 != id:
            raise CommandError(f"{directory}: segment {segments[-1].id + 1} is missing")
        segments.append(_Opened(id, header, file))
    if not any(header for _, header, _ in segments):
        raise CommandError(f"{directory}: there is no segment with a header")
    return segments


def _copy_whole(source: File, target: Path) -> None:
    written = hashlib.sha256()
    with target.open("xb") as new:
        target.chmod(0o640)
        at = 0
        while part := source.pread(COPY_BYTES, at):
            at += len(part)
            written.update(part)
            new.write(part)
        new.flush()
        os.fsync(new.fileno())
    _compare(target, written.digest())


def _copy_frames(header: SegmentHeader, source: File, target: Path) -> int:
    """Copy the whole frames of the segment that is being written; returns the last one's number."""
    data = source.pread(source.size(), 0)
    salt = salt_of(header.identity, header.id)
    walk = Walk(data, salt, header.first, header.id, FRAME_BYTES_MAX).run()
    data = data[: walk.offset]
    with target.open("xb") as new:
        target.chmod(0o640)
        new.write(data)
        new.flush()
        os.fsync(new.fileno())
    _compare(target, hashlib.sha256(data).digest())
    return walk.number - 1


def _compare(target: Path, digest: bytes) -> None:
    with target.open("rb") as new:
        if hashlib.file_digest(new, "sha256").digest() != digest:
            raise CommandError(f"{target.name} reads back other than it was written: bad disk?")
