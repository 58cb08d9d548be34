"""A log at one moment, as readers ask for it.

Owns: what of a survey is worked out once, and the end of job events that is certain. Must not know:
pyspark, where indexes come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logqueue.pipeline.reading.available import AvailableEvents, AvailableRange, Range
from logqueue.pipeline.reading.options import Reading
from logqueue.pipeline.reading.planning import SegmentTask, Survey
from logqueue.pipeline.reading.pushdown import Pushdown
from logqueue.pipeline.rows.fetching import Segments, first_from
from logqueue.segments.plan import SegmentRead


class LogSnapshot:
    """What the segments of a log say."""

    def __init__(
        self,
        survey: Survey,
        reading: Reading,
        where: str,
        segments: Segments,
        settled_end: int | None = None,
    ) -> None:
        """Look at a survey.

        Args:
            where: The log, for people.
            segments: Gives bytes, for what indexes do not tell.
            settled_end: First order of which one of the logs may still lack something; None when
                there is none.
        """
        self.where = where
        self._survey = survey
        self._reading = reading
        self._segments = segments
        self._settled_end = settled_end
        self._available: dict[str, AvailableRange] | None = None

    @property
    def survey(self) -> Survey:
        """What the indexes say."""
        return self._survey

    def read_as(self, reading: Reading, segments: Segments) -> LogSnapshot:
        """The same moment for other options, which select the same topics."""
        return LogSnapshot(self._survey, reading, self.where, segments, self._settled_end)

    def available(self) -> Mapping[str, AvailableRange]:
        """The topics that are asked for and that exist, by name."""
        if self._available is None:
            self._available = self._survey.available()
        return self._available

    def older(self) -> list[AvailableRange]:
        """Instances of these topics that were deleted and recreated since."""
        return self._survey.older()

    def available_events(self, *, settled: bool) -> AvailableEvents:
        """The job events of all topics."""
        return self._survey.available_events(self._settled_end if settled else None)

    def seq_at(self, topic: AvailableRange, at_ms: int) -> int:
        """The first seq taken in at a time or later; one behind the highest when there is none."""

        def first_of(read: SegmentRead) -> int | None:
            return first_from(read, self._segments, self._reading, at_ms)

        return self._survey.seq_at(topic, at_ms, first_of)

    def tasks(self, ranges: Sequence[Range], pushdown: Pushdown) -> list[SegmentTask]:
        """The ranges as work for executors."""
        if self._reading.events == "leases":
            return self._survey.event_tasks(ranges, self._reading, pushdown)
        return self._survey.record_tasks(ranges, self._reading, pushdown)
