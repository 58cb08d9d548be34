"""The archive job on Spark: the content of a log as Parquet files, kept as long as needed.

Owns: the tasks of an epoch on executors, reading an archive as a DataFrame. Must not know: what is
read next (`archive.run`), how files and manifests are written.

There is no streaming query and no checkpoint of Spark: the manifests say how far topics are
archived. The driver plans an epoch, executors read and write it, the driver writes its manifest.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.committing import FileWritten
from logqueue.pipeline.archive.loop import ArchiveLoop, repeat
from logqueue.pipeline.archive.manifests import FileEntry, Table
from logqueue.pipeline.archive.run import ArchiveEpoch
from logqueue.pipeline.engines.spark.formats.stored_files import read_files
from logqueue.pipeline.errors import PipelineError, as_pipeline_error
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.reading import options
from logqueue.pipeline.reading.calendar import BEYOND_US, LAST_MS
from logqueue.pipeline.reading.options import Bound
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.storage.tree import FileTree
from logqueue.pipeline.stores.archive_store import ArchiveStore

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from logqueue.pipeline.stores.live_store import LiveStore
    from logqueue.pipeline.stores.wal_store import WalStore

    LogStore = LiveStore | WalStore

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
        "priority": "INT",
        "group": "STRING",
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
"""What files hold, in this order, as Spark says it."""

VARIANT_COLUMN: Final = "data_variant"
VARIANT_MARK: Final = "_variant"
EVENTS_OPTION: Final[Mapping[Table, str]] = {"records": "data", "lease_events": "leases"}
WRITTEN_DDL: Final = "written STRING"
"""What a task gives back: a `FileWritten` as JSON."""

Batches = Iterator["pa.RecordBatch"]


def read_archive(spark: SparkSession, root: str, table: str, *, times: str = "dates") -> DataFrame:
    """A table of an archive, in the schema of the sources.

    Only files that a manifest names are read. `segment` is null; of an archive made with `variant`
    the parsed column follows the others as `data_variant` (null in files made without).

    Args:
        spark: The session.
        root: Of the archive.
        table: `records` or `lease_events`.
        times: dates or all: whether times outside of the years 1 to 9999 are null.

    Raises:
        PipelineError: There is no such archive or table, or a manifest is damaged.
    """
    store = ArchiveStore(InputPlace(archive=root))
    name = manifests.require_table(table)
    return archived_rows(spark, store.tree, name, store.entries(name), times=times)


def archived_rows(
    spark: SparkSession,
    tree: FileTree,
    table: Table,
    entries: Sequence[FileEntry],
    *,
    times: str = "dates",
) -> DataFrame:
    """The rows of some files of an archive; see `read_archive`."""
    columns = dict(COLUMNS[table])
    if table == "records" and tree.info(VARIANT_MARK) is not None:
        columns[VARIANT_COLUMN] = "VARIANT"
    rows = read_files(spark, tree, [entry.path for entry in entries], columns)
    rows = _timed(rows, is_shown=times == "dates")
    if table == "records":
        shown = [f"`{name}`" for name in columns]
        shown.insert(shown.index("`log_id`"), "CAST(NULL AS STRING) AS segment")
        rows = rows.selectExpr(*shown)
    return rows


def _timed(rows: DataFrame, *, is_shown: bool) -> DataFrame:
    """Rows whose times beyond the year 9999 are null where they are shown, else as late as any."""
    from pyspark.sql import functions as F

    late = F.timestamp_millis(F.lit(LAST_MS + 1)) if not is_shown else F.lit(None)
    for name, kind in rows.dtypes:
        if kind == "timestamp" and name != "ts":
            is_late = F.unix_micros(F.col(name)) >= F.lit(BEYOND_US)
            rows = rows.withColumn(name, F.when(~is_late, F.col(name)).when(is_late, late))
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
    fail_on_data_loss: bool = True,
    note: Note = silent,
    is_over: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Archive records and lease events, from where the archive ends.

    Args:
        spark: The session.
        source: Options of the source: `url` (and `tokenFile`) for a server, `path` for files, and
            whatever else it knows.
        to: The archive's root; made when it is not there.
        topics: Names; or a `pattern` that whole names fit. All topics when neither is given.
            Another run may name others: what the archive lacks of them is read from its beginning.
        once: Stop at the present end of the log. False: run until the process is stopped.
        every_s: How often to look for news then, in seconds. An interrupt (as Ctrl-C) ends it in
            order.
        max_records: Records per micro-batch at most; 512 MiB of log when it is not given.
        variant: Keep `data` parsed as well, as VARIANT: slower to write, faster to ask.
        delta: Keep a Delta table beside the files, in the directory of each table.
        tables: Which tables to archive, in this order.
        fail_on_data_loss: False continues without what the log has lost, with a warning.
        note: Called with the progress.
        is_over: Asked between two micro-batches, and about every second by a continuous archive,
            which ends in order when it says so.

    Returns:
        Root, and by table the epochs, files, rows, bytes and ranges that this run has added.

    Raises:
        DataLossError: The log has lost something that was to be archived.
        PipelineError: Another process archives to the same place, the source cannot be read, or
            what it gives does not follow what is archived.
    """
    if not once and (every_s is None or every_s < 0):
        raise PipelineError("a continuous archive needs every_s, the seconds between two checks")
    if variant and delta:
        raise PipelineError("a Delta table of an archive holds no VARIANT: leave out one of both")
    if topics and pattern:
        raise PipelineError("give topics or a pattern, not both")
    root = open_tree(to)
    named = [manifests.require_table(table) for table in tables]
    after = _delta_table(root) if delta else _nothing
    given = dict(source)
    if not fail_on_data_loss:
        given["failOnDataLoss"] = "false"
    given |= {"topics": ",".join(topics)} if topics else {"topicPattern": pattern or ".*"}
    if max_records is not None:
        given["maxRecordsPerTrigger"] = str(max_records)
    # Also without records, they say which topics there are.
    needed: set[Table] = {"records", *named}
    stores = {table: _store(given, table) for table in needed}
    events = stores["lease_events"].given.reading if "lease_events" in stores else None
    with root.lock("archive"):
        manifests.begin(root)
        if variant:
            root.replace(VARIANT_MARK, b"")
        loop = ArchiveLoop(
            root,
            named,
            stores["records"].given.reading,
            lambda: stores["records"].moment(events),
            _SparkEpoch(spark, root, stores, variant=variant),
            after=after,
            note=note,
        )
        try:
            if once:
                loop.archive()
            else:
                assert every_s is not None
                repeat(lambda: loop.archive(is_over), every_s, is_over)
        except PipelineError:
            raise
        except Exception as error:
            raise as_pipeline_error(error) from error
    return {"job": "archive", "to": root.url, "tables": loop.summary()}


