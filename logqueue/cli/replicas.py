"""`logqueue replica status | verify | gc`, and `logqueue restore URL --to DIR`.

Owns: the commands, and times as people write them. Must not know: objects, how anything is read.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logqueue.cli import exits, output
from logqueue.cli.arguments import (
    DURATION,
    Commands,
    add_json,
    add_retrying,
    duration_ms,
    duration_s,
)
from logqueue.cli.directories import require_free, sync
from logqueue.cli.exits import CommandError, NothingThere, UsageError
from logqueue.cli.output import TableColumn, number
from logqueue.cli.terminal import Bar
from logqueue.errors import quoted

if TYPE_CHECKING:
    from logqueue.cli.check import Report
    from logqueue.client import Client
    from logqueue.replica.reading import ReplicaReader
    from logqueue.replica.restoring import Cut, Restored, RestoreProgress
    from logqueue.shapes import TopicEntry

REFRESH_S = 0.2
CATCH_UP_S = 30.0
URL_HELP = "URL of the replica: file:///DIR, s3://BUCKET/PREFIX, gs://… or az://…"
_MS = re.compile(r"\d{12,14}", re.ASCII)


def add_to(commands: Commands) -> None:
    """Declare the commands."""
    replica = commands.add(
        "replica",
        _named_only,
        "look at, verify or clean up the replica of a log in object storage",
        examples=(
            "logqueue replica status s3://backups/logqueue",
            "logqueue replica verify s3://backups/logqueue --url http://127.0.0.1:4000",
            "logqueue replica gc file:///mnt/nas/logqueue --dry-run",
        ),
    )
    actions = replica.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, run, what in (
        ("status", _status, "who writes it, what it holds, how far back it reaches"),
        ("verify", _verify, "read everything, check it and replay it"),
        ("gc", _gc, "remove objects that no restore reads, while no server writes"),
    ):
        parser = actions.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        parser.set_defaults(run=run, parser=parser)
        parser.add_argument("replica", metavar="URL", help=URL_HELP)
        add_json(parser)
        if name == "verify":
            _add_verify(parser)
        elif name == "gc":
            _add_gc(parser)


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        default=argparse.SUPPRESS,
        help="compare logs and topics with those of this server, the writer",
    )
    parser.add_argument("--token", metavar="KEY", default=argparse.SUPPRESS, help="its API key")
    add_retrying(parser)
    parser.add_argument(
        "--no-replay",
        action="store_true",
        help="check the objects only; without it a copy is restored to a temporary directory",
    )


def _add_gc(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only count; remove nothing")
    parser.add_argument(
        "--watch",
        type=duration_s,
        default=10.0,
        metavar="TIME",
        help="how long the writer must be at rest (default: 10s)",
    )
    parser.add_argument(
        "--keep",
        type=duration_ms,
        metavar="TIME",
        help="also remove segments that no moment since that long ago needs, such as 7d",
    )
    parser.add_argument("--force", action="store_true", help="do not look whether a server writes")


def add_restore(parser: argparse.ArgumentParser) -> None:
    """The flags of `restore` that are for replicas."""
    parser.add_argument("--to", metavar="DIR", help="of a replica: the data directory to make")
    moment = parser.add_mutually_exclusive_group()
    moment.add_argument(
        "--at",
        type=moment_ms,
        metavar="TIME",
        help="of a replica: as of then: 2026-11-22T18:00:00Z, ms since the epoch, or 10m for that "
        "long ago",
    )
    moment.add_argument(
        "--order", type=int, metavar="N", help="of a replica: up to this transaction"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="of a replica: only say what it would hold"
    )


def moment_ms(text: str) -> int:
    """A time in ms since the epoch.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    if _MS.fullmatch(text):
        return int(text)
    if DURATION.fullmatch(text) and not text.isdigit():
        return time.time_ns() // 1_000_000 - duration_ms(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"invalid time {quoted(text)}: use 2026-11-22T18:00:00Z (without Z: the time zone of "
            "this machine), ms since the epoch, or 10m for that long ago"
        ) from None


