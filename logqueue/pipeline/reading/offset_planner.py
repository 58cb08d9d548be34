"""Where a read begins, how far a micro-batch reads, and which ranges that makes.

Owns: starts, ends and micro-batches as pure functions of options, offsets and what is available.
Must not know: pyspark, segments, HTTP. `RecordsOffsetPlanner` works on one offset per topic,
`EventsOffsetPlanner` on the orders of a whole log; both have the same methods.

A topic that appears later begins at its earliest seq. An offset records from where the log was
complete when the stream first saw the topic (`complete_from`), so that a repeated micro-batch is
checked for losses in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading.available import (
    AvailableEvents,
    AvailableRange,
    LossPolicy,
    Piece,
    Range,
)
from logqueue.pipeline.reading.offsets import EventsOffset, Place, RecordsOffset, share
from logqueue.pipeline.reading.options import Bound, Reading
from logqueue.segments import ranges as rg


@dataclass(frozen=True, slots=True)
class Limit:
    """The bound of one micro-batch; without numbers there is none."""

    rows: int | None = None
    bytes: int | None = None


SeqAt = Callable[[AvailableRange, int], int]
"""The first seq of a topic that was taken in at a time (ms since the epoch) or later; one behind
the highest when there is none."""


class OffsetPlanner(Protocol):
    """What both kinds of reading can say of offsets. Offsets are plain JSON values."""

    def initial(self, available: Any) -> dict[str, Any]:
        """Where a stream begins."""

    def end(self, available: Any) -> dict[str, Any]:
        """The end of what is available now."""

    def latest(
        self, start: dict[str, Any], available: Any, limit: Limit, target: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Where a micro-batch from `start` ends, `target` at most."""

    def between(self, start: dict[str, Any], end: dict[str, Any], available: Any) -> list[Range]:
        """What a micro-batch reads."""


