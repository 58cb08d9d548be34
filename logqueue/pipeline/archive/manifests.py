"""The layout of an archive, and the manifests that say which files count.

Owns: paths below the root, what a manifest holds, its writing and reading, where each topic ends,
the lock of a writer. Must not know: pyspark, how rows become files, Delta.

    <root>/_schema.json                              versions of the tables
    <root>/_manifest/<table>-<n>/<epoch>.json        one per micro-batch, 10 digits; n counts
                                                     checkpoints: a lost one begins the next
    <root>/_manifest/<table>-compact/<n>.json        files that supersede others
    <root>/_manifest/<table>.ends.json               where each topic ends; rebuilt from the
                                                     manifests when it does not fit them
    <root>/_checkpoint/<table>-<n>/                  of Spark
    <root>/<table>/topic=<t>/date=<yyyy-mm-dd>/<first>-<last>-<log_id>.parquet

Tables are `records`, whose places are seqs, and `lease_events`, whose places are orders of the log.
First and last are 20 digits; the date is that of the first record in UTC; the log_id tells a topic
from one that had its name before. Only what a manifest names counts: a file without one is left
over from a task that was tried again, and no reader here ever looks for it. Manifests are never
changed. Roots are local or mounted directories.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self
from urllib.parse import quote

import msgspec

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading.offsets import EventsOffset, Place, RecordsOffset

Table = Literal["records", "lease_events"]
TABLES: Final[tuple[Table, ...]] = ("records", "lease_events")
PLACE_COLUMNS: Final[Mapping[str, str]] = {"records": "seq", "lease_events": "lseq"}
"""The column of each table that ranges are of."""

VERSION: Final = 1
TOPIC_CHARS_MAX: Final = 180
"""Longer names are cut in paths and get a digest: a directory's name has 255 bytes at most."""

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+://")


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file.

    Attributes:
        path: Below the root, with forward slashes.
        first, last: The lowest and the highest place in it.
        min_ts, max_ts: In ms since the epoch.
    """

    path: str
    topic: str
    log_id: str
    first: int
    last: int
    rows: int
    bytes: int
    sha256: str
    min_ts: int
    max_ts: int


class Hole(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Seqs without a record: the log had none when they were archived.

    A server that ended hard steps over seqs it had reserved; a log without an archive of its own
    drops records that are done, at its beginning above all. From seq 1 on, ranges are
    contiguous but for these.
    """

    topic: str
    log_id: str
    first: int
    last: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What one epoch has added, or one compaction has put in place of other files.

    Attributes:
        archive: The directory it is in.
        holes: Of `records`, from where each topic ended before; a new one from seq 1.
        supersedes: Paths of files that no longer count.
    """

    v: int = VERSION
    table: str
    archive: str
    epoch: int
    files: list[FileEntry]
    holes: list[Hole] = []
    supersedes: list[str] = []


class _Ends(msgspec.Struct, frozen=True):
    """Where each topic ends, as of one epoch."""

    archive: str
    epoch: int
    ends: list[tuple[str, str, int]]


Ends = dict[tuple[str, str], int]
"""The highest place by topic and log_id."""

_read_manifest = msgspec.json.Decoder(Manifest).decode
_read_ends = msgspec.json.Decoder(_Ends).decode


# -- paths ----------------------------------------------------------------------------------------


def local_root(text: str) -> Path:
    """The root of an archive as a path.

    Raises:
        PipelineError: It is a URL of something that is not a directory here.
    """
    text = text.removeprefix("file://") if text.startswith("file://") else text
    if _SCHEME.match(text):
        raise PipelineError(
            f"{text} is not a directory: archives need a local or mounted one. For an object "
            "store, archive to a directory and copy it there; files that are in a manifest never "
            "change"
        )
    return Path(text).absolute()


def require_table(table: str) -> Table:
    """A table's name.

    Raises:
        PipelineError: An archive has no such table.
    """
    for known in TABLES:
        if table == known:
            return known
    raise PipelineError(f"an archive has no table {quoted(table)}: it has {' and '.join(TABLES)}")


def topic_folder(topic: str) -> str:
    """The directory of a topic; names that are too long or not plain are written otherwise."""
    name = quote(topic, safe="")
    if len(name) > TOPIC_CHARS_MAX:
        digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
        name = f"{name[:TOPIC_CHARS_MAX]}~{digest}"
    return f"topic={name}"


def date_of(ms: int) -> str:
    """The day of a time, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")


