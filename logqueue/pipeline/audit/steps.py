"""One segment of a log, shrunk to the steps that matter to its history.

Owns: one pass over the frames of a segment, in any task, and what of it is kept: neighbouring
appends as one step, orders as ranges, times where the clock was set back. Must not know: other
segments, what steps mean together, how findings are worded.

A step is the name of a method of `history.AuditHistory` and what it is called with.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from logqueue import events as ev
from logqueue.events import block as blocks
from logqueue.events import follow
from logqueue.model.config import RouterOptions, TopicOptions
from logqueue.pipeline.audit.frames import (
    JOBS,
    AuditedSegment,
    FrameProblem,
    FrameWalk,
)
from logqueue.pipeline.audit.group_rows import group_hash
from logqueue.pipeline.audit.orders import OrderSet
from logqueue.pipeline.audit.plan_history import NotedFiring
from logqueue.segments import ranges as seq_ranges

Step = list[Any]
"""Name of the method, then its arguments."""


@dataclass(slots=True)
class Times:
    """The times of a log over some transactions.

    Attributes:
        first, last: (order, ms) of the first and of the last one; None when there is none.
        back: (order before, order, ms) where the clock was set back, and how far.
    """

    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None
    back: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, order: int, at: int) -> None:
        """A transaction that follows."""
        last = self.last
        if last is None:
            self.first = (order, at)
        elif at < last[1]:
            self.back.append((last[0], order, last[1] - at))
        self.last = (order, at)

    def extend(self, later: Times) -> None:
        """All that a later segment adds."""
        if later.first is None:
            return
        self.add(*later.first)
        self.back += later.back
        self.last = later.last


@dataclass(slots=True)
class SegmentSteps:
    """What one segment says.

    Attributes:
        file: Which one.
        identity: Of its log, as hex; "" when the header cannot be read.
        first, due: Number of its first frame, and of the one that follows its last; 0 for unknown.
        steps: In the order of the log.
        orders: Of its transactions.
        bounds: By topic, the highest `max_deliveries` that a record brought of its own.
        removals: Topics whose records went otherwise than as jobs do.
        kept_from: First segment of the jobs log that must be at hand.
        frames: How many transactions there are.
        is_stopped: Whether the last one says that the server stopped in order.
    """

    file: AuditedSegment
    identity: str = ""
    first: int = 0
    due: int = 0
    steps: list[Step] = field(default_factory=list)
    orders: OrderSet = field(default_factory=OrderSet)
    times: Times = field(default_factory=Times)
    bounds: dict[int, int] = field(default_factory=dict)
    removals: set[int] = field(default_factory=set)
    kept_from: int = 0
    frames: int = 0
    is_stopped: bool = False

    def problems(self) -> list[FrameProblem]:
        """Where bytes are not what was written."""
        return [step[1] for step in self.steps if step[0] == "take_problem"]


class _Timed(msgspec.Struct, array_like=True, gc=False):
    """An event of which only the time matters."""

    tag: int
    at: int


class _Placed(msgspec.Struct, array_like=True, gc=False):
    """A transaction of which only order and time matter."""

    order: int
    events: list[_Timed]


_placed = msgspec.msgpack.Decoder(_Placed).decode


def _is_read(kind: type[ev.Event]) -> bool:
    base = ev.Event
    return (
        kind.visit_topics is not base.visit_topics
        or kind.visit_records is not base.visit_records
        or kind.visit_plans is not base.visit_plans
        or kind.needed_from is not base.needed_from
    )


def decoder_of(kinds: Sequence[type[ev.Event]]) -> tuple[frozenset[type], Any]:
    """A decoder that passes over events which say nothing of topics and records but their time.

    Returns:
        Types of the events that it passes over, and the decoder.
    """
    passed = [
        msgspec.defstruct(
            f"{kind.__name__}Timed",
            [("at", int)],
            tag=kind.__struct_config__.tag,
            array_like=True,
            gc=False,
        )
        for kind in kinds
        if not _is_read(kind)
    ]
    read = [kind for kind in kinds if _is_read(kind)]
    transaction = msgspec.defstruct(
        "_Transaction",
        [("order", int), ("events", list[reduce(or_, [*passed, *read])])],  # type: ignore[misc]
        array_like=True,
        gc=False,
    )
    return frozenset(passed), msgspec.msgpack.Decoder(transaction).decode


PASSED, decode_steps = decoder_of(ev.EVENTS)


def steps_of(file: AuditedSegment, data: bytes, *, is_last: bool) -> SegmentSteps:
    """What a segment says.

    Args:
        file: Which one.
        data: Its bytes.
        is_last: Whether it is the newest of its log: it may end with a torn write.
    """
    found = SegmentSteps(file)
    walk = FrameWalk(file, data, is_last=is_last)
    found.first, found.identity = walk.first, walk.identity
    reader: _JobsReader | _LeasesReader = (
        _JobsReader(found) if file.log == JOBS else _LeasesReader(found)
    )
    take = reader.take
    for offset, frame in walk:
        if isinstance(frame, FrameProblem):
            found.steps.append(["take_problem", frame])
            take(None)
            continue
        try:
            take(frame.payload)
        except msgspec.MsgspecError as error:
            detail = f"frame {frame.number} is not a transaction: {error}"
            found.steps.append(["take_problem", FrameProblem("frame_crc", file, offset, detail)])
            take(None)
    found.due = walk.due
    found.orders.add(reader.orders)
    found.frames = len(reader.orders)
    return found


class _LeasesReader:
    """Takes in transactions of the leases log; what they say is in the lease events."""

    def __init__(self, found: SegmentSteps) -> None:
        self.orders = array("q")
        self._times = found.times

    def take(self, payload: bytes | None) -> None:
        """A transaction; None for a problem between two."""
        if payload is None:
            return
        entry = _placed(payload)
        if entry.events:
            self.orders.append(entry.order)
            self._times.add(entry.order, entry.events[-1].at)


class _JobsReader(ev.TopicVisitor, ev.RecordVisitor, ev.PlanVisitor):
    """Takes in transactions of the jobs log."""

    def __init__(self, found: SegmentSteps) -> None:
        self.orders = array("q")
        self._found = found
        self._steps = found.steps
        self._order = 0
        self._events: Sequence[ev.Event] = ()
        # By topic, the step that the next append may extend; by router, the same of copies.
        self._grown: dict[int, Step] = {}
        self._copied: dict[int, Step] = {}
        # (topic, first seq, last seq) of committed chunks, neighbours as one.
        self._committed: list[tuple[int, int, int]] = []
        self._committing: ev.Event | None = None

    def take(self, payload: bytes | None) -> None:
        """A transaction; None for a problem between two."""
        if payload is None:
            self._close()
            return
        entry = decode_steps(payload)
        events = self._events = entry.events
        if not events:
            return  # a placeholder for a lost frame
        found = self._found
        order = self._order = entry.order
        self.orders.append(order)
        found.is_stopped = False
        if self._committed:
            self._committed = []
        self._committing = None
        for event in events:
            if type(event) not in PASSED:
                event.visit_topics(self)
                event.visit_records(self)
                event.visit_plans(self)
                found.kept_from = max(found.kept_from, event.needed_from())
        last = events[-1]
        if not getattr(last, "keeps_first_time", False):
            found.times.add(order, last.at)

    def _close(self) -> None:
        """What comes next extends nothing that came before."""
        self._grown.clear()
        self._copied.clear()

    def _step(self, name: str, *given: Any) -> Step:
        step = [name, *given]
        self._steps.append(step)
        return step

    def _grow(self, topic: int, first: int, count: int) -> None:
        step = self._grown.get(topic)
        if step is not None and first == step[3] + 1:
            step[3] = first + count - 1
        else:
            self._grown[topic] = self._step("grow", topic, first, first + count - 1, self._order)

    # -- topics, routers, producers ----------------------------------------------------------------

    def topic_created(self, event: ev.Event, name: str, config: TopicOptions) -> None:
        self._step("topic_created", event.topic, name, config, self._order)

    def topic_configured(self, event: ev.Event, config: TopicOptions) -> None:
        self._grown.pop(event.topic, None)
        self._step("topic_configured", event.topic, config, self._order)

    def topic_removed(self, event: ev.Event) -> None:
        self._step("topic_removed", event.topic, self._order)

    def router_created(
        self, event: ev.Event, router: int, name: str, dest: int, cursor: int,
        options: RouterOptions,
    ) -> None:  # fmt: skip
        has_filter = options.filter is not None
        self._copied.pop(router, None)
        self._step("router_created", router, name, event.topic, dest, has_filter, cursor)

    def router_configured(self, event: ev.Event, router: int, options: RouterOptions) -> None:
        self._step("router_configured", router, options.filter is not None)

    def epoch_committed(
        self, event: ev.Event, producer: str, epoch: int, ranges: Sequence[tuple[str, int, int]]
    ) -> None:
        self._step("epoch", producer, epoch, [*ranges], self._committed, self._order)

    def staged_dropped(self, event: ev.Event, producer: str, *, forget: bool) -> None:
        if forget:
            self._step("staged_dropped", producer)

    def checkpointed(
        self,
        event: ev.Event,
        topics: Sequence[ev.TopicSnapshot],
        routers: Sequence[ev.RouterSnapshot],
        producers: Sequence[ev.ProducerSnapshot],
        *,
        clean: bool,
    ) -> None:
        self._close()
        self._found.is_stopped = clean
        self._step("checkpointed", [*topics], [*routers], [*producers], clean, self._order)

    # -- records -----------------------------------------------------------------------------------

    def appended(
        self, event: ev.Event, first_seq: int, count: int, block: bytes, size: int
    ) -> None:
        self._grow(event.topic, first_seq, count)
        if not blocks.is_plain(block):
            self._note_bounds(event, block)
            self._note_members(event, block, range(first_seq, first_seq + count))

    def copied(
        self, event: ev.Event, router: int, cursor: int, first_seq: int, seqs: Sequence[int],
        size: int,
    ) -> None:  # fmt: skip
        self._grow(event.topic, first_seq, len(seqs))
        step = self._copied.get(router)
        if step is None or seqs[0] <= step[4]:
            step = self._step("copied", router, seqs[0], seqs[-1], cursor, [], self._order)
            self._copied[router] = step
        step[4] = max(step[4], cursor)
        if isinstance(seqs, range):
            seq_ranges.add(step[5], seqs[0], seqs[-1])
        else:
            for seq in seqs:
                seq_ranges.add(step[5], seq, seq)

    def staged(self, event: ev.Event, chunk: ev.ChunkKey, block: bytes) -> None:
        if not blocks.is_plain(block):
            self._note_bounds(event, block)

    def committed(self, event: ev.Event, chunk: ev.ChunkKey, first_seq: int, count: int) -> None:
        self._grow(event.topic, first_seq, count)
        last = first_seq + count - 1
        if self._committing is event:
            _, first_seq, _ = self._committed.pop()
        self._committing = event
        self._committed.append((event.topic, first_seq, last))

    def replaced(self, event: ev.Event, block: bytes) -> None:
        self._note_bounds(event, block)
        view = blocks.BlockView(block)
        seqs = view.numbers(blocks.SEQ) or ()
        self._note_members(event, block, seqs)
        groups = view.column(blocks.GROUP)
        if groups:
            regrouped = {seq: group_hash(group) for seq, group in zip(seqs, groups, strict=True)}
            self._step("regrouped", event.topic, self._order, regrouped)

    def skipped(self, event: ev.Event, first_seq: int, count: int) -> None:
        self._grown.pop(event.topic, None)
        self._step("skipped", event.topic, first_seq, first_seq + count - 1, self._order)

    def reserved(self, event: ev.Event, last_seq: int) -> None:
        self._step("reserved", event.topic, last_seq)

    def trimmed(self, event: ev.Event) -> None:
        self._found.removals.add(event.topic)

    def removed(self, event: ev.Event, seqs: Sequence[int], *, redriven: bool) -> None:
        self._found.removals.add(event.topic)
        if redriven:
            copies = _Written(self._events).records_beside(event.topic)
            self._step("redriven", event.topic, self._order, [*seqs], copies)

    def routed(self, event: ev.Event, router: int, cursor: int, forwarded: int) -> None:
        self._copied.pop(router, None)
        skips = _Written(self._events).skips
        self._step("routed", router, cursor, forwarded, skips, self._order)

    def _note_bounds(self, event: ev.Event, block: bytes) -> None:
        bounds = blocks.BlockView(block).numbers(blocks.MAX_DELIVERIES)
        if bounds:
            known = self._found.bounds
            known[event.topic] = max(known.get(event.topic, 0), *bounds)

    def _note_members(self, event: ev.Event, block: bytes, seqs: Sequence[int]) -> None:
        """Which jobs join which batch."""
        joined: dict[str, list[int]] = {}
        texts = blocks.BlockView(block).column(blocks.FOLLOW) or ()
        for seq, text in zip(seqs, texts, strict=False):
            batch = follow.batch_of(text)
            if batch is not None:
                joined.setdefault(batch, []).append(seq)
        if joined:
            self._step("joined", event.topic, joined, self._order)

    # -- schedules and batches ---------------------------------------------------------------------

    def schedule_set(self, event: ev.Event, name: str, next_at: int) -> None:
        self._step("schedule_set", name, next_at)

    def schedule_removed(self, event: ev.Event, name: str) -> None:
        self._step("schedule_removed", name)

    def schedule_fired(
        self, event: ev.Event, name: str, scheduled_for: int, next_at: int, seq: int, result: str
    ) -> None:
        written = _Written(self._events).records_in(event.topic)
        firing = NotedFiring(scheduled_for, next_at, event.at, event.topic, seq, result, written)
        self._step("schedule_fired", name, firing, self._order)

    def schedule_advanced(self, event: ev.Event, name: str, next_at: int) -> None:
        self._step("schedule_set", name, next_at)

    def batch_opened(self, event: ev.Event, name: str, on_done: str, on_problem: str) -> None:
        self._step("batch_opened", name, on_done, on_problem, self._order)

    def batch_closed(self, event: ev.Event, name: str) -> None:
        self._step("batch_closed", name)

    def batch_ended(self, event: ev.Event, name: str, joined: int, done: int) -> None:
        written = _Written(self._events).records
        self._step("batch_ended", name, joined, done, written, self._order)

    def batch_removed(self, event: ev.Event, name: str) -> None:
        self._step("batch_removed", name)


class _Written(ev.RecordVisitor):
    """What a whole transaction writes.

    Attributes:
        skips: Whether it skips seqs.
        records: How many it appends, by number of the topic.
    """

    def __init__(self, events: Sequence[ev.Event]) -> None:
        self.skips = False
        self.records: Counter[int] = Counter()
        for event in events:
            if type(event) not in PASSED:
                event.visit_records(self)

    def records_beside(self, topic: int) -> int:
        """How many records it appends to other topics."""
        return sum(count for number, count in self.records.items() if number != topic)

    def records_in(self, topic: int) -> int:
        """How many records it appends to a topic."""
        return self.records[topic]

    def appended(
        self, event: ev.Event, first_seq: int, count: int, block: bytes, size: int
    ) -> None:
        self.records[event.topic] += count

    def skipped(self, event: ev.Event, first_seq: int, count: int) -> None:
        self.skips = True
