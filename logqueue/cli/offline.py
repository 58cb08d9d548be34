"""`logqueue check`, `backup`, `restore`: a data directory that no server has open.

Owns: what counts as sound, and copies that are complete or not there. Must not know: what is in a
log; the server's own journal replays it.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logqueue.cli import copying, exits, output, replicas
from logqueue.cli.arguments import Commands, add_address, add_json, add_retrying
from logqueue.cli.directories import require_free, sync
from logqueue.cli.exits import CommandError, NothingThere, UsageError
from logqueue.cli.output import TableColumn, number

if TYPE_CHECKING:
    from logqueue.cli.check import Report

DATA_DIR_DEFAULT = "logqueue-data"
LOGS = ("jobs", "leases")


def add_to(commands: Commands) -> None:
    """Declare the commands."""
    check = commands.add(
        "check",
        _check,
        "verify a data directory that no server has open",
        more="Every byte of both logs is checked, then they are replayed as a server would, and "
        "the result is checked. Nothing is changed.",
        examples=("logqueue check logqueue-data", "logqueue check /mnt/backup/monday --json"),
    )
    check.add_argument(
        "directory", nargs="?", metavar="DATA_DIR", help="default: LOGQUEUE_DATA_DIR, as `serve`"
    )
    add_json(check)
    backup = commands.add(
        "backup",
        _backup,
        "copy a data directory, also of a running server, and verify the copy",
        more="With a server running the copy holds all that was answered before it began, and "
        "perhaps some of what came later. It appears under its name only when it is complete. Do "
        "not copy the directory of a running server by other means: files of different moments do "
        "not fit together. Without DATA_DIR the copy is downloaded from the server at --url.",
        examples=(
            "logqueue backup logqueue-data /mnt/backup/monday",
            "logqueue backup --url http://a.example:4000 /mnt/backup/monday",
        ),
    )
    backup.add_argument("directory", nargs="?", metavar="DATA_DIR", help="on this machine")
    backup.add_argument(
        "copy", metavar="BACKUP", help="a directory that is empty or does not exist"
    )
    add_address(backup)
    add_retrying(backup)
    add_json(backup)
    restore = commands.add(
        "restore",
        _restore,
        "make a data directory from a backup or a replica, and verify it",
        more="From a replica, as it is now or as it was at any moment that is kept. A directory "
        "that was restored to an earlier moment is a log of its own: start it without the replica "
        "it came from, or with another one.",
        examples=(
            "logqueue restore /mnt/backup/monday logqueue-data",
            "logqueue restore logqueue-backup-20261122T200000Z.tar logqueue-data",
            "logqueue restore s3://backups/logqueue --to logqueue-data",
            "logqueue restore s3://backups/logqueue --at 2026-11-22T18:00:00Z --dry-run",
        ),
    )
    restore.add_argument(
        "copy",
        metavar="BACKUP",
        help="a backup, the file of a downloaded one, or the URL of a replica",
    )
    restore.add_argument(
        "directory",
        nargs="?",
        metavar="DATA_DIR",
        help="a directory that is empty or does not exist",
    )
    replicas.add_restore(restore)
    add_json(restore)


# -- commands ------------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> int:
    from logqueue.cli import check

    named = arguments.directory or os.environ.get("LOGQUEUE_DATA_DIR") or DATA_DIR_DEFAULT
    directory = _data_directory(named)
    with _held(directory):
        report = check.examine(directory)
    _report(arguments, report)
    if not report.is_sound:
        raise CommandError(
            "this directory is not sound; see the page on operations, under damaged log"
        )
    return exits.OK


def _backup(arguments: argparse.Namespace) -> int:
    target = Path(arguments.copy)
    if arguments.directory is None:
        return _download(arguments, target)
    if getattr(arguments, "url", None) is not None:
        raise UsageError("a server at --url sends its own data directory: leave out DATA_DIR")
    source = _data_directory(arguments.directory)
    require_free(target)
    with _held(source, may_run=True) as is_alone:
        report = _made(target, partial(_fill, source, is_alone=is_alone))
    return _summary(arguments, report, f"copied to {target}", target)


def _download(arguments: argparse.Namespace, target: Path) -> int:
    from logqueue.cli.connection import connect, url_of
    from logqueue.cli.downloading import DownloadedFile

    if arguments.url is None and not os.environ.get("LOGQUEUE_URL"):
        raise UsageError("name both DATA_DIR and BACKUP, or the server with --url")
    require_free(target)
    with (
        connect(arguments) as client,
        closing(client.backup()) as parts,
        DownloadedFile(parts, "downloading") as file,
    ):
        report = _made(target, partial(copying.unpack, file))
    done = f"downloaded from {url_of(arguments)} to {target}"
    return _summary(arguments, report, done, target)


def _restore(arguments: argparse.Namespace) -> int:
    from logqueue.cli import check

    if "://" in arguments.copy:
        return replicas.restore_replica(arguments)
    if arguments.at is not None or arguments.order is not None or arguments.dry_run:
        raise UsageError("--at, --order and --dry-run are for replicas: name one by its URL")
    named = arguments.to or arguments.directory
    if named is None:
        raise UsageError("name the data directory to make: logqueue restore BACKUP DATA_DIR")
    target = Path(named)
    if Path(arguments.copy).is_file():
        return _restore_archive(arguments, Path(arguments.copy), target)
    source = _data_directory(arguments.copy)
    require_free(target)
    with _held(source):
        found = check.examine(source)
        if not found.is_sound:
            _report(arguments, found)
            raise CommandError(f"{source} is damaged, so nothing was restored: use another backup")
        report = _made(target, partial(_fill, source))
    return _summary(arguments, report, f"restored to {target}", target)


def _restore_archive(arguments: argparse.Namespace, archive: Path, target: Path) -> int:
    require_free(target)
    with archive.open("rb") as file:
        report = _made(target, partial(copying.unpack, file), must_be_sound=True)
    return _summary(arguments, report, f"restored to {target}", target)


def _summary(arguments: argparse.Namespace, report: Report, done: str, target: Path) -> int:
    _report(arguments, report)
    output.say(f"{done}: {output.size(report.bytes_held)}, every file read back and compared")
    if not report.is_sound:
        raise CommandError(
            f"{target} is a true copy of a damaged directory; keep it, and see the page on "
            "operations, under damaged log"
        )
    return exits.OK


# -- directories ---------------------------------------------------------------------------------


def _data_directory(name: str) -> Path:
    directory = Path(name)
    if not directory.is_dir():
        raise NothingThere(f"{name} is not a directory")
    if not any((directory / part).exists() for part in (*LOGS, copying.LOGS_FILE)):
        raise NothingThere(f"{name} is not a data directory: there is no log in it")
    return directory


@contextmanager
def _held(directory: Path, *, may_run: bool = False) -> Iterator[bool]:
    """Keep servers away from a directory. Nothing is written, so it may be read-only.

    Yields:
        False when a server has it open, and that is fine.
    """
    import fcntl

    try:
        fd = os.open(directory / "LOCK", os.O_RDONLY)
    except FileNotFoundError:
        yield True  # a server makes this file before all others
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if may_run:
                yield False
                return
            raise CommandError(
                f"a server has {directory} open: stop it first (SIGTERM, exit status 0), and start "
                "it again afterwards"
            ) from error
        yield True
    finally:
        os.close(fd)


def _made(target: Path, fill: Callable[[Path], None], *, must_be_sound: bool = False) -> Report:
    """Fill a directory, look it over, then give it its name.

    Raises:
        CommandError: It is not sound, and must be; nothing is left of it.
    """
    from logqueue.cli import check

    # An interrupted copy must never look like a whole one.
    draft = target.absolute().with_name(f".{target.absolute().name}.part-{os.getpid()}")
    try:
        draft.mkdir(mode=0o750)
        fill(draft)
        report = check.examine(draft)
        if must_be_sound and not report.is_sound:
            problem = report.problems[0] if report.problems else "it is not sound"
            raise CommandError(f"this backup is damaged, so nothing was restored: {problem}")
        for folder in (draft, *(draft / name for name in LOGS)):
            if folder.is_dir():
                sync(folder)
        draft.rename(target.absolute())
        sync(target.absolute().parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return report.renamed(str(draft), str(target))


def _fill(source: Path, draft: Path, *, is_alone: bool = True) -> None:
    if is_alone:
        copying.copy_stopped(source, draft, _files(source))
    else:
        copying.copy_running(source, draft)


def _files(source: Path) -> list[Path]:
    """What makes up a data directory: its lock, what names its logs, and the files of both, but for
    the one that holds nothing but space."""
    found = [
        source / "LOCK",
        source / copying.LOGS_FILE,
        *(path for log in LOGS for path in (source / log).glob("*")),
    ]
    kept = (path for path in found if path.is_file() and path.name != "RESERVE")
    return sorted(path.relative_to(source) for path in kept)


# -- reports -------------------------------------------------------------------------------------


def _report(arguments: argparse.Namespace, report: Report) -> None:
    if arguments.json:
        output.json_line(report.as_fields())
        return
    columns: tuple[Any, ...] = (TableColumn("log"), number("segments"), number("frames"))
    output.table(
        (*columns, TableColumn("size"), TableColumn("state")),
        (
            (log.name, log.segments, log.frames, output.size(log.bytes), log.state)
            for log in report.logs
        ),
    )
    for problem in report.problems:
        output.line(output.printable(f"PROBLEM: {problem}"))
    if report.held is not None:
        held = report.held
        output.line("")
        output.facts((name.replace("_", " "), value) for name, value in held.items())
    verdict = "sound" if report.is_sound else "NOT SOUND"
    output.line(f"{report.directory}: {verdict}")