def file_path(table: Table, topic: str, log_id: str, first: int, last: int, min_ts: int) -> str:
    """The path of a file below the root: a function of its range, and the date that begins it."""
    name = f"{first:020d}-{last:020d}-{quote(log_id, safe='')}.parquet"
    return f"{table}/{topic_folder(topic)}/date={date_of(min_ts)}/{name}"


def archive_ids(root: Path, table: Table) -> list[str]:
    """The ids under which a table was archived, oldest first."""
    found = {
        path.name
        for parent in ("_manifest", "_checkpoint")
        for path in (root / parent).glob(f"{table}-[0-9]*")
        if path.name.removeprefix(f"{table}-").isdigit() and path.is_dir()
    }
    return sorted(found)


def compaction_id(table: Table) -> str:
    """The directory of the manifests that supersede files."""
    return f"{table}-compact"


def manifest_path(root: Path, archive: str, epoch: int) -> Path:
    """The path of the manifest of an epoch."""
    return root / "_manifest" / archive / f"{epoch:010d}.json"


# -- reading --------------------------------------------------------------------------------------


def load(path: Path) -> Manifest:
    """Read one manifest.

    Raises:
        PipelineError: It is none, or one of a later version.
    """
    try:
        manifest = _read_manifest(path.read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PipelineError(
            f"manifest {path} cannot be read: {error}; restore it from a backup"
        ) from error
    if manifest.v > VERSION:
        raise PipelineError(f"manifest {path} is of a later version: use a newer logqueue")
    return manifest


def epochs(root: Path, archive: str) -> list[int]:
    """The epochs that have a manifest, ascending."""
    folder = root / "_manifest" / archive
    return sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit())


def manifests(root: Path, table: Table) -> Iterator[Manifest]:
    """The manifests of all epochs of a table, oldest first; compactions come last.

    A compaction that ends in between is seen whole or not at all.
    """
    for archive in [*archive_ids(root, table), compaction_id(table)]:
        for epoch in epochs(root, archive):
            yield load(manifest_path(root, archive, epoch))


def require_archive(root: Path) -> None:
    """Refuse a directory that holds no archive.

    Raises:
        PipelineError: It holds none.
    """
    if not (root / "_schema.json").is_file():
        raise PipelineError(
            f"{root} holds no archive: make one with logqueue pipeline archive --to {root}"
        )


def live_entries(root: Path, table: Table) -> list[FileEntry]:
    """The files that count, in the order in which they were archived."""
    require_archive(root)
    found: dict[str, FileEntry] = {}
    gone: set[str] = set()
    for manifest in manifests(root, table):
        found.update((entry.path, entry) for entry in manifest.files)
        gone.update(manifest.supersedes)
    return [entry for path, entry in found.items() if path not in gone]


def archive_files(root: str, table: str) -> list[str]:
    """The Parquet files of a table, from its manifests: what any reader of Parquet may read.

    Args:
        root: Of the archive.
        table: `records` or `lease_events`.

    Raises:
        PipelineError: There is no such archive or table, or a manifest is damaged.
    """
    place = local_root(root)
    return [str(place / entry.path) for entry in live_entries(place, require_table(table))]


def holes(root: Path, table: Table) -> list[Hole]:
    """All ranges of seqs without a record, by topic and seq."""
    return sorted(hole for manifest in manifests(root, table) for hole in manifest.holes)


def ends(root: Path, table: Table, before: tuple[str, int] | None = None) -> Ends:
    """Where each topic ends.

    Args:
        before: An archive id and an epoch that are about to be written: it and what follows does
            not count. Makes use of what the epoch before it has noted.
    """
    if before is not None:
        noted = _noted_ends(root, table)
        if noted is not None and (noted.archive, noted.epoch) == (before[0], before[1] - 1):
            return {(topic, log_id): last for topic, log_id, last in noted.ends}
    found: Ends = {}
    for archive in archive_ids(root, table):
        for epoch in epochs(root, archive):
            if before is not None and (archive, epoch) >= before:
                return found
            advance(found, load(manifest_path(root, archive, epoch)).files)
    return found


