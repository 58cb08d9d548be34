"""The layout of an archive, and the manifests that say which files count.

Owns: names below the root, what a manifest holds, its writing and reading. Must not know: pyspark,
how rows become files, what kind of place the root is, Delta, what is archived next (`progress`).

    <root>/_schema.json                              versions of the tables
    <root>/_manifest/<table>-<n>/<epoch>.json        one per micro-batch, 10 digits
    <root>/_manifest/<table>-compact/<n>.json        files that supersede others
    <root>/_manifest/<table>-checkpoints/<n>.json    all of these up to a moment (`contents`)
    <root>/<table>/topic=<t>/date=<yyyy-mm-dd>/<first>-<last>-<log_id>.parquet

Tables are `records`, whose places are seqs, and `lease_events`, whose places are orders of the log.
First and last are 20 digits; the date is that of the first record in UTC; the log_id tells a topic
from one that had its name before. Only what a manifest names counts: a file without one is left
over from a task that was tried again, and no reader here ever looks for it. Manifests are never
changed, and never deleted. Roots are directories or URLs of object stores (`storage.opening`).

Archives of earlier versions also have `_checkpoint/<table>-<n>/`, of Spark streams; such an n is
not continued, so that an earlier version can still go on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.tree import FileTree

Table = Literal["records", "lease_events"]
TABLES: Final[tuple[Table, ...]] = ("records", "lease_events")
PLACE_COLUMNS: Final[Mapping[str, str]] = {"records": "seq", "lease_events": "lseq"}
"""The column of each table that ranges are of."""

VERSION: Final = 1
TOPIC_CHARS_MAX: Final = 180
"""Longer names are cut in paths and get a digest: a directory's name has 255 bytes at most."""
UNKNOWN: Final = -1
"""In place of a number that manifests of earlier versions do not have."""
SCHEMA_FILE: Final = "_schema.json"
SCHEMA_VERSIONS: Final[Mapping[str, int]] = {"records": 1, "lease_events": 1}
"""Of the columns of each table: raised when a reader of before would misread a file."""


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file.

    Attributes:
        path: Below the root, with forward slashes.
        first, last: The lowest and the highest place in it.
        min_ts, max_ts: In ms since the epoch.
        floors: Of `lease_events`, how many rows are `trimmed` events.
        job_first, job_last: Of `lease_events`, the lowest and the highest seq of a job.
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
    floors: int = UNKNOWN
    job_first: int = UNKNOWN
    job_last: int = UNKNOWN


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


class ArchivedTopic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the log says of a topic instance, as of an epoch.

    Attributes:
        is_queue: Whether its records are jobs; None when that is unknown (earlier versions).
        is_gone: It was deleted, and all that could be read of it was.
        is_paged: Its records are in no segment (class `ephemeral`).
        complete_from: From which place on the log was complete when the archive first saw it.
    """

    topic: str
    log_id: str
    is_queue: bool | None = None
    is_gone: bool = False
    is_paged: bool = False
    complete_from: int = 0


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A topic was read up to a place: of `next` and what follows, nothing is archived.

    In manifests only where that is not one after the last place in its files.
    """

    log_id: str
    next: int


class Covered(msgspec.Struct, frozen=True, kw_only=True):
    """All events of some topics of orders below `end` are archived.

    Attributes:
        log: The identity of the log.
        topics: Numbers of topic instances, as ranges.
    """

    log: str
    topics: list[tuple[int, int]]
    end: int


