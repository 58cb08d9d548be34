"""The archive job: the content of a log as Parquet files, kept as long as needed.

Owns: the two streams of an archive and where they go on, reading an archive as a DataFrame. Must
not know: how files and manifests are written.

Lease events are archived first, so that every record that an event refers to is there too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.manifests import FileEntry, Table
from logqueue.pipeline.engines.spark.formats.stored_files import read_files
from logqueue.pipeline.errors import PipelineError, as_pipeline_error
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.reading.calendar import FIRST_MS, LAST_MS
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.storage.tree import FileTree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "records": {
        "topic": "STRING",
        "seq": "BIGINT",
        "ts": "TIMESTAMP",
        "tag": "STRING",
        "key": "STRING",
        "node": "STRING",
        "meta": "STRING",
        "data": "STRING",
        "size": "INT",
        "not_before": "TIMESTAMP",
        "log_id": "STRING",
    },
    "lease_events": {
        "topic": "STRING",
        "lseq": "BIGINT",
        "ts": "TIMESTAMP",
        "event": "STRING",
        "job_seq": "BIGINT",
        "lease_id": "STRING",
        "worker": "STRING",
        "deadline": "TIMESTAMP",
        "ready_at": "TIMESTAMP",
        "reason": "STRING",
        "detail": "STRING",
        "log_id": "STRING",
    },
}
"""What files hold, in this order. The segment of a record is left out: it changes when the log is
tidied, and a file is a function of its range alone."""

VARIANT_COLUMN: Final = "data_variant"
VARIANT_MARK: Final = "_variant"
EVENTS_OPTION: Final[Mapping[str, str]] = {"records": "data", "lease_events": "leases"}
POLL_S: Final = 1


def read_archive(spark: SparkSession, root: str, table: str, *, times: str = "dates") -> DataFrame:
    """A table of an archive, in the schema of the sources.

    Only files that a manifest names are read. `segment` is null; of an archive made with `variant`
    the parsed column follows the others as `data_variant` (null in files made without).

    Args:
        spark: The session.
        root: Of the archive.
        table: `records` or `lease_events`.
        times: dates or all: whether times outside of the years 1 to 9999, which archives have that
            older versions made, are null.

    Raises:
        PipelineError: There is no such archive or table, or a manifest is damaged.
    """
    name, tree = manifests.require_table(table), open_tree(root)
    files = [entry.path for entry in manifests.live_entries(tree, name)]
    columns = dict(COLUMNS[name])
    if name == "records" and tree.info(VARIANT_MARK) is not None:
        columns[VARIANT_COLUMN] = "VARIANT"
    rows = read_files(spark, tree, files, columns)
    if times == "dates":
        rows = _shown(rows)
    if name == "records":
        shown = [*columns]
        shown.insert(shown.index("log_id"), "CAST(NULL AS STRING) AS segment")
        rows = rows.selectExpr(*shown)
    return rows


def _shown(rows: DataFrame) -> DataFrame:
    """Rows with null for times outside of the years 1 to 9999."""
    from pyspark.sql import functions as F

    for name, kind in rows.dtypes:
        if kind == "timestamp" and name != "ts":
            ms = F.unix_millis(F.col(name))
            rows = rows.withColumn(name, F.when(ms.between(FIRST_MS, LAST_MS), F.col(name)))
    return rows


def run_archive(
    spark: SparkSession,
    source: Mapping[str, str],
    to: str,
    *,
    topics: Sequence[str] | None = None,
    pattern: str | None = None,
    once: bool = True,
    every_s: float | None = None,
    max_records: int | None = None,
    variant: bool = False,
    delta: bool = False,
    tables: Sequence[str] = ("lease_events", "records"),
    note: Note = silent,
    is_over: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Archive records and lease events, from where the archive ends.

    Args:
        spark: The session.
        source: Options of the source: `url` (and `tokenFile`) for a server, `path` for files, and
            whatever else it knows.
        to: The archive's root; made when it is not there. The checkpoints are in it.
        topics: Names; or a `pattern` that whole names fit. All topics when neither is given.
        once: Stop at the present end of the log. False: run until the process is stopped.
        every_s: How often to look for news then, in seconds. An interrupt (as Ctrl-C) ends it in
            order.
        max_records: Records per micro-batch at most.
        variant: Keep `data` parsed as well, as VARIANT: slower to write, faster to ask.
        delta: Keep a Delta table beside the files, in the directory of each table.
        tables: Which tables to archive, in this order.
        note: Called with the progress.
        is_over: Asked about every second by a continuous archive, which ends in order when it says
            so.

    Returns:
        Root, and by table the epochs, files, rows, bytes and ranges that this run has added.

    Raises:
        PipelineError: Another process archives to the same place, the source cannot be read, or
            what it gives does not follow what is archived.
    """
    from logqueue.pipeline.engines.spark.archive.archive_sink import ArchiveSink

    if not once and (every_s is None or every_s < 0):
        raise PipelineError("a continuous archive needs every_s, the seconds between two checks")
    if variant and delta:
        raise PipelineError("a Delta table of an archive holds no VARIANT: leave out one of both")
    if topics and pattern:
        raise PipelineError("give topics or a pattern, not both")
    root = open_tree(to)
    named = [manifests.require_table(table) for table in tables]
    if delta:
        from logqueue.pipeline.engines.spark.archive.delta import require_deltalake

        require_deltalake()
    with root.lock("archive"), _checkpoints(root) as checkpoints:
        manifests.begin(root)
        if variant:
            root.replace(VARIANT_MARK, b"")
        spark.dataSource.register(ArchiveSink)
        what = {"topics": ",".join(topics)} if topics else {"topicPattern": pattern or ".*"}
        streams = [
            _Stream(root, checkpoints, table, {**source, **what}, max_records, variant, delta)
            for table in named
        ]
        before = {stream.table: _extent(root, stream.table) for stream in streams}
        try:
            if once:
                _run_once(spark, streams, note)
            else:
                assert every_s is not None
                _run_on(spark, streams, every_s, note, is_over)
        except PipelineError:
            raise
        except Exception as error:
            raise as_pipeline_error(error) from error
        summary = {
            stream.table: _added(root, stream.table, before[stream.table]) for stream in streams
        }
    return {"job": "archive", "to": root.url, "tables": summary}


