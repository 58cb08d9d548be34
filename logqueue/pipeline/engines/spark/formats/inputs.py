"""What a job reads: an archive of Parquet files, the files of a log, or a server.

Owns: the choice among them, and the same two tables from each. Must not know: any job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading import options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"
EVERYTHING = ".*"


@dataclass(frozen=True)
class Input:
    """One place to read from, and which topics of it.

    Attributes:
        archive: Root of an archive that `logqueue pipeline archive` has made.
        path: A data directory, an archive of the log, or several with commas between them.
        url: Of a server.
        token, token_file: The key to call the server with, or a file that holds it.
        topics: Names; None for all, unless `pattern` is given.
        pattern: Regular expression that whole names fit.
        options: Further options of the source, such as `failOnDataLoss` or `startingOffsets`.

    Raises:
        PipelineError: Not exactly one place is named, or an option does not fit it.
    """

    archive: str | None = None
    path: str | None = None
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    topics: Sequence[str] | None = None
    pattern: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if sum(place is not None for place in (self.archive, self.path, self.url)) != 1:
            raise PipelineError(
                "name one place to read from: an archive (archive), a data directory (path) or a "
                "server (url)"
            )
        if self.topics and self.pattern is not None:
            raise PipelineError("give names of topics or a pattern, not both")
        if self.archive is not None:
            if self.options:
                raise PipelineError(
                    f"an archive takes no options of a source: {', '.join(sorted(self.options))}"
                )
        elif self.url is not None:
            options.live(self._options())
        else:
            options.offline(self._options())

    def records(self, spark: SparkSession, data: str = "string") -> DataFrame:
        """Records, in the columns that all sources have.

        Args:
            data: string, binary or none: what the column `data` holds.
        """
        if self.archive is None:
            return self._load(spark, data=data)
        rows = self._archived(spark, "records")
        if data == "string":
            return rows
        from pyspark.sql import functions as F

        made = F.col("data").cast("binary") if data == "binary" else F.lit(None).cast("string")
        return rows.withColumn("data", made)

    def events(self, spark: SparkSession) -> DataFrame:
        """Lease events, in the columns that all sources have."""
        if self.archive is None:
            return self._load(spark, events="leases")
        return self._archived(spark, "lease_events")

    def _load(self, spark: SparkSession, **further: str) -> DataFrame:
        given = {**self._options(), **further}
        pushes = spark.conf.get(PUSHDOWN_SETTING, "false")
        given.setdefault("pushdown", pushes or "false")
        format = "logqueue" if self.url is not None else "logqueue-wal"
        return spark.read.format(format).options(**given).load()

    def _options(self) -> dict[str, str]:
        given = dict(self.options)
        if self.url is not None:
            given["url"] = self.url
            if self.token_file is not None:
                given["tokenFile"] = self.token_file
            elif self.token is not None:
                given["token"] = self.token
        elif self.path is not None:
            given["path"] = self.path
        if self.topics:
            given["topics"] = ",".join(self.topics)
        else:
            given["topicPattern"] = EVERYTHING if self.pattern is None else self.pattern
        return given

    def _archived(self, spark: SparkSession, table: str) -> DataFrame:
        from pyspark.sql import functions as F

        from logqueue.pipeline.engines.spark.archive.job import read_archive

        assert self.archive is not None
        rows = read_archive(spark, self.archive, table)
        if self.topics:
            return rows.where(F.col("topic").isin(list(self.topics)))
        if self.pattern is not None:
            return rows.where(F.col("topic").rlike(f"^(?:{self.pattern})$"))
        return rows