def _nothing(table: Table) -> None:
    """What follows a manifest when there is no Delta table."""


def _delta_table(root: FileTree) -> Callable[[Table], None]:
    """Brings the Delta table of a table up to date."""
    from logqueue.pipeline.engines.spark.archive.delta import require_deltalake, sync

    require_deltalake()

    def bring_up_to_date(table: Table) -> None:
        sync(root, table)

    return bring_up_to_date


def _store(given: Mapping[str, str], table: Table) -> LogStore:
    """Where one table comes from."""
    found = {**given, "events": EVENTS_OPTION[table]}
    store: LogStore
    if any(key.lower() == "url" for key in given):
        from logqueue.pipeline.stores.live_store import LiveStore

        store = LiveStore(options.live(found))
    else:
        from logqueue.pipeline.stores.wal_store import WalStore

        store = WalStore(options.offline(found))
    reading = store.given.reading
    if reading.start != Bound(options.EARLIEST) or reading.end != Bound(options.LATEST):
        raise PipelineError(
            "an archive continues where it ends: leave out startingOffsets, endingOffsets and "
            "timestamps"
        )
    return store


class _SparkEpoch:
    """Reads and writes the tasks of an epoch, each on some executor."""

    def __init__(
        self,
        spark: SparkSession,
        root: FileTree,
        stores: Mapping[Table, LogStore],
        *,
        variant: bool,
    ) -> None:
        self._spark = spark
        self._root = root
        self._stores = stores
        self._variant = variant

    def __call__(self, epoch: ArchiveEpoch) -> list[FileWritten]:
        """The files written."""
        tasks = [pickle.dumps(task) for task in epoch.tasks]
        columns = COLUMNS[epoch.table]
        reading = _reading(self._stores[epoch.table], tasks, [*columns])
        writing = _writing(self._root, epoch.table)
        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        if self._variant and epoch.table == "records":
            ddl = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
            parsed = f"try_parse_json(data) AS {VARIANT_COLUMN}"
            quoted = [f"`{name}`" for name in columns]
            rows = numbers.mapInArrow(reading, ddl).selectExpr(*quoted, parsed)
            found = rows.mapInArrow(writing, WRITTEN_DDL)
        else:
            found = numbers.mapInArrow(lambda batches: writing(reading(batches)), WRITTEN_DDL)
        return [msgspec.json.decode(row["written"], type=FileWritten) for row in found.collect()]


def _reading(
    store: LogStore, tasks: Sequence[bytes], columns: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """What executors do first: the rows of the tasks whose numbers they get."""

    def read(batches: Iterable[pa.RecordBatch]) -> Batches:
        from logqueue.pipeline.rows.moments import archived

        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in archived(store.read(pickle.loads(tasks[number]))):
                    yield rows.select(columns)

    return read


def _writing(root: FileTree, table: Table) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """What executors do with rows: files, of which they give the descriptions back."""

    def write(batches: Iterable[pa.RecordBatch]) -> Batches:
        import pyarrow as pa

        from logqueue.pipeline.rows.archive_files import write_batches

        for written in write_batches(root, table, batches):
            text = msgspec.json.encode(written).decode()
            yield pa.RecordBatch.from_arrays([pa.array([text])], ["written"])

    return write
