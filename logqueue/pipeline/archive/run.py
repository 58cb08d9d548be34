"""One run of an archive: what is read next, epoch by epoch, up to one moment of the log.

Owns: the plan of a run from how far topics are archived and what the log has, losses, the order of
the epochs, the watermark. Must not know: pyspark, where the log is, how rows become files.

A run looks at the log once. Both tables are archived up to that moment: events first, then records,
so whatever is archived of records after a crash has its events. The watermark is written with the
last epoch; readers end there, so a run that was interrupted does not count yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from logqueue.errors import quoted
from logqueue.pipeline.archive.contents import Contents
from logqueue.pipeline.archive.manifests import (
    ArchivedTopic,
    Covered,
    FileEntry,
    Manifest,
    Table,
    Watermark,
)
from logqueue.pipeline.archive.progress import ArchiveProgress, log_of, stated
from logqueue.pipeline.reading.available import (
    AvailableEvents,
    AvailableRange,
    LossPolicy,
    Piece,
    Range,
)
from logqueue.pipeline.reading.offset_planner import Limit, divide, furthest_order
from logqueue.pipeline.reading.offsets import Place
from logqueue.pipeline.reading.options import Selection
from logqueue.segments import ranges as rg

BATCH_BYTES = 512 << 20
"""Bytes of log that one epoch reads by default: what has to be read again after a crash."""


class Moment(Protocol):
    """Both logs at one moment."""

    @property
    def log(self) -> str:
        """The identity of the log."""
        ...

    @property
    def order(self) -> int:
        """Everything of smaller orders is at hand in both logs, and nothing else of records."""
        ...

    def instances(self) -> Sequence[AvailableRange]:
        """The instances of the topics that are asked for, deleted ones too."""
        ...

    def lost_orders(self, first: int) -> bool:
        """Whether segments are missing that had orders from `first` on."""
        ...

    def events(self, log_ids: Sequence[str]) -> AvailableEvents:
        """The events of some instances."""
        ...

    def record_tasks(self, ranges: Sequence[Range]) -> list[Any]:
        """Work for executors: records."""
        ...

    def event_tasks(self, first: int, end: int, log_ids: Sequence[str]) -> list[Any]:
        """Work for executors: events of some instances."""
        ...


@dataclass(frozen=True)
class ArchiveEpoch:
    """What one epoch reads, and what its manifest says besides the files."""

    table: Table
    tasks: Sequence[Any]
    ends: Mapping[str, int]
    covered: Sequence[Covered]
    topics: Sequence[ArchivedTopic]
    watermark: Callable[[int], Watermark] | None

    def manifest(
        self, archive: str, number: int, files: Sequence[FileEntry], max_ts: int
    ) -> Manifest:
        """The manifest of it, without holes.

        Args:
            max_ts: Highest time of a row in both tables, these files included.
        """
        return Manifest(
            table=self.table,
            archive=archive,
            epoch=number,
            files=[*files],
            topics=[*self.topics],
            reached=stated(self.ends, files) if self.table == "records" else [],
            covered=[*self.covered],
            watermark=self.watermark(max_ts) if self.watermark is not None else None,
        )


class ArchiveRun:
    """The epochs of one run."""

    def __init__(
        self,
        moment: Moment,
        held: Mapping[Table, Contents],
        selection: Selection,
        limit: Limit,
        *,
        fail_on_data_loss: bool = True,
    ) -> None:
        """Look at what there is to do.

        Args:
            held: The tables to archive, in this order, and what they hold.
            limit: Of one epoch.

        Raises:
            DataLossError: Something is gone that was to be archived, and losses are not accepted.
        """
        self._moment = moment
        self._held = held
        self._selection = selection
        self._limit = limit
        self._losses = LossPolicy(fail_on_data_loss)
        self._instances = {instance.log: instance for instance in moment.instances()}
        self._orders_from = moment.events([]).complete_from
        self._news: dict[Table, list[ArchivedTopic]] = {}
        self._topics: dict[Table, dict[str, ArchivedTopic]] = {}
        for table, contents in held.items():
            self._news[table] = [*self._changes(table, contents.progress)]
            news = {topic.log_id: topic for topic in self._news[table]}
            self._topics[table] = {**contents.progress.topics, **news}

    # -- topics --------------------------------------------------------------------------------

    def _changes(self, table: Table, progress: ArchiveProgress) -> Iterator[ArchivedTopic]:
        """What is new of topics."""
        for log_id, instance in self._instances.items():
            known = progress.topics.get(log_id)
            if known is None:
                if table == "records" or instance.is_queue:
                    start = instance.complete_from if table == "records" else self._orders_from
                    yield self._fact(instance, start, is_gone=False)
                continue
            if known.is_paged and not instance.is_paged:
                # The log knows that there was one, and nothing of its records.
                if not known.is_gone:
                    self._check_absent(table, progress, known)
                    yield msgspec.structs.replace(known, is_gone=True)
                continue
            self._check_end(table, progress, instance)
            is_gone = known.is_gone or self._is_over(table, progress, instance)
            fresh = self._fact(instance, known.complete_from, is_gone=is_gone)
            if fresh != known:
                yield fresh
        for log_id, known in progress.topics.items():
            is_absent = log_id not in self._instances and not known.is_gone
            if is_absent and self._selection.fits(known.topic):
                self._check_absent(table, progress, known)
                yield msgspec.structs.replace(known, is_gone=True)

    @staticmethod
    def _fact(instance: AvailableRange, complete_from: int, *, is_gone: bool) -> ArchivedTopic:
        return ArchivedTopic(
            topic=instance.name,
            log_id=instance.log,
            is_queue=instance.is_queue,
            is_gone=is_gone,
            is_paged=instance.is_paged,
            complete_from=complete_from,
        )

    def _is_over(self, table: Table, progress: ArchiveProgress, instance: AvailableRange) -> bool:
        """Whether an instance was deleted and all of it is archived."""
        if not instance.is_dropped:
            return False
        next = progress.next_of(instance.log)
        if table == "records":
            return next >= instance.next
        pieces = self._moment.events([instance.log]).pieces
        return all(piece.last < next for piece in pieces)

    def _check_end(self, table: Table, progress: ArchiveProgress, instance: AvailableRange) -> None:
        """Report that the log ends before what is archived, or that its end is not certain."""
        next = progress.next_of(instance.log)
        now = instance.next if table == "records" else self._moment.order
        if next > now:
            self._losses.report(
                f"topic {quoted(instance.name)} is archived up to {next - 1}, and the log ends at "
                f"{now - 1}: perhaps it was restored from an older backup"
            )
        elif table == "records" and instance.is_dropped and not instance.is_head_certain:
            is_gone = progress.topics[instance.log].is_gone
            if not is_gone and self._moment.lost_orders(self._marked(instance.log)):
                self._report_rest(instance.name, instance.next)

    def _check_absent(self, table: Table, progress: ArchiveProgress, known: ArchivedTopic) -> None:
        """Report what may have been in a topic that the log knows nothing of any longer."""
        next = progress.next_of(known.log_id)
        if not known.is_paged and log_of(known.log_id) != self._moment.log:
            self._losses.report(
                f"the log is another one now ({self._moment.log}, topic {quoted(known.topic)} is "
                f"archived from {log_of(known.log_id)}): what followed {next - 1} cannot be read"
            )
            return
        order = next if table == "lease_events" else self._marked(known.log_id)
        if known.is_paged or self._moment.lost_orders(order):
            self._report_rest(known.topic, next)

    def _report_rest(self, topic: str, next: int) -> None:
        self._losses.report(
            f"topic {quoted(topic)} was deleted, and the log has dropped segments since it was "
            f"archived up to {next - 1}: what may have followed cannot be read"
        )

    def _marked(self, log_id: str) -> int:
        """Up to which order of the log a topic was archived by a run that ended."""
        found = [contents.progress.watermarks.get(log_id) for contents in self._held.values()]
        return max((mark[0] for mark in found if mark is not None), default=0)

    # -- epochs --------------------------------------------------------------------------------

    def epochs(self) -> Iterator[ArchiveEpoch]:
        """What is to be done, one epoch after the other.

        The caller archives each, and takes its manifest into what is held, before it asks for the
        next one.

        Raises:
            DataLossError: Something is gone, and losses are not accepted.
        """
        is_marked = False
        for table in self._held:
            while True:
                step = self._events() if table == "lease_events" else self._records()
                news = self._news[table]
                self._news[table] = []
                if step is None and not news:
                    break
                ends, covered, tasks = step or ({}, [], [])
                is_marked = self._is_done(table, ends, covered)
                mark = self._watermark if is_marked else None
                yield ArchiveEpoch(table, tasks, ends, covered, news, mark)
        behind = (self._marked(log_id) < self._moment.order for log_id in self._logged())
        if not is_marked and any(behind):
            # Nothing new of these topics; but how far the log was looked at counts when one goes.
            yield ArchiveEpoch([*self._held][-1], [], {}, [], [], self._watermark)

    def _logged(self) -> list[str]:
        """The instances that are in segments."""
        found = self._instances.items()
        return [log_id for log_id, instance in found if not instance.is_paged]

    def _is_done(self, table: Table, ends: Mapping[str, int], covered: Sequence[Covered]) -> bool:
        """Whether nothing is left for this table and those after it once an epoch is archived."""
        done = dict(ends)
        for entry in covered:
            for first, last in entry.topics:
                done.update((f"{entry.log}-{n}", entry.end) for n in range(first, last + 1))
        tables = [*self._held]
        for other in tables[tables.index(table) :]:
            progress = self._held[other].progress
            if other != table and (self._news.get(other) or self._behind(other, progress)):
                return False
            if other == table and any(
                done.get(log_id, 0) < end for log_id, _, end in self._behind(other, progress)
            ):
                return False
        return True

    def _behind(self, table: Table, progress: ArchiveProgress) -> list[tuple[str, int, int]]:
        """The instances of which there is more: `log_id`, from where, up to where."""
        found = []
        for log_id, instance in self._instances.items():
            next = progress.next_of(log_id)
            if table == "records":
                next, end = max(next, instance.first), instance.next
            elif not instance.is_queue or self._topics[table][log_id].is_gone:
                continue
            else:
                end = self._moment.order
            if next < end:
                found.append((log_id, next, end))
        return found

    def _records(self) -> tuple[dict[str, int], list[Covered], list[Any]] | None:
        progress = self._held["records"].progress
        steps = [
            (
                self._instances[log_id],
                Place(log_id, next, self._topics["records"][log_id].complete_from),
                end,
            )
            for log_id, next, end in self._behind("records", progress)
        ]
        if not steps:
            return None
        turn = sum(place.next for _, place, _ in steps)
        ends: dict[str, int] = {}
        ranges = []
        for (instance, place, _), end in zip(steps, divide(steps, self._limit, turn), strict=True):
            if end > place.next:
                wanted = Range(instance.name, instance.log, place.next, end)
                self._losses.of_range(wanted, instance.gaps, place.complete_from)
                ranges.append(wanted)
                ends[instance.log] = end
        return ends, [], self._moment.record_tasks(ranges)

    def _events(self) -> tuple[dict[str, int], list[Covered], list[Any]] | None:
        progress = self._held["lease_events"].progress
        levels: dict[int, list[str]] = {}
        for log_id, next, _ in self._behind("lease_events", progress):
            levels.setdefault(next, []).append(log_id)
        if not levels:
            return None
        tasks: list[Any] = []
        covered = []
        kind: Literal["rows", "bytes"] = "rows" if self._limit.rows is not None else "bytes"
        left = self._limit.rows if self._limit.rows is not None else self._limit.bytes
        for next, log_ids in sorted(levels.items()):
            if left is not None and left <= 0:
                break
            available = self._moment.events(log_ids)
            self._check_events(available, next, log_ids)
            end = self._moment.order
            if left is not None:
                end = max(furthest_order(available.pieces, next, end, left, kind), next + 1)
                left -= _weight(available.pieces, next, end, kind)
            tasks += self._moment.event_tasks(next, end, log_ids)
            numbers = rg.union((_number(log_id), _number(log_id)) for log_id in log_ids)
            covered.append(Covered(log=self._moment.log, topics=numbers, end=end))
        return {}, covered, tasks

    def _check_events(self, available: AvailableEvents, next: int, log_ids: Sequence[str]) -> None:
        """Report missing orders that were not missing yet when the topics were first seen."""
        topics = self._topics["lease_events"]
        known = min(topics[log_id].complete_from for log_id in log_ids)
        wanted = Range("", available.log, next, self._moment.order)
        self._losses.of_range(wanted, available.gaps, known)

    def _watermark(self, max_ts: int) -> Watermark:
        numbers = rg.union((_number(log_id), _number(log_id)) for log_id in self._logged())
        return Watermark(log=self._moment.log, order=self._moment.order, ts=max_ts, topics=numbers)


def _number(log_id: str) -> int:
    return int(log_id.rpartition("-")[2])


def _weight(pieces: Sequence[Piece], first: int, end: int, kind: str) -> int:
    """About what the pieces from one order up to another weigh."""
    weight = 0
    for piece in pieces:
        orders = min(end, piece.last + 1) - max(first, piece.first)
        if orders > 0:
            whole = piece.rows if kind == "rows" else piece.bytes
            weight += -(-whole * orders // (piece.last + 1 - piece.first))
    return weight