def _named_only(arguments: argparse.Namespace) -> int:
    arguments.parser.print_help()
    return exits.USAGE


# -- commands ------------------------------------------------------------------------------------


def _status(arguments: argparse.Namespace) -> int:
    from logqueue.replica.verifying import overview

    with _explained():
        found = overview(_reader(arguments.replica))
    manifest = found.manifest
    fields: dict[str, Any] = {
        "url": found.url,
        "log_id": manifest.log_id,
        "epoch": manifest.epoch,
        "writer": {"id": manifest.writer.id, "address": manifest.writer.address},
        "released": manifest.is_released,
        "heartbeat": found.beat,
        "logs": {
            log.name: {
                "segments": log.segments,
                "bytes": log.bytes,
                "first_frame": log.first,
                "last_frame": log.last,
                "last_at": log.last_at,
                "kept_from": manifest.kept_from.get(log.name, 0),
            }
            for log in found.logs
        },
        "start_chunk": manifest.start_chunk,
        "last_chunk": found.last_chunk,
        "chunks": found.chunks,
        "chunk_bytes": found.chunk_bytes,
        "garbage_before": manifest.garbage_before,
        "reaches_back_to": manifest.reaches_back_to,
        "objects": found.objects,
        "bytes": found.bytes,
    }
    if arguments.json:
        output.json_line(fields)
        return exits.OK
    output.facts(
        (
            ("replica", found.url),
            ("log", manifest.log_id),
            ("epoch", manifest.epoch),
            ("writer", manifest.writer.address or manifest.writer.id),
            ("handed over", "yes" if manifest.is_released else None),
            ("heartbeat", found.beat),
            ("chunks", f"{manifest.start_chunk} to {found.last_chunk}" if found.chunks else "none"),
            ("in chunks", output.size(found.chunk_bytes)),
            ("reaches back to", output.when(manifest.reaches_back_to or None) or "the beginning"),
            ("objects", found.objects),
            ("size", output.size(found.bytes)),
        )
    )
    output.line("")
    columns: tuple[Any, ...] = (TableColumn("log"), number("segments"), number("last frame"))
    output.table(
        (*columns, TableColumn("size"), TableColumn("until")),
        (
            (
                log.name,
                log.segments,
                log.last,
                output.size(log.bytes),
                output.when(log.last_at or None),
            )
            for log in found.logs
        ),
    )
    return exits.OK


def _verify(arguments: argparse.Namespace) -> int:
    from logqueue.cli import check
    from logqueue.replica.verifying import verify

    reader = _reader(arguments.replica)
    before = _topics_of(arguments) if arguments.url is not None else None
    with _explained(), _progress("verifying") as note:
        found = verify(reader, note)
    problems = [*found.problems]
    report: Report | None = None
    differing: list[str] = []
    if not problems and not arguments.no_replay:
        with tempfile.TemporaryDirectory(prefix="logqueue-verify-") as folder:
            _restored(reader, Path(folder), None, "replaying")
            report = check.examine(Path(folder))
            problems += report.problems
            if before is not None and not problems:
                differing = _differences(arguments, before, Path(folder))
                problems += differing
    fields = {
        "url": reader.store.url,
        "sound": not problems,
        "problems": problems,
        "bytes": found.bytes,
        "frames": found.frames,
        "state": report.held if report is not None else None,
    }
    if arguments.json:
        output.json_line(fields)
    else:
        _show_verified(reader.store.url, problems, report, found.bytes)
    if problems:
        raise CommandError(
            "this replica is not sound; see the page on replication, under damage"
            if not differing
            else "the replica and the server differ"
        )
    return exits.OK


def _show_verified(url: str, problems: list[str], report: Report | None, size: int) -> None:
    for problem in problems:
        output.line(output.printable(f"PROBLEM: {problem}"))
    if report is not None and report.held is not None:
        output.facts((name.replace("_", " "), value) for name, value in report.held.items())
    output.line(f"{url}: {'NOT SOUND' if problems else 'sound'}, {output.size(size)} read")