def advance(known: Ends, files: Iterable[FileEntry]) -> None:
    """Move ends to behind these files. The latest instance of the topic comes last."""
    for entry in files:
        key = (entry.topic, entry.log_id)
        known[key] = max(known.pop(key, 0), entry.last)


def restart_offsets(root: Path, table: Table) -> str | None:
    """Where a stream without a checkpoint continues, as its offset; None when nothing is archived.

    Topics that have no rows in the archive begin at their earliest. Of `lease_events` all topics
    go on behind the last order.
    """
    known = ends(root, table)
    if not known:
        return None
    if table == "records":
        places = {topic: Place(log_id, last + 1) for (topic, log_id), last in known.items()}
        return json.dumps(RecordsOffset(places).json(), separators=(",", ":"))
    latest = _identity([*known][-1][1])
    order = max(last for (_, log_id), last in known.items() if _identity(log_id) == latest)
    return json.dumps(EventsOffset(latest, order + 1).json(), separators=(",", ":"))


def _identity(log_id: str) -> str:
    """The log that a topic's `log_id` is of."""
    return log_id.rpartition("-")[0]


# -- writing --------------------------------------------------------------------------------------


def encode(manifest: Manifest) -> bytes:
    """The bytes of a manifest; equal for equal ones."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def create(root: Path, manifest: Manifest) -> bool:
    """Write a manifest unless there is one; false when there was.

    It is written completely or not at all, and is on disk when this returns.
    """
    path = manifest_path(root, manifest.archive, manifest.epoch)
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    write_synced(temporary, encode(manifest))
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_folder(path.parent)
    return True


def note_ends(root: Path, table: Table, archive: str, epoch: int, known: Ends) -> None:
    """Keep where topics end as of an epoch, for the next one."""
    noted = _Ends(
        archive, epoch, [(topic, log_id, last) for (topic, log_id), last in known.items()]
    )
    path = root / "_manifest" / f"{table}.ends.json"
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(msgspec.json.encode(noted))
    temporary.replace(path)


def _noted_ends(root: Path, table: Table) -> _Ends | None:
    try:
        return _read_ends((root / "_manifest" / f"{table}.ends.json").read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def begin(root: Path) -> None:
    """Make an archive's directory unless it is one.

    Raises:
        PipelineError: It holds something else, or cannot be made.
    """
    path = root / "_schema.json"
    try:
        if path.exists():
            return
        if root.exists() and any(not child.name.startswith("_lock") for child in root.iterdir()):
            raise PipelineError(
                f"{root} is not an archive, and not empty: give a new directory to archive to"
            )
        make_folder(root)
        temporary = root / f"._schema.json.{os.getpid()}.tmp"
        write_synced(temporary, b'{"v":1,"tables":{"records":1,"lease_events":1}}\n')
        temporary.replace(path)
        sync_folder(root)
    except OSError as error:
        raise PipelineError(f"an archive cannot be made in {root}: {error.strerror}") from error


def make_folder(folder: Path) -> None:
    """Make a directory and those above it, on the disk when this returns."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file, on the disk when this returns."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Put a directory's names onto the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class Lock:
    """That only one process does a kind of work on an archive. Use it as a context manager.

    The system releases it when its holder ends, however it ends: a lock file left over
    blocks no other process.
    """

    def __init__(self, root: Path, work: Literal["archive", "compact"]) -> None:
        self._path = root / f"_lock-{work}"
        self._work = work
        self._number: int | None = None

    def __enter__(self) -> Self:
        """Take it.

        Raises:
            PipelineError: Another process holds it; the message names that.
        """
        make_folder(self._path.parent)
        number = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(number, 1000).decode("utf-8", "replace").strip() or "another process"
            os.close(number)
            raise PipelineError(
                f"{holder} is working on {self._path.parent} ({self._work}): wait for it, or end it"
            ) from error
        os.ftruncate(number, 0)
        os.write(number, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        self._number = number
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._number is not None:
            os.close(self._number)
            self._number = None