@dataclass(frozen=True)
class _Stream:
    """One of the streams of an archive.

    Attributes:
        checkpoints: Directory of the checkpoints of all streams.
    """

    root: FileTree
    checkpoints: str
    table: Table
    source: Mapping[str, str]
    max_records: int | None
    variant: bool
    delta: bool

    def start(self, spark: SparkSession, trigger: Mapping[str, Any]) -> StreamingQuery:
        """Begin, or go on."""
        archive, starting = resume(self.root, self.table)
        options = {**self.source, "events": EVENTS_OPTION[self.table]}
        if starting is not None:
            options["startingOffsets"] = starting
        if self.max_records is not None:
            options["maxRecordsPerTrigger"] = str(self.max_records)
        known = {key.lower() for key in self.source}
        format = "logqueue" if "url" in known else "logqueue-wal"
        rows = spark.readStream.format(format).options(**options).load()
        shown = [*COLUMNS[self.table]]
        if self.variant and self.table == "records":
            shown.append(f"try_parse_json(data) AS {VARIANT_COLUMN}")
        writer = (
            rows.selectExpr(*shown)
            .writeStream.format("logqueue-archive")
            .option("path", self.root.url)
            .option("table", self.table)
            .option("archive", archive)
            .option("delta", "true" if self.delta else "false")
            .option("checkpointLocation", f"file:{self.checkpoints}/{archive}")
            .outputMode("append")
        )
        return writer.trigger(**trigger).start()


