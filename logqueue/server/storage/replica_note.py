"""The file `REPLICA` of a data directory: what is known of its replica, and logs that were set
aside for it.

Owns: that file, and moving the logs of a directory aside in a way that survives a crash. Must not
know: stores, the protocol of replicas.

The file is a hint. The replica decides who is the writer; the file makes the usual restart cheap,
since it names a chunk up to which directory and replica are known to be the same, and it tells the
takeovers of this directory from those of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePath

import msgspec

from logqueue.replica.chain import LOGS, ChainEnd
from logqueue.replica.chunk import LogName
from logqueue.server.storage import data_directory
from wal import FileSystem

NAME = "REPLICA"
_MOVING = "DISCARDING"
_WRITERS_MAX = 16


class ReplicaNote(msgspec.Struct, frozen=True):
    """What the file says.

    Attributes:
        version: Of its format.
        log_id: Identity of the jobs log, in hex.
        writers: Ids of the last writers that worked in this directory, oldest first.
        epoch: Of the last one that took over.
        starts: How often each log had been opened then: if it was opened since, without this file
            being changed, `end` says nothing of its bytes.
        end: A chunk up to which the directory has what the replica has; None when there is none.
        lacks_tail: A server before may have given out seqs that are neither in the directory nor in
            the replica, and they are not skipped in the log yet.
    """

    version: int
    log_id: str
    writers: tuple[str, ...] = ()
    epoch: int = 0
    starts: Mapping[LogName, int] = {}
    end: ChainEnd | None = None
    lacks_tail: bool = False

    def with_writer(self, writer: str) -> ReplicaNote:
        """The same with one more writer."""
        writers = (*self.writers, writer)[-_WRITERS_MAX:]
        return msgspec.structs.replace(self, writers=writers)


def read_note(fs: FileSystem, data_dir: str) -> ReplicaNote | None:
    """The file; None when there is none that can be read."""
    try:
        return msgspec.json.decode(_read(fs, data_dir, NAME), type=ReplicaNote)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_note(fs: FileSystem, data_dir: str, note: ReplicaNote) -> None:
    """Replace the file, durably.

    Raises:
        OSError: As the file system does; the old one stays.
    """
    _write(fs, data_dir, NAME, msgspec.json.encode(note) + b"\n")


def has_logs(fs: FileSystem, data_dir: str) -> bool:
    """Whether there is anything of either log."""
    return any(data_directory.is_there(fs, data_dir, name) for name in LOGS)


def begin_empty(fs: FileSystem, data_dir: str) -> None:
    """Forget what is known of logs that are no longer there, before others come in their place.

    Raises:
        OSError: As the file system does.
    """
    fs.mkdir(data_dir)
    for name in (data_directory.NAME, NAME):
        with suppress(FileNotFoundError):
            fs.remove(str(PurePath(data_dir) / name))
    fs.sync_dir(data_dir)


def set_logs_aside(fs: FileSystem, data_dir: str) -> str:
    """Move both logs to directories of their own, `jobs.discarded-1` and so on. They must be
    closed. After a crash, call `finish_setting_aside`.

    Returns:
        Where the jobs log is now.

    Raises:
        OSError: As the file system does.
    """
    number = 1
    while any(_is_used(fs, _aside(data_dir, name, number)) for name in LOGS):
        number += 1
    _write(fs, data_dir, _MOVING, str(number).encode())
    finish_setting_aside(fs, data_dir)
    return _aside(data_dir, "jobs", number)


def finish_setting_aside(fs: FileSystem, data_dir: str) -> None:
    """Go on with moving logs aside, if a crash has interrupted it.

    Raises:
        OSError: As the file system does.
    """
    try:
        number = int(_read(fs, data_dir, _MOVING))
    except (FileNotFoundError, ValueError):
        return
    for name in LOGS:
        source = data_directory.log_directory(data_dir, name)
        target = _aside(data_dir, name, number)
        fs.mkdir(target)
        with suppress(FileNotFoundError):
            for file in fs.listdir(source):
                fs.rename(str(PurePath(source) / file), str(PurePath(target) / file))
            fs.sync_dir(source)
        fs.sync_dir(target)
    begin_empty(fs, data_dir)
    fs.remove(str(PurePath(data_dir) / _MOVING))
    fs.sync_dir(data_dir)


def _aside(data_dir: str, log: LogName, number: int) -> str:
    return f"{data_directory.log_directory(data_dir, log)}.discarded-{number}"


def _is_used(fs: FileSystem, directory: str) -> bool:
    try:
        return bool(fs.listdir(directory))
    except FileNotFoundError:
        return False


def _read(fs: FileSystem, data_dir: str, name: str) -> bytes:
    file = fs.open(str(PurePath(data_dir) / name))
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def _write(fs: FileSystem, data_dir: str, name: str, data: bytes) -> None:
    path = str(PurePath(data_dir) / name)
    draft = f"{path}.new"
    try:
        file = fs.create(draft)
        try:
            file.pwrite(data, 0)
            file.sync()
        finally:
            file.close()
        fs.rename(draft, path)
        fs.sync_dir(data_dir)
    except OSError:
        with suppress(OSError):
            fs.remove(draft)
        raise