def _gc(arguments: argparse.Namespace) -> int:
    from logqueue.replica.collecting import collect
    from logqueue.replica.liveness import is_at_rest
    from logqueue.replica.object_store import ObjectChanged
    from logqueue.replica.verifying import needless

    reader = _reader(arguments.replica)
    now, keep_ms = time.time_ns() // 1_000_000, arguments.keep or 0
    with _explained():
        if not arguments.force and not is_at_rest(reader, arguments.watch):
            raise CommandError(
                "a server writes this replica, and removes what is not needed by itself; --force "
                "does it all the same"
            )
        try:
            count = (
                needless(reader, now=now, keep_ms=keep_ms)
                if arguments.dry_run
                else collect(reader.store, now=now, keep_ms=keep_ms)
            )
        except ObjectChanged:
            raise CommandError("a server has changed the manifest meanwhile; try again") from None
    if arguments.json:
        output.json_line({"objects": count, "dry_run": arguments.dry_run})
    else:
        done = "would be removed" if arguments.dry_run else "removed"
        output.line(f"{output.count_of(count, 'object')} {done}")
    return exits.OK


def restore_replica(arguments: argparse.Namespace) -> int:
    """`restore` of a replica's URL."""
    from logqueue.replica.restoring import Cut

    target = arguments.to or arguments.directory
    if target is None and not arguments.dry_run:
        raise UsageError("name the data directory to make with --to DIR")
    if arguments.to and arguments.directory:
        raise UsageError("name the data directory once, with --to DIR")
    cut = None
    if arguments.at is not None or arguments.order is not None:
        cut = Cut(arguments.at, arguments.order)
    if target is not None:
        require_free(Path(target))
    reader = _reader(arguments.copy)
    if arguments.dry_run:
        with tempfile.TemporaryDirectory(prefix="logqueue-restore-") as folder:
            return _report(arguments, *_made(reader, Path(folder), cut), "")
    directory = Path(target).absolute()
    # What is not whole must never look like a data directory.
    draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}.part-", dir=directory.parent))
    try:
        restored, report = _made(reader, draft, cut)
        draft.chmod(0o750)
        draft.rename(directory)
        sync(directory.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return _report(arguments, restored, report.renamed(str(draft), target), target)


def _report(arguments: argparse.Namespace, restored: Restored, report: Report, target: str) -> int:
    if arguments.json:
        fields = report.as_fields() | {
            "directory": target or None,
            "last_order": restored.last_order,
            "last_at": restored.last_at,
            "chunk": restored.chunk,
            "epoch": restored.epoch,
        }
        output.json_line(fields)
    else:
        held = report.held or {}
        output.facts((name.replace("_", " "), value) for name, value in held.items())
        output.facts(
            (
                ("last transaction", restored.last_order),
                ("happened at", output.when(restored.last_at or None)),
            )
        )
        for problem in report.problems:
            output.line(output.printable(f"PROBLEM: {problem}"))
    size = output.size(restored.bytes)
    output.say(f"restored to {target}: {size}" if target else f"would be restored: {size}")
    if not report.is_sound:
        raise CommandError("what was restored is not sound: `logqueue replica verify` says more")
    return exits.OK


# -- parts ---------------------------------------------------------------------------------------


def _reader(url: str) -> ReplicaReader:
    from logqueue.replica.object_store import StoreRefused
    from logqueue.replica.opening import BadReplicaUrl, open_store
    from logqueue.replica.reading import ReplicaReader
    from logqueue.replica.restoring import PARALLEL

    try:
        return ReplicaReader(open_store(url), parallel=PARALLEL)
    except BadReplicaUrl as error:
        raise UsageError(str(error)) from None
    except StoreRefused as error:
        raise CommandError(str(error)) from None


@contextmanager
def _explained() -> Iterator[None]:
    """Errors of replicas and stores as ends of a command."""
    from logqueue.replica.object_store import StoreError
    from logqueue.replica.reading import ReplicaMissing, ReplicaUnreadable
    from logqueue.replica.restoring import RestoreRefused

    try:
        yield
    except ReplicaMissing as error:
        raise NothingThere(str(error)) from None
    except (ReplicaUnreadable, RestoreRefused, StoreError) as error:
        raise CommandError(str(error)) from None


def _made(reader: ReplicaReader, directory: Path, cut: Cut | None) -> tuple[Restored, Report]:
    from logqueue.cli import check

    restored = _restored(reader, directory, cut, "restoring")
    return restored, check.examine(directory)


def _restored(reader: ReplicaReader, directory: Path, cut: Cut | None, what: str) -> Restored:
    from logqueue.replica.restoring import restore
    from logqueue.server.storage.data_directory import LogsRecord, write_known
    from wal import OsFileSystem

    files = OsFileSystem()
    with _explained(), _progress(what) as note:
        made = restore(
            reader.store, files, str(directory), cut, progress=note, parallel=reader.parallel
        )
    known = {"jobs": LogsRecord(made.log_id, 1), "leases": LogsRecord(made.leases_id, 1)}
    write_known(files, str(directory), known)
    return made


@contextmanager
def _progress(what: str) -> Iterator[Any]:
    """A bar on stderr, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    bar, lock = Bar(sys.stderr), threading.Lock()
    began = shown = time.monotonic()

    def note(progress: RestoreProgress) -> None:
        nonlocal shown
        with lock:
            now = time.monotonic()
            if now - shown >= REFRESH_S:
                shown = now
                rate = output.size(int(progress.done / (now - began)))
                share = progress.done / progress.total if progress.total else None
                bar.show(what, share, f"{output.size(progress.done)}, {rate}/s")

    try:
        yield note
    finally:
        bar.close()


# -- comparing with a server ---------------------------------------------------------------------


def _topics_of(arguments: argparse.Namespace) -> dict[str, TopicEntry]:
    """The topics of the server, all of which is in the replica when this returns."""
    from logqueue.cli.connection import connect

    with connect(arguments) as client:
        found = {state.topic: state for state in client.topics()}
        _wait_for_replica(client)
    return found


def _wait_for_replica(client: Client) -> None:
    end = time.monotonic() + CATCH_UP_S
    while time.monotonic() < end:
        status = client.replica()
        if status.role == "none":
            raise CommandError("the server at --url has no replica: start it with --replica")
        if not status.lag_bytes:
            return
        time.sleep(0.2)
    raise CommandError(f"the replica is behind the server for more than {CATCH_UP_S:.0f} s")


def _differences(
    arguments: argparse.Namespace, before: dict[str, TopicEntry], directory: Path
) -> list[str]:
    """Bytes of both logs that differ, and topics that were the same all the time on the server and
    are others in the replica."""
    from logqueue.cli.connection import connect
    from logqueue.cli.log_comparing import compare_logs
    from logqueue.cli.overlay_fs import UnchangingFileSystem
    from logqueue.server.runtime import read_state
    from logqueue.server.settings import Settings

    with connect(arguments) as client:
        after = {state.topic: state for state in client.topics()}
        logs = compare_logs(client, directory)
    state = read_state(Settings(data_dir=str(directory)), UnchangingFileSystem())
    found = [*logs.problems]
    skipped = 0
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after or _facts(before[name]) != _facts(after[name]):
            skipped += 1
            continue
        topic = state.topics.get(name)
        wanted = _facts(after[name])
        if topic is None:
            found.append(f"topic {quoted(name)} is not in the replica")
        elif topic.config.durability == "ephemeral":
            skipped += 1
        elif (topic.earliest_seq, topic.live, topic.live_bytes) != wanted:
            found.append(
                f"topic {quoted(name)} has earliest seq, records and bytes {wanted} on the server, "
                f"and {(topic.earliest_seq, topic.live, topic.live_bytes)} in the replica"
            )
    output.say(
        f"compared {output.size(logs.bytes)} of both logs and "
        f"{output.count_of(len(before) - skipped, 'topic')} with the server"
        + (f"; {skipped} changed meanwhile or are in memory only" if skipped else "")
    )
    return found


def _facts(state: TopicEntry) -> tuple[int, int, int]:
    return state.earliest_seq, state.count, state.bytes