class RecordsOffsetPlanner:
    """Offsets and ranges of records."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._losses = LossPolicy(reading.fail_on_data_loss)

    # -- start and end offsets from options ------------------------------------------------------

    def initial(self, available: Mapping[str, AvailableRange]) -> dict[str, Any]:
        """Where a stream begins.

        Raises:
            PipelineError: An explicit offset names a topic that is not read, or not there.
            DataLossError: It is of another log.
        """
        start = self._reading.start
        self._check_names(start, "startingOffsets", available)
        places = {name: self._first(topic, start) for name, topic in available.items()}
        return RecordsOffset(places).json()

    def _first(self, topic: AvailableRange, start: Bound) -> Place:
        given = start.places.get(topic.name, -2)
        if given == -2:
            return Place(topic.log, topic.first, topic.complete_from)
        log = start.logs.get(topic.name, topic.log)
        return Place(log, max(given, 1), start.complete_from.get(topic.name, 0))

    def end(self, available: Mapping[str, AvailableRange]) -> dict[str, Any]:
        """The end of what is available now."""
        return RecordsOffset({name: _end(topic) for name, topic in available.items()}).json()

    def batch(
        self,
        available: Mapping[str, AvailableRange],
        seq_at: SeqAt,
        older: Sequence[AvailableRange] = (),
    ) -> list[Range]:
        """What a batch reads.

        Args:
            seq_at: Finds seqs by time.
            older: Instances that were deleted and recreated since; they are read unless a number
                says where to begin.

        Raises:
            PipelineError: An explicit offset is of no topic that is read, or behind the end.
            DataLossError: What was named explicitly is gone.
        """
        start, end = self._reading.start, self._reading.end
        self._check_names(start, "startingOffsets", available)
        self._check_names(end, "endingOffsets", available)
        ranges = []
        for name in sorted(available):
            topic = available[name]
            for bound in (start, end):
                log = bound.logs.get(name, topic.log)
                if log != topic.log:
                    self._losses.report(_recreated(name, log, topic.log, bound.places[name]))
            first, last = self._batch_first(topic, seq_at), self._batch_end(topic, seq_at)
            if first < last:
                range = Range(name, topic.log, first, last)
                if start.places.get(name, -2) > 0:
                    self._losses.of_range(range, topic.gaps, start.complete_from.get(name, 0))
                ranges.append(range)
        for topic in older:
            if start.places.get(topic.name, -2) == -2:
                begin = seq_at(topic, start.at_ms) if start.at_ms is not None else topic.first
                stop = self._reading.end.at_ms
                last = topic.next if stop is None else seq_at(topic, stop)
                ranges.append(Range(topic.name, topic.log, begin, last))
        return [range for range in ranges if range.first < range.end]

    def _batch_first(self, topic: AvailableRange, seq_at: SeqAt) -> int:
        start = self._reading.start
        if start.at_ms is not None:
            return seq_at(topic, start.at_ms)
        given = start.places.get(topic.name, -2)
        if given > topic.next:
            self._losses.report(_ahead(topic, given))
        return topic.first if given == -2 else max(given, 1)

    def _batch_end(self, topic: AvailableRange, seq_at: SeqAt) -> int:
        end = self._reading.end
        if end.at_ms is not None:
            return seq_at(topic, end.at_ms)
        given = end.places.get(topic.name, -1)
        return topic.next if given == -1 else min(given, topic.next)

    def _check_names(
        self, bound: Bound, option: str, available: Mapping[str, AvailableRange]
    ) -> None:
        for name in bound.places:
            if not self._reading.selection.fits(name):
                raise PipelineError(
                    f"option {option} names topic '{name}', which topics or topicPattern leave out"
                )
            if name not in available:
                raise PipelineError(
                    f"option {option} names topic {quoted(name)}, and there is no such topic"
                )

    # -- micro-batches ---------------------------------------------------------------------------

    def latest(
        self,
        start: dict[str, Any],
        available: Mapping[str, AvailableRange],
        limit: Limit,
        target: dict[str, Any] | None,
    ) -> dict[str, Any]:
        """Where a micro-batch ends.

        Args:
            start: Where it begins.
            target: The furthest that may be gone, and no other topics; None for no such bound.

        Raises:
            DataLossError: A topic was recreated, is gone, or ends before `start`.
        """
        origin = RecordsOffset.parse(start).topics
        targets = RecordsOffset.parse(target).topics if target is not None else None
        places = dict(origin)
        steps: list[tuple[AvailableRange, Place, int]] = []
        for name in sorted({*origin, *available}):
            step = self._step(name, origin.get(name), available.get(name), targets)
            if step is not None:
                places[name] = step[1]
                steps.append(step)
        turn = sum(place.next for place in origin.values())
        ends = divide(steps, limit, turn)
        for (topic, place, _), next in zip(steps, ends, strict=True):
            is_new = topic.name not in origin or origin[topic.name].log != place.log
            # An offset changes only when something was read.
            keeps_complete_from = is_new or next < place.complete_from or next == place.next
            complete_from = place.complete_from if keeps_complete_from else 0
            if is_new and next == topic.first:
                # Nothing of it is read yet, so it is new in the next micro-batch, too.
                places.pop(topic.name)
                if topic.name in origin:
                    places[topic.name] = origin[topic.name]
                continue
            places[topic.name] = Place(place.log, next, complete_from)
        return RecordsOffset(places).json()

    def _step(
        self,
        name: str,
        origin: Place | None,
        topic: AvailableRange | None,
        targets: Mapping[str, Place] | None,
    ) -> tuple[AvailableRange, Place, int] | None:
        """A topic, where it is read from, and up to where; None when it stays as it is."""
        if topic is None:
            assert origin is not None
            if self._reading.selection.fits(name):
                self._losses.report(
                    f"topic {quoted(name)} was deleted; seqs from {origin.next} on cannot be read"
                )
            return None
        now, place = self._present(topic, origin)
        if place.next > now.next:
            self._losses.report(_ahead(now, place.next))
            return None
        end = now.next
        if targets is not None:
            aim = targets.get(name)
            if aim is None or not topic.is_until(now.log, aim.log):
                return None
            end = min(end, aim.next) if aim.log == now.log else end
        return now, place, max(end, place.next)

    def _present(self, topic: AvailableRange, origin: Place | None) -> tuple[AvailableRange, Place]:
        """The instance of a topic that is read now, and from where: one that was deleted is read to
        its end before the one that follows it."""
        if origin is None:
            return topic, Place(topic.log, topic.first, topic.complete_from)
        place = origin
        while place.log != topic.log:
            old = topic.instance(place.log)
            if old is not None and old.next > place.next:
                return old, place
            if old is None or old.next < place.next or not old.is_head_certain:
                self._losses.report(_recreated(topic.name, place.log, topic.log, place.next))
            follower = topic.after(place.log)
            place = Place(follower.log, follower.first, follower.complete_from)
        return topic, place

    def between(
        self, start: dict[str, Any], end: dict[str, Any], available: Mapping[str, AvailableRange]
    ) -> list[Range]:
        """What a micro-batch reads, from its offsets alone.

        Raises:
            PipelineError: It ends before it begins.
            DataLossError: Something of it is gone.
        """
        origin, ended = RecordsOffset.parse(start).topics, RecordsOffset.parse(end).topics
        ranges = []
        for name in sorted(ended):
            place, last, topic = origin.get(name), ended[name], available.get(name)
            if place is None or place.log != last.log:
                is_paged = topic is not None and topic.is_paged
                place = replace(last, next=max(last.complete_from, 1) if is_paged else 1)
            if place.next > last.next:
                raise PipelineError(
                    f"the micro-batch ends at seq {last.next} of topic '{name}', before its begin "
                    f"{place.next}: the checkpoint was changed or mixed with another one"
                )
            if place.next == last.next:
                continue
            range = Range(name, last.log, place.next, last.next)
            topic = topic.instance(last.log) if topic is not None else None
            if topic is None:
                what = f"seqs {range.first} to {range.end - 1} of topic {quoted(name)}"
                self._losses.report(f"{what} are gone: the topic was deleted or recreated")
                continue
            if range.end > topic.next:
                self._losses.report(_ahead(topic, range.end))
                range = range._replace(end=topic.next)
                if range.first >= range.end:
                    continue
            self._losses.of_range(range, topic.gaps, place.complete_from)
            ranges.append(range)
        return ranges


def _end(topic: AvailableRange) -> Place:
    return Place(topic.log, topic.next)


def _recreated(name: str, before: str, now: str, next: int) -> str:
    return (
        f"topic '{name}' is another one now (log {now}, the offset is of {before}): seqs from "
        f"{next} on of the one before cannot be read"
    )


def _ahead(topic: AvailableRange, next: int) -> str:
    return (
        f"seqs {topic.next} to {next - 1} of topic '{topic.name}' are gone: the log ends before "
        "the place to read from; was it restored from an older backup?"
    )


def divide(
    steps: Sequence[tuple[AvailableRange, Place, int]], limit: Limit, turn: int
) -> list[int]:
    """The end of each step under a bound, shared fairly."""
    if limit.rows is None and limit.bytes is None:
        return [end for _, _, end in steps]
    if limit.rows is not None:
        wanted = [topic.rows(place.next, end) for topic, place, end in steps]
        budgets = share(limit.rows, wanted, turn)
        return [
            topic.after_rows(place.next, end, budget)
            for (topic, place, end), budget in zip(steps, budgets, strict=True)
        ]
    assert limit.bytes is not None
    wanted = [topic.bytes(place.next, end) for topic, place, end in steps]
    budgets = share(limit.bytes, wanted, turn)
    ends = [
        topic.after_bytes(place.next, end, budget)
        for (topic, place, end), budget in zip(steps, budgets, strict=True)
    ]
    if all(end == place.next for end, (_, place, _) in zip(ends, steps, strict=True)):
        # A record larger than the bound must not stop everything.
        order = sorted(range(len(steps)), key=lambda index: (index - turn) % len(steps))
        for index in order:
            if ends[index] < steps[index][2]:
                ends[index] += 1
                break
    return ends


class EventsOffsetPlanner:
    """Offsets and ranges of lease events: orders of the whole log."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._losses = LossPolicy(reading.fail_on_data_loss)

    def initial(self, available: AvailableEvents) -> dict[str, Any]:
        """Where a stream begins."""
        start, of = self._reading.start, _queues_of(available)
        if start.places:
            log = start.logs.get("", available.log)
            return EventsOffset(log, start.places[""], start.complete_from.get("", 0), of).json()
        return EventsOffset(available.log, 0, available.complete_from, of).json()

    def end(self, available: AvailableEvents) -> dict[str, Any]:
        """The end of what is available now."""
        return EventsOffset(available.log, available.next, of=_queues_of(available)).json()

    def batch(self, available: AvailableEvents) -> list[Range]:
        """What a batch reads; times are for the readers of the rows.

        Raises:
            DataLossError: What was named explicitly is gone.
        """
        start, end = self._reading.start, self._reading.end
        for bound in (start, end):
            self._same_log(bound.logs.get("", available.log), available)
        first = start.places.get("", 0)
        last = min(end.places.get("", available.next), available.next)
        if first > available.next:
            self._losses.report(_events_ahead(available, first))
        if first >= last:
            return []
        range = Range("", available.log, first, last)
        if "" in start.places:
            self._losses.of_range(range, available.gaps, start.complete_from.get("", 0))
        return [range]

    def latest(
        self,
        start: dict[str, Any],
        available: AvailableEvents,
        limit: Limit,
        target: dict[str, Any] | None,
    ) -> dict[str, Any]:
        """Where a micro-batch ends; bounds are kept in whole transactions, one at least.

        Raises:
            DataLossError: The log is another one, or ends before `start`.
        """
        origin = EventsOffset.parse(start)
        end = available.next
        if target is not None:
            end = min(end, EventsOffset.parse(target).next)
        if not self._same_log(origin.log, available):
            origin = EventsOffset(available.log, 0, available.complete_from)
        if end < origin.next:
            if available.next < origin.next:
                self._losses.report(_events_ahead(available, origin.next))
            return start
        kind: Literal["rows", "bytes"] = "rows" if limit.rows is not None else "bytes"
        bound = limit.rows if limit.rows is not None else limit.bytes
        if bound is not None and origin.next < end:
            end = max(
                furthest_order(available.pieces, origin.next, end, bound, kind), origin.next + 1
            )
        of = _queues_of(available)
        others = _others(origin, of, available.known) if of is not None else origin.others
        return EventsOffset(available.log, end, origin.complete_from, of, others).json()

    def between(
        self, start: dict[str, Any], end: dict[str, Any], available: AvailableEvents
    ) -> list[Range]:
        """What a micro-batch reads, from its offsets alone.

        Raises:
            PipelineError: It ends before it begins.
            DataLossError: Something of it is gone.
        """
        origin, ended = EventsOffset.parse(start), EventsOffset.parse(end)
        if not self._same_log(ended.log, available):
            return []
        if origin.log != ended.log:
            origin = EventsOffset(ended.log, 0, available.complete_from)
        if origin.next > ended.next:
            raise PipelineError(
                f"the micro-batch ends at order {ended.next}, before its start {origin.next}: the "
                "checkpoint was changed or mixed with another one"
            )
        if ended.next > available.next:
            self._losses.report(_events_ahead(available, ended.next))
        last = min(ended.next, available.next)
        ranges = []
        for queues, first in _reads(origin, ended):
            if first < last:
                range = Range("", ended.log, first, last, queues)
                # Of queues that were not asked for before, nothing was lost to this stream.
                known = origin.complete_from if first else available.complete_from
                self._losses.of_range(range, available.gaps, known)
                ranges.append(range)
        return ranges

    def _same_log(self, log: str, available: AvailableEvents) -> bool:
        if log == available.log:
            return True
        self._losses.report(
            f"the log is another one now ({available.log}, the offset is of {log}): job events of "
            "the one before cannot be read"
        )
        return False


