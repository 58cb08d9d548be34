"""The stream sink `logqueue-archive`: micro-batches as Parquet files named by their ranges.

Owns: how executors turn rows into files, and what the driver checks before a manifest makes them
count. Must not know: where the rows come from.

A file is a function of what it holds: the same topic and range gives the same bytes, whichever
task writes it how often. It is written beside its place, synced and renamed; it counts when the
manifest of its epoch names it. A micro-batch that comes again finds its manifest, and is held
against it: Spark repeats the last one after a crash, perhaps divided into other files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from logqueue.errors import quoted
from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.manifests import PLACE_COLUMNS, FileEntry, Hole, Manifest, Table
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.checking import require_files, unwritable
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.storage.tree import FileTree

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT: Final = "logqueue-archive"
FILE_ROWS_MAX: Final = 1_000_000
FILE_BYTES_MAX: Final = 256 << 20
"""Of Arrow columns in memory, about ten times what the file has."""
ROW_GROUP_ROWS: Final = 131_072
DIGEST_PART_BYTES: Final = 1 << 20

_OPTIONS: Final = ("path", "table", "archive", "delta", "checkpointlocation", "queryname")
_NEEDED: Final = ("topic", "log_id", "ts")


@dataclass(frozen=True)
class FileWritten:
    """A file and the ranges of places in it without gaps."""

    entry: FileEntry
    runs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PartArchived(WriterCommitMessage):
    """What one task has written."""

    files: tuple[FileWritten, ...]


class ArchiveSink(DataSource):
    """The format `logqueue-archive`, for streams. `run_archive` is the ordinary way to use it.

    Options: `path` (the archive's root), `table` (`records` or `lease_events`), `archive` (the id
    that goes with the checkpoint), `delta` (true keeps a Delta table beside it).
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> ArchiveWriter:
        """The writer of a query."""
        return archive_writer(self.options, schema, overwrite)


def archive_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> ArchiveWriter:
    """The writer of `df.writeStream.format("logqueue-archive")`.

    Raises:
        PipelineError: An option is wrong, a column is missing, or the output mode is complete.
    """
    given = {key.lower(): value for key, value in options.items()}
    for key in given:
        if key not in _OPTIONS:
            raise PipelineError(
                f"option {key} is unknown to format {FORMAT}: it knows {', '.join(_OPTIONS[:4])}"
            )
    if overwrite:
        raise PipelineError("an archive is appended to: use outputMode append")
    for key in _OPTIONS[:3]:
        if not given.get(key):
            raise PipelineError(f"option {key} is missing: format {FORMAT} needs it")
    table = manifests.require_table(given["table"])
    archive = given["archive"]
    if not archive.removeprefix(f"{table}-").isdigit():
        raise PipelineError(
            f"option archive is {quoted(archive)}: write {table}-1, or another number"
        )
    columns = tuple(schema.fieldNames())
    for name in (*_NEEDED, PLACE_COLUMNS[table]):
        if name not in columns:
            raise PipelineError(f"column {name} is missing: table {table} needs it")
    root = open_tree(given["path"])
    return ArchiveWriter(root, table, archive, given.get("delta", "false").lower() == "true")


class ArchiveWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query into one table."""

    def __init__(self, root: FileTree, table: Table, archive: str, delta: bool = False) -> None:
        self._root = root
        self._table: Table = table
        self._archive = archive
        self._delta = delta

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartArchived:
        """Write the files of one partition. Runs in an executor."""
        return PartArchived(tuple(_files(self._root, self._table, iterator)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make a micro-batch count. Runs on the driver, in another process than the last one.

        Raises:
            PipelineError: It was archived with other content, or does not follow what is there.
        """
        written: list[FileWritten] = []
        for message in messages:
            if not isinstance(message, PartArchived):
                raise PipelineError("a task gave no answer, so nothing is archived; run it again")
            written += message.files
        settle(self._root, self._table, self._archive, batchId, written)
        if self._delta:
            from logqueue.pipeline.engines.spark.archive.delta import sync

            sync(self._root, self._table)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: Spark also calls this when the manifest is written and its answer lost.

        Files in no manifest are deleted by the compaction, a day later.
        """


# -- in a task ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Gathered:
    """Rows of one topic that make no file yet."""

    slices: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0


def _files(
    root: FileTree, table: Table, batches: Iterable[pa.RecordBatch]
) -> Iterator[FileWritten]:
    """Write the rows of a partition, a file for each topic, or more when there are very many."""
    gathered: dict[tuple[str, str], _Gathered] = {}
    for batch in batches:
        for key, part in _by_topic(batch):
            whole = gathered.setdefault(key, _Gathered())
            whole.slices.append(part)
            whole.rows += part.num_rows
            whole.bytes += part.nbytes
            if whole.rows >= FILE_ROWS_MAX or whole.bytes >= FILE_BYTES_MAX:
                yield write_rows(root, table, pa.Table.from_batches(gathered.pop(key).slices))
    for whole in gathered.values():
        yield write_rows(root, table, pa.Table.from_batches(whole.slices))


def _by_topic(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, str], pa.RecordBatch]]:
    """The rows of each topic of a batch, in their order."""
    if not batch.num_rows:
        return
    # log_ids alone tell topics apart; names come along, for the key.
    coded = batch.column(batch.schema.get_field_index("log_id")).dictionary_encode()
    topics = batch.column(batch.schema.get_field_index("topic"))
    for code, log_id in enumerate(coded.dictionary.to_pylist()):
        rows = batch if len(coded.dictionary) == 1 else batch.filter(pc.equal(coded.indices, code))
        topic = topics[pc.index(coded.indices, pa.scalar(code, coded.indices.type)).as_py()].as_py()
        yield (topic, log_id), rows


def write_rows(root: FileTree, table: Table, rows: pa.Table, suffix: str = "") -> FileWritten:
    """Write one file of rows of one topic, in the order of their places, and put it in its place.

    Args:
        suffix: Follows the range in the name, for rows merged from other files.

    Raises:
        PipelineError: Of `records`, a seq comes twice.
    """
    place = PLACE_COLUMNS[table]
    rows = rows.combine_chunks().sort_by(place)
    runs = _runs(rows.column(place), table, rows)
    topic, log_id = rows.column("topic")[0].as_py(), rows.column("log_id")[0].as_py()
    times = pc.min_max(pc.cast(rows.column("ts"), pa.timestamp("ms", "UTC"), safe=False))
    min_ts, max_ts = (int(times[name].value) for name in ("min", "max"))
    first, last = runs[0][0], runs[-1][1]
    began = pc.cast(rows.column("ts")[0], pa.timestamp("ms", "UTC"), safe=False).value
    path = manifests.file_path(table, topic, log_id, first, last, int(began))
    path = path.removesuffix(".parquet") + suffix + ".parquet"
    path, size, digest = _put(root, path, rows)
    entry = FileEntry(
        path=path,
        topic=topic,
        log_id=log_id,
        first=first,
        last=last,
        rows=rows.num_rows,
        bytes=size,
        sha256=digest,
        min_ts=min_ts,
        max_ts=max_ts,
    )
    return FileWritten(entry, runs)


def _runs(places: pa.ChunkedArray, table: Table, rows: pa.Table) -> tuple[tuple[int, int], ...]:
    """Ranges of sorted places without gaps; of events, which share orders, just their span."""
    whole = places.combine_chunks()
    if table != "records":
        return ((whole[0].as_py(), whole[-1].as_py()),)
    steps = pc.pairwise_diff(whole)
    if pc.any(pc.less_equal(steps, 0)).as_py():
        twice = pc.index(pc.less_equal(steps, 0), True).as_py()
        raise _twice(rows.column("topic")[0].as_py(), whole[twice].as_py())
    breaks = pc.indices_nonzero(pc.greater(steps, 1)).to_pylist()
    firsts, lasts = [0, *breaks], [*[index - 1 for index in breaks], len(whole) - 1]
    return tuple(
        (whole[first].as_py(), whole[last].as_py())
        for first, last in zip(firsts, lasts, strict=True)
    )


def _put(root: FileTree, name: str, rows: pa.Table) -> tuple[str, int, str]:
    """Write a file beside its place and put it there; returns its name, bytes and sha256.

    A file that is there already is never written over, as a manifest may name it: when it differs
    (it was written by another version, say), this one gets a name of its own.
    """
    with root.scratch(name) as draft:
        try:
            pq.write_table(
                rows,
                draft,
                compression="zstd",
                row_group_size=ROW_GROUP_ROWS,
                coerce_timestamps="us",
            )
        except OSError as error:
            raise unwritable(root.path(name), error) from error
        digest = sha256_of(draft)
        size = os.stat(draft).st_size
        if root.info(name) is not None and digest_of(root, name) != digest:
            name = name.removesuffix(".parquet") + f"-{digest[:12]}.parquet"
        # The time of an equal file left over is renewed, so that it is not deleted now.
        root.add(draft, name)
    return name, size, digest


def sha256_of(path: str) -> str:
    """The digest of a file of this machine, in hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(DIGEST_PART_BYTES):
            digest.update(part)
    return digest.hexdigest()