@contextmanager
def _checkpoints(root: FileTree) -> Iterator[str]:
    """The directory for Spark's checkpoints. In an object store there is none: each run gets a
    directory of its own, and continues from the manifests."""
    if root.directory is not None:
        yield root.path("_checkpoint")
        return
    with TemporaryDirectory(prefix="logqueue-checkpoint-") as folder:
        yield folder


def resume(root: FileTree, table: Table) -> tuple[str, str | None]:
    """The archive id to go on with, and the offsets to start with when Spark knows of none.

    A checkpoint that is gone is not missed: the manifests tell where each topic ends. The next id
    is started then, as Spark restarts the count of epochs.
    """
    ids = manifests.archive_ids(root, table)
    latest = ids[-1] if ids else f"{table}-0001"
    offsets = root.files(f"_checkpoint/{latest}/offsets/")
    if any(file.name.rpartition("/")[2].isdigit() for file in offsets):
        return latest, None
    if manifests.epochs(root, latest):
        number = int(latest.removeprefix(f"{table}-")) + 1
        latest = f"{table}-{number:04d}"
    return latest, manifests.restart_offsets(root, table)


def _run_once(spark: SparkSession, streams: Sequence[_Stream], note: Note) -> None:
    for done, stream in enumerate(streams):
        note(f"archiving {stream.table}", done / len(streams))
        query = stream.start(spark, {"availableNow": True})
        try:
            while not query.awaitTermination(POLL_S):
                note(_progress(stream, query), None)
        finally:
            query.stop()
    note("archived", 1.0)


def _run_on(
    spark: SparkSession,
    streams: Sequence[_Stream],
    every_s: float,
    note: Note,
    is_over: Callable[[], bool],
) -> None:
    trigger = {"processingTime": f"{round(every_s * 1000)} milliseconds"}
    queries: list[StreamingQuery] = []
    try:
        # An interrupt is the ordinary end: what is under way is left to the next run.
        with suppress(KeyboardInterrupt):
            for stream in streams:
                queries.append(stream.start(spark, trigger))
            while not is_over():
                for stream, query in zip(streams, queries, strict=True):
                    if query.awaitTermination(POLL_S):
                        return
                    note(_progress(stream, query), None)
    finally:
        for query in queries:
            query.stop()


def _progress(stream: _Stream, query: StreamingQuery) -> str:
    archive = (manifests.archive_ids(stream.root, stream.table) or [f"{stream.table}-0001"])[-1]
    done = manifests.epochs(stream.root, archive)
    return f"archiving {stream.table}, {len(done)} epochs of {archive} done"


# -- summary of a run -----------------------------------------------------------------------------


def _extent(root: FileTree, table: Table) -> dict[str, int]:
    """How many epochs each archive id has."""
    return {
        archive: len(manifests.epochs(root, archive))
        for archive in manifests.archive_ids(root, table)
    }


def _added(root: FileTree, table: Table, before: Mapping[str, int]) -> dict[str, Any]:
    files: list[FileEntry] = []
    epochs: list[str] = []
    for archive in manifests.archive_ids(root, table):
        for epoch in manifests.epochs(root, archive)[before.get(archive, 0) :]:
            epochs.append(f"{archive}/{epoch}")
            files += manifests.load(root, archive, epoch).files
    ranges: dict[str, dict[str, int]] = {}
    for entry in files:
        known = ranges.setdefault(entry.topic, {"first": entry.first, "last": entry.last})
        known["first"] = min(known["first"], entry.first)
        known["last"] = max(known["last"], entry.last)
    return {
        "epochs": len(epochs),
        "first_epoch": epochs[0] if epochs else None,
        "last_epoch": epochs[-1] if epochs else None,
        "files": len(files),
        "rows": sum(entry.rows for entry in files),
        "bytes": sum(entry.bytes for entry in files),
        "topics": dict(sorted(ranges.items())),
    }
