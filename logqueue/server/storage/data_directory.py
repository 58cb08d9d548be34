"""What a data directory must hold: the file that names both logs, and a look before both open.

Owns: the file `LOGS`, and telling a new directory from one of which a part is missing. Each log
knows by itself which of its segments must be there (its note `HEAD`); this file knows of the logs.
Must not know: what is in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePath

import msgspec

from logqueue.replica.restoring import is_unfinished
from logqueue.segments.index import LogName
from wal import HEAD_NAME, NO_SPACE, FileSystem, Log, WalCorrupt, head_path, segment_ids

NAME = "LOGS"
_ADVICE = (
    "nothing was changed; put it back, for instance from a backup of the whole data directory, or "
    "start once with --set-damage-aside to go on without"
)


class LogsRecord(msgspec.Struct, frozen=True):
    """What is known of one log.

    Attributes:
        identity: In hex.
        starts: How often it had been opened at least.
    """

    identity: str
    starts: int


class Logs(msgspec.Struct, frozen=True):
    """The content of the file."""

    version: int
    logs: dict[str, LogsRecord]


def log_directory(data_dir: str, name: str) -> str:
    """Where a log is."""
    return str(PurePath(data_dir) / name)


def read(fs: FileSystem, data_dir: str) -> Mapping[str, LogsRecord]:
    """What is known of the logs of a data directory; nothing when it is new, or of a version that
    noted nothing.

    Raises:
        WalCorrupt: The file cannot be read.
    """
    path = str(PurePath(data_dir) / NAME)
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return {}
    try:
        data = file.pread(file.size(), 0)
    finally:
        file.close()
    try:
        noted = msgspec.json.decode(data, type=Logs)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WalCorrupt(path, None, f"it should name both logs: {error}; {_ADVICE}") from error
    return noted.logs


def write(fs: FileSystem, data_dir: str, logs: Mapping[LogName, Log]) -> None:
    """Note which logs there are, durably. On a full disk the old note stays.

    Raises:
        OSError: As the file system does.
    """
    known: dict[str, LogsRecord] = {
        name: LogsRecord(log.identity.hex(), log.starts) for name, log in logs.items()
    }
    write_known(fs, data_dir, known)


def encode_known(known: Mapping[str, LogsRecord]) -> bytes:
    """The content of the file."""
    return msgspec.json.encode(Logs(1, dict(known))) + b"\n"


def write_known(fs: FileSystem, data_dir: str, known: Mapping[str, LogsRecord]) -> None:
    """The same about logs that are not open."""
    path = str(PurePath(data_dir) / NAME)
    draft = f"{path}.new"
    try:
        file = fs.create(draft)
        try:
            file.pwrite(encode_known(known), 0)
            file.sync()
        finally:
            file.close()
        fs.rename(draft, path)
        fs.sync_dir(data_dir)
    except OSError as error:
        with suppress(OSError):
            fs.remove(draft)
        if error.errno not in NO_SPACE:
            raise


def is_there(fs: FileSystem, data_dir: str, name: str) -> bool:
    """Whether there is anything of a log."""
    directory = log_directory(data_dir, name)
    try:
        return bool(segment_ids(fs, directory)) or HEAD_NAME in fs.listdir(directory)
    except FileNotFoundError:
        return False


def require_finished(fs: FileSystem, data_dir: str) -> None:
    """Refuse a directory into which a replica was restored in part.

    Raises:
        WalCorrupt: It is one.
    """
    if is_unfinished(fs, data_dir):
        raise WalCorrupt(
            data_dir,
            None,
            "a restore into this directory was not finished, so its logs are incomplete; nothing "
            "was changed: start with --replica, which begins the restore again, or restore into "
            "another directory",
        )


def require_jobs(fs: FileSystem, data_dir: str, known: Mapping[str, LogsRecord]) -> None:
    """Refuse a directory whose jobs log is gone.

    Raises:
        WalCorrupt: It is.
    """
    if is_there(fs, data_dir, "jobs"):
        return
    if "jobs" in known:
        raise _missing(data_dir, "jobs", f"{NAME} names it")
    # The jobs log is made first of all.
    if is_there(fs, data_dir, "leases"):
        raise _missing(data_dir, "jobs", "there is a leases log beside it")


def require_leases(
    fs: FileSystem, data_dir: str, known: Mapping[str, LogsRecord], jobs: Log
) -> None:
    """Refuse a directory whose leases log is gone.

    Args:
        fs: Where it is.
        data_dir: The data directory.
        known: What is known of its logs.
        jobs: The jobs log.

    Raises:
        WalCorrupt: It is.
    """
    if is_there(fs, data_dir, "leases"):
        return
    if "leases" in known:
        raise _missing(data_dir, "leases", f"{NAME} names it")
    # Nothing is written to the jobs log before there is a leases log.
    jobs.examine()
    if jobs.appended:
        raise _missing(data_dir, "leases", "there is a jobs log with frames beside it")


def require_same(known: Mapping[str, LogsRecord], logs: Mapping[str, Log]) -> None:
    """Refuse logs that are not those that the data directory knows.

    Raises:
        WalCorrupt: One is another log, or an older copy of itself.
    """
    for name, log in logs.items():
        if name not in known:
            continue
        wanted = known[name]
        if log.identity.hex() != wanted.identity:
            raise WalCorrupt(
                log.directory,
                None,
                f"this is another {name} log ({log.identity.hex()}) than the one that belongs here "
                f"({wanted.identity}); {_ADVICE}",
            )
        if log.head_found is None:
            raise WalCorrupt(
                head_path(log.directory),
                None,
                f"the note of what must be in the {name} log is missing; {_ADVICE}",
            )
        if log.head_found.starts < wanted.starts:
            raise WalCorrupt(
                log.directory,
                None,
                f"this {name} log is older than the rest of the data directory (start "
                f"{log.head_found.starts}, not {wanted.starts}); {_ADVICE}",
            )


def _missing(data_dir: str, name: str, because: str) -> WalCorrupt:
    lost = "all records" if name == "jobs" else "leases and delivery counts, but no job,"
    return WalCorrupt(
        log_directory(data_dir, name),
        None,
        f"the {name} log is missing: there is no segment in this directory, yet {because}; "
        f"{_ADVICE} ({lost} are lost then)",
    )