def digest_of(root: FileTree, name: str) -> str | None:
    """The digest of a file, in hex; None when it is not there."""
    if root.directory is not None:
        return sha256_of(root.path(name)) if root.info(name) is not None else None
    try:
        return hashlib.sha256(root.read(name)).hexdigest()
    except FileNotFoundError:
        return None


# -- on the driver --------------------------------------------------------------------------------


def settle(
    root: FileTree, table: Table, archive: str, epoch: int, written: Iterable[FileWritten]
) -> Manifest:
    """Write the manifest of an epoch, or find that it is written already.

    Raises:
        PipelineError: The epoch holds other rows, does not follow the one before, or begins before
            the end of what is archived.
    """
    files = sorted(written, key=lambda file: (file.entry.topic, file.entry.log_id, file.runs))
    entries = [file.entry for file in files]
    if manifests.is_settled(root, archive, epoch):
        return _repeated(root, manifests.load(root, archive, epoch), entries)
    if epoch and not manifests.is_settled(root, archive, epoch - 1):
        raise PipelineError(
            f"epoch {epoch} of archive {archive} does not follow: epoch {epoch - 1} has no "
            f"manifest. Is {root.url} the place that this checkpoint belongs to? If so restore its "
            "manifests; or delete the checkpoint, and the archive continues after what it holds"
        )
    require_files(root, entries)
    known = manifests.ends(root, table, (archive, epoch))
    found = [*_holes(files, known, table)]
    manifest = Manifest(table=table, archive=archive, epoch=epoch, files=entries, holes=found)
    if not manifests.create(root, manifest):
        return _repeated(root, manifests.load(root, archive, epoch), entries)
    manifests.advance(known, entries)
    manifests.note_ends(root, table, archive, epoch, known)
    return manifest


def _holes(files: list[FileWritten], known: manifests.Ends, table: Table) -> Iterator[Hole]:
    """The seqs between the end of a topic and the end of its new files that are in none of them."""
    runs: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for file in files:
        runs.setdefault((file.entry.topic, file.entry.log_id), []).extend(file.runs)
    for (topic, log_id), spans in runs.items():
        spans.sort()
        end = known.get((topic, log_id), 0)
        if spans[0][0] <= end:
            raise _behind(topic, spans[0][0], end)
        # Orders are of the whole log: those between the events of one topic are others' events.
        for first, last in spans if table == "records" else ():
            if first <= end:
                raise _twice(topic, first)
            if first > end + 1:
                yield Hole(topic=topic, log_id=log_id, first=end + 1, last=first - 1)
            end = last


def _twice(topic: str, seq: int) -> PipelineError:
    return PipelineError(
        f"the source gave seq {seq} of topic {topic} twice in one micro-batch, so nothing is "
        "archived; audit its log with logqueue pipeline audit"
    )


def _behind(topic: str, first: int, end: int) -> PipelineError:
    return PipelineError(
        f"topic {topic} is archived up to {end}, and these rows begin at {first}: nothing was "
        "archived. The checkpoint is older than the archive; delete it, and the archive continues "
        "behind what it holds"
    )


def _repeated(root: FileTree, manifest: Manifest, entries: list[FileEntry]) -> Manifest:
    """Hold a repeat against the manifest: the same files, or the same rows in others."""
    if manifest.files == entries or _same_rows(root, manifest.files, entries):
        return manifest
    raise PipelineError(
        f"epoch {manifest.epoch} of archive {manifest.archive} was archived with other rows: "
        "nothing was changed. Do the source options name the server or log of this archive? If the "
        "checkpoint is an older one, delete it, and the archive continues after what it holds"
    )


def _same_rows(root: FileTree, known: list[FileEntry], entries: list[FileEntry]) -> bool:
    """Whether two lists of files hold the same rows, topic by topic."""
    before, after = _grouped(known), _grouped(entries)
    if before.keys() != after.keys():
        return False
    return all(_rows(root, before[key]).equals(_rows(root, after[key])) for key in before)


def _grouped(entries: list[FileEntry]) -> dict[tuple[str, str], list[FileEntry]]:
    found: dict[tuple[str, str], list[FileEntry]] = {}
    for entry in entries:
        found.setdefault((entry.topic, entry.log_id), []).append(entry)
    return found


def _rows(root: FileTree, entries: list[FileEntry]) -> Any:
    tables = [pq.read_table(root.source(entry.path), partitioning=None) for entry in entries]
    place = "seq" if "seq" in tables[0].column_names else "lseq"
    return pa.concat_tables(tables, promote_options="default").sort_by(place).combine_chunks()
