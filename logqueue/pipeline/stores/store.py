"""A log as readers see it, wherever it is, and the tasks of a batch over it.

Owns: the protocols of stores and their snapshots. Must not know: engines, files, HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from logqueue.pipeline.reading.available import (
    AvailableEvents,
    AvailableRange,
    Range,
    require_topics,
)
from logqueue.pipeline.reading.offset_planner import EventsOffsetPlanner, RecordsOffsetPlanner
from logqueue.pipeline.reading.options import Reading
from logqueue.pipeline.reading.pushdown import Pushdown

if TYPE_CHECKING:
    import pyarrow as pa


class Snapshot(Protocol):
    """What a store holds at one moment."""

    where: str
    """The store, for people."""

    def available(self) -> Mapping[str, AvailableRange]:
        """The topics that are asked for and that exist, by name."""

    def older(self) -> Sequence[AvailableRange]:
        """Instances of these topics that were deleted and recreated since."""

    def available_events(self, *, settled: bool) -> AvailableEvents:
        """The job events of all topics.

        Args:
            settled: Leave out the newest of which one log may still lack something.
        """

    def seq_at(self, topic: AvailableRange, at_ms: int) -> int:
        """The first seq taken in at a time or later; one behind the highest when there is none."""

    def tasks(self, ranges: Sequence[Range], pushdown: Pushdown) -> list[Any]:
        """The ranges as tasks, each of about the bytes that are asked for."""


class Store(Protocol):
    """Where the log is. Picklable."""

    def snapshot(self) -> Snapshot:
        """What is there now.

        Raises:
            PipelineError: There is no log, or it cannot be reached.
        """

    def read(self, task: Any, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a task; `columns` are those to make, None for all.

        Raises:
            DataLossError: They are gone.
            PipelineError: They cannot be read.
        """


def batch_tasks(
    snapshot: Snapshot,
    reading: Reading,
    pushdown: Pushdown | None = None,
    *,
    settled: bool = False,
) -> list[Any]:
    """The tasks of a batch; its ends are fixed here.

    Args:
        snapshot: What is there, taken with the same options.
        settled: Leave out the newest job events of which one log may still lack something.
        pushdown: What narrows the read further than its options; None for the options alone.

    Raises:
        PipelineError: There is no log, or a topic that was named is not in it.
        DataLossError: What was asked for by number is gone.
    """
    narrowed = pushdown if pushdown is not None else Pushdown.of(reading)
    if reading.events == "leases":
        ranges = EventsOffsetPlanner(reading).batch(snapshot.available_events(settled=settled))
    else:
        topics = snapshot.available()
        require_topics(reading.selection.names, topics, snapshot.where)
        planner = RecordsOffsetPlanner(reading)
        ranges = planner.batch(topics, snapshot.seq_at, snapshot.older())
    return snapshot.tasks(narrowed.of_ranges(ranges), narrowed)