class Watermark(msgspec.Struct, frozen=True, kw_only=True):
    """Both tables hold all of some topics below an order: where a run has ended.

    Attributes:
        log: The identity of the log.
        order: First order that is not in both tables.
        ts: Highest time of a row up to there, ms since the epoch.
        topics: Numbers of topic instances, as ranges.
    """

    log: str
    order: int
    ts: int
    topics: list[tuple[int, int]]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What one epoch has added, or one compaction has put in place of other files.

    Attributes:
        archive: The directory it is in.
        holes: Of `records`, from where each topic ended before; a new one from seq 1.
        supersedes: Paths of files that no longer count.
        topics: Instances that are new in the archive, or of which the log says something new.
        reached: Of `records`.
        covered: Of `lease_events`; None in manifests of earlier versions.
        watermark: In the last epoch of a run, whichever table it is of.
    """

    v: int = VERSION
    table: str
    archive: str
    epoch: int
    files: list[FileEntry]
    holes: list[Hole] = []
    supersedes: list[str] = []
    topics: list[ArchivedTopic] = []
    reached: list[Reached] = []
    covered: list[Covered] | None = None
    watermark: Watermark | None = None


_read_manifest = msgspec.json.Decoder(Manifest).decode


# -- paths ----------------------------------------------------------------------------------------


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


def archive_ids(root: FileTree, table: Table) -> list[str]:
    """The ids under which a table was archived, oldest first."""
    found = [name for name in root.folders("_manifest/") if re.fullmatch(rf"{table}-[0-9]+", name)]
    return sorted(found, key=lambda name: int(name.rpartition("-")[2]))


def compaction_id(table: Table) -> str:
    """The directory of the manifests that supersede files."""
    return f"{table}-compact"


def manifest_name(archive: str, epoch: int) -> str:
    """The name of the manifest of an epoch."""
    return f"_manifest/{archive}/{epoch:010d}.json"


# -- reading --------------------------------------------------------------------------------------


def load(root: FileTree, archive: str, epoch: int) -> Manifest:
    """Read the manifest of an epoch.

    Raises:
        PipelineError: There is none, or it is one of a later version.
    """
    name = manifest_name(archive, epoch)
    try:
        content = root.read(name)
        manifest = _read_manifest(content)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PipelineError(
            f"manifest {root.path(name)} cannot be read: {error}; restore it from a backup"
        ) from error
    if manifest.v > VERSION:
        raise PipelineError(
            f"manifest {root.path(name)} is of a later version: use a newer logqueue"
        )
    return manifest


def epochs(root: FileTree, archive: str) -> list[int]:
    """The epochs that have a manifest, ascending."""
    names = (file.name.rpartition("/")[2] for file in root.files(f"_manifest/{archive}/"))
    return sorted(int(name[:-5]) for name in names if re.fullmatch(r"[0-9]+[.]json", name))


def manifests(root: FileTree, table: Table) -> Iterator[Manifest]:
    """The manifests of all epochs of a table, oldest first; compactions come last.

    A compaction that ends in between is seen whole or not at all.
    """
    for archive in [*archive_ids(root, table), compaction_id(table)]:
        for epoch in epochs(root, archive):
            yield load(root, archive, epoch)


def require_archive(root: FileTree) -> None:
    """Refuse a place that holds no archive, or one that this version would misread.

    Raises:
        PipelineError: It holds none, or was written by a later version.
    """
    try:
        content = root.read(SCHEMA_FILE)
    except FileNotFoundError:
        raise PipelineError(
            f"{root.url} holds no archive: make one with logqueue pipeline archive --to {root.url}"
        ) from None
    _require_schema(root, content)


def _require_schema(root: FileTree, content: bytes) -> None:
    name = root.path(SCHEMA_FILE)
    try:
        schema: dict[str, Any] = msgspec.json.decode(content, type=dict[str, Any])
        found = {"the layout": (int(schema["v"]), VERSION)}
        for table, version in dict(schema["tables"]).items():
            found[f"table {table}"] = (int(version), SCHEMA_VERSIONS.get(table, 0))
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, TypeError, KeyError) as error:
        raise PipelineError(
            f"{name} does not say what the archive holds ({error}): restore it from a backup"
        ) from error
    for what, (version, known) in found.items():
        if version > known:
            raise PipelineError(
                f"{name}: {what} has version {version}, and this logqueue knows up to {known}: use "
                "a newer logqueue"
            )


# -- writing --------------------------------------------------------------------------------------


def encode(manifest: Manifest) -> bytes:
    """The bytes of a manifest; equal for equal ones."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def create(root: FileTree, manifest: Manifest) -> bool:
    """Write a manifest unless there is another one; false when there is.

    It is written completely or not at all, and is durable when this returns.
    """
    return root.create(manifest_name(manifest.archive, manifest.epoch), encode(manifest))


def begin(root: FileTree) -> None:
    """Make an archive unless there is one.

    Raises:
        PipelineError: There is something else, or one of a later version, or it cannot be made.
    """
    try:
        _require_schema(root, root.read(SCHEMA_FILE))
        return
    except FileNotFoundError:
        pass
    if next(root.files(), None) is not None:
        raise PipelineError(
            f"{root.url} is not an archive, and not empty: give a new directory to archive to"
        )
    content = msgspec.json.encode({"v": VERSION, "tables": SCHEMA_VERSIONS}) + b"\n"
    root.create(SCHEMA_FILE, content)
