"""Both logs at one moment, as a run of an archive asks for them.

Owns: that view of a survey, and of topics that are in no segment. Must not know: pyspark, where the
log is, what is archived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from logqueue.pipeline.reading.available import AvailableEvents, AvailableRange, Range
from logqueue.pipeline.reading.options import Reading
from logqueue.pipeline.reading.planning import Survey, number_of
from logqueue.pipeline.reading.pushdown import Pushdown


class LogMoment:
    """A survey of both logs that ends at one order; see `archive.run.Moment`."""

    def __init__(
        self,
        survey: Survey,
        order: int,
        records: Reading,
        events: Reading | None,
        paged: Mapping[str, AvailableRange] | None = None,
        page_tasks: Callable[[Range], Iterable[Any]] | None = None,
    ) -> None:
        """Look at a survey.

        Args:
            order: Every transaction of a smaller order is in it, and no later record.
            records, events: How each table is read; no events when None.
            paged: Topics that are in no segment, by name.
            page_tasks: Makes the tasks of a range of theirs.
        """
        self.log = survey.log_id
        self.order = order
        self._survey = survey
        self._records = records
        self._events = events
        self._paged = {topic.log: topic for topic in (paged or {}).values()}
        self._page_tasks = page_tasks

    def instances(self) -> list[AvailableRange]:
        """See Moment."""
        logged = [found for found in self._survey.instances() if found.log not in self._paged]
        return [*logged, *self._paged.values()]

    def lost_orders(self, first: int) -> bool:
        """See Moment."""
        return self._survey.lost_orders(first)

    def events(self, log_ids: Sequence[str]) -> AvailableEvents:
        """See Moment."""
        return self._survey.available_events(self.order, [*map(number_of, log_ids)])

    def record_tasks(self, ranges: Sequence[Range]) -> list[Any]:
        """See Moment."""
        logged = [range for range in ranges if range.log not in self._paged]
        tasks: list[Any] = [*self._survey.record_tasks(logged, self._records, Pushdown())]
        for wanted in ranges:
            if wanted.log in self._paged and self._page_tasks is not None:
                tasks += self._page_tasks(wanted)
        return tasks

    def event_tasks(self, first: int, end: int, log_ids: Sequence[str]) -> list[Any]:
        """See Moment."""
        assert self._events is not None
        wanted = [Range("", self.log, first, end)]
        numbers = [*map(number_of, log_ids)]
        return [*self._survey.event_tasks(wanted, self._events, Pushdown(), numbers)]
