"""The layout of an archive, and the manifests that say which files count.

Owns: names below the root, what a manifest holds, its writing and reading, where each topic ends.
Must not know: pyspark, how rows become files, what kind of place the root is, Delta.

    <root>/_schema.json                              versions of the tables
    <root>/_manifest/<table>-<n>/<epoch>.json        one per micro-batch, 10 digits; n counts
                                                     checkpoints: a lost one begins the next
    <root>/_manifest/<table>-compact/<n>.json        files that supersede others
    <root>/_manifest/<table>.ends.json               where each topic ends; rebuilt from the
                                                     manifests when it does not fit them
    <root>/_checkpoint/<table>-<n>/                  of Spark; in directories only
    <root>/<table>/topic=<t>/date=<yyyy-mm-dd>/<first>-<last>-<log_id>.parquet

Tables are `records`, whose places are seqs, and `lease_events`, whose places are orders of the log.
First and last are 20 digits; the date is that of the first record in UTC; the log_id tells a topic
from one that had its name before. Only what a manifest names counts: a file without one is left
over from a task that was tried again, and no reader here ever looks for it. Manifests are never
changed. Roots are directories or URLs of object stores (`storage.opening`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading.offsets import EventsOffset, Place, RecordsOffset
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.storage.tree import FileTree

Table = Literal["records", "lease_events"]
TABLES: Final[tuple[Table, ...]] = ("records", "lease_events")
PLACE_COLUMNS: Final[Mapping[str, str]] = {"records": "seq", "lease_events": "lseq"}
"""The column of each table that ranges are of."""

VERSION: Final = 1
TOPIC_CHARS_MAX: Final = 180
"""Longer names are cut in paths and get a digest: a directory's name has 255 bytes at most."""
SCHEMA_FILE: Final = "_schema.json"
SCHEMA_VERSIONS: Final[Mapping[str, int]] = {"records": 1, "lease_events": 1}
"""Of the columns of each table: raised when a reader of before would misread a file."""


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
    found = {*root.folders("_manifest/"), *root.folders("_checkpoint/")}
    return sorted(name for name in found if re.fullmatch(rf"{table}-[0-9]+", name))


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


def is_settled(root: FileTree, archive: str, epoch: int) -> bool:
    """Whether an epoch has a manifest."""
    return root.info(manifest_name(archive, epoch)) is not None


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


def live_entries(root: FileTree, table: Table) -> list[FileEntry]:
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
        root: Of the archive; URLs come back for the URL of an object store.
        table: `records` or `lease_events`.

    Raises:
        PipelineError: There is no such archive or table, or a manifest is damaged.
    """
    tree = open_tree(root)
    return [tree.path(entry.path) for entry in live_entries(tree, require_table(table))]


def holes(root: FileTree, table: Table) -> list[Hole]:
    """All ranges of seqs without a record, by topic and seq."""
    return sorted(hole for manifest in manifests(root, table) for hole in manifest.holes)


def ends(root: FileTree, table: Table, before: tuple[str, int] | None = None) -> Ends:
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
            advance(found, load(root, archive, epoch).files)
    return found


def advance(known: Ends, files: Iterable[FileEntry]) -> None:
    """Move ends to behind these files. The latest instance of the topic comes last."""
    for entry in files:
        key = (entry.topic, entry.log_id)
        known[key] = max(known.pop(key, 0), entry.last)


def restart_offsets(root: FileTree, table: Table) -> str | None:
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


def create(root: FileTree, manifest: Manifest) -> bool:
    """Write a manifest unless there is another one; false when there is.

    It is written completely or not at all, and is durable when this returns.
    """
    return root.create(manifest_name(manifest.archive, manifest.epoch), encode(manifest))


def note_ends(root: FileTree, table: Table, archive: str, epoch: int, known: Ends) -> None:
    """Keep where topics end as of an epoch, for the next one."""
    noted = _Ends(
        archive, epoch, [(topic, log_id, last) for (topic, log_id), last in known.items()]
    )
    root.replace(_ends_name(table), msgspec.json.encode(noted))


def _ends_name(table: Table) -> str:
    return f"_manifest/{table}.ends.json"


def _noted_ends(root: FileTree, table: Table) -> _Ends | None:
    try:
        return _read_ends(root.read(_ends_name(table)))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


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
