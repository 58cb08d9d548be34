"""The range of history that a run reads: where it begins and ends, and which queues are in it.

Owns: finding it out, and the file `_range.json` beside the tables made from it. Must not
know: what is made of the history.

"Now" of every table is the end of its range, never the present time: the same range gives the same
rows.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from logqueue.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RANGE_FILE = "_range.json"
"""Spark and pyarrow pass over names that begin with an underscore."""


class HistorySource(Protocol):
    """Where records and events come from; `inputs.Input` is one."""

    def records(self, spark: SparkSession, data: str = "string") -> DataFrame:
        """Records, as the table `records`."""

    def events(self, spark: SparkSession) -> DataFrame:
        """Events, as the table `lease_events`."""


@dataclass(frozen=True)
class QueueSpan:
    """What a range holds of one queue.

    Attributes:
        first_seq: Lowest seq of a record; 0 when there is none.
        floors: How many `trimmed` events there are.
    """

    log_id: str
    topic: str
    first_seq: int
    records: int
    events: int
    floors: int


@dataclass(frozen=True)
class Span:
    """A range of history.

    Attributes:
        start, end: Lowest and highest time of a record or event, ms since the epoch; `end` may
            have been given instead. Both 0 when there is nothing.
        queues: Topics that are queues, by name and log.
        others: How many topics are none: nothing ever happened to their records.
    """

    start: int
    end: int
    queues: tuple[QueueSpan, ...]
    others: int = 0

    def description(self) -> dict[str, Any]:
        """As a summary tells it."""
        return {"start": moment_text(self.start), "end": moment_text(self.end)}

    def since(self, start: int) -> Span:
        """The same with an earlier beginning."""
        return replace(self, start=min(start, self.start) if start else self.start)

    def write(self, folder: str) -> None:
        """Write it to a directory, for readers of the tables there."""
        text = json.dumps({"v": 1, **self.description(), "span": asdict(self)}, indent=1)
        part = os.path.join(folder, RANGE_FILE + ".part")
        with open(part, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(part, os.path.join(folder, RANGE_FILE))

    @classmethod
    def read(cls, folder: str) -> Span | None:
        """The range noted in a directory; None when there is none.

        Raises:
            PipelineError: It does not read.
        """
        path = os.path.join(folder, RANGE_FILE)
        try:
            with open(path, encoding="utf-8") as file:
                description = json.load(file)["span"]
            queues = tuple(QueueSpan(**queue) for queue in description.pop("queues"))
            return cls(**description, queues=queues)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise PipelineError(
                f"{path} does not read ({error}); remove the directory and run again"
            ) from error

    @staticmethod
    def forget(folder: str) -> None:
        """Nothing in a directory is to be trusted until a range is noted again."""
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, RANGE_FILE)
        if os.path.exists(path):
            os.remove(path)


def moment_text(at: int) -> str:
    """A time as text: `2026-01-31T12:00:00.000Z`; empty for none."""
    if not at:
        return ""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def read_span(records: DataFrame, events: DataFrame, end: int | None = None) -> Span:
    """Find out what a range holds; one pass over times and seqs.

    Args:
        records, events: As the tables `records` and `lease_events`.
        end: What is later does not count; None for all there is.
    """
    from pyspark.sql import functions as F

    def counted(rows: DataFrame, seq: str, floors: Any) -> DataFrame:
        kept = rows if end is None else rows.where(F.unix_millis("ts") <= F.lit(end))
        return kept.groupBy("log_id", "topic").agg(
            F.min(F.unix_millis("ts")).alias("start"),
            F.max(F.unix_millis("ts")).alias("end"),
            F.min(seq).alias("first_seq"),
            F.count(F.lit(1)).alias("n"),
            floors.alias("floors"),
        )

    is_floor = F.when(F.col("event") == "trimmed", 1).otherwise(0)
    both = counted(records, "seq", F.lit(-1).cast("long")).unionAll(
        counted(events, "job_seq", F.sum(is_floor))
    )
    return _span(both.collect(), end)


def _span(rows: list[Any], end: int | None) -> Span:
    """Rows of records have -1 for floors."""
    of_records = {row["log_id"]: row for row in rows if row["floors"] < 0}
    of_events = {row["log_id"]: row for row in rows if row["floors"] >= 0}
    queues = []
    for log_id, row in of_events.items():
        its = of_records.get(log_id)
        queues.append(
            QueueSpan(
                log_id,
                row["topic"],
                its["first_seq"] if its is not None else 0,
                its["n"] if its is not None else 0,
                row["n"],
                row["floors"],
            )
        )
    last = max((row["end"] for row in rows), default=0)
    return Span(
        min((row["start"] for row in rows), default=0),
        last if end is None else end,
        tuple(sorted(queues, key=lambda queue: (queue.topic, queue.log_id))),
        len(of_records.keys() - of_events.keys()),
    )