_Queues = tuple[tuple[int, int], ...]


def _queues_of(available: AvailableEvents) -> _Queues | None:
    return None if available.queues is None else tuple(available.queues)


def _others(origin: EventsOffset, of: _Queues, known: rg.Ranges) -> tuple[tuple[_Queues, int], ...]:
    """The queues that were read before and are not asked for now, with how far; without those that
    the log has forgotten."""
    groups = [(origin.of or (), origin.next), *origin.others]
    left = ((rg.both(rg.without([*queues], [*of]), known), next) for queues, next in groups)
    return tuple((tuple(queues), next) for queues, next in left if queues)


def _reads(origin: EventsOffset, ended: EventsOffset) -> list[tuple[_Queues | None, int]]:
    """Which queues a micro-batch reads from which order on; None for all there are."""
    if origin.of is None or ended.of is None or origin.of == ended.of:
        return [(ended.of, origin.next)]
    left, reads = [*ended.of], []
    for queues, next in ((origin.of, origin.next), *origin.others):
        found = rg.both(left, [*queues])
        left = rg.without(left, found)
        reads.append((tuple(found), next))
    reads.append((tuple(left), 0))
    return [(queues, next) for queues, next in reads if queues]


def _events_ahead(available: AvailableEvents, next: int) -> str:
    return (
        f"job events of orders {available.next} to {next - 1} are gone: the log ends before the "
        "place to read from; was it restored from an older backup?"
    )


def furthest_order(
    pieces: Sequence[Piece], first: int, end: int, bound: int, kind: Literal["rows", "bytes"]
) -> int:
    """The furthest order up to `end` that about keeps the bound, by the average of each piece."""
    weights: list[tuple[int, int, int]] = []
    for piece in pieces:
        low, high = max(first, piece.first), min(end, piece.last + 1)
        if low < high:
            whole = piece.rows if kind == "rows" else piece.bytes
            weights.append((low, high, -(-whole * (high - low) // (piece.last + 1 - piece.first))))
    for low, high, weight in sorted(weights):
        if weight > bound:
            return low + bound * (high - low) // weight
        bound -= weight
    return end
