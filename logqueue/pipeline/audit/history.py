"""What the segments of a log say about topics, seqs, orders, producers and routers.

Owns: the steps of all segments put together, in the order of the log, as ranges and not records.
Must not know: frames, engines, how findings are worded.

Seqs may have holes, and the log records each legitimate one:

    skipped    a router's source was trimmed before its copies were made (`SeqsSkipped`)
    reserved   after an unclean end the head of a `disk` topic steps to the end of what it had
               promised (`seqs_reserved`), which is known from the write that promised it
    memory     a topic was of class `ephemeral` for a while, and wrote nothing to the log
    damaged    frames that are known to be damaged or missing were there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from logqueue.events import ProducerSnapshot, RouterSnapshot, TopicSnapshot
from logqueue.model.config import TopicOptions
from logqueue.pipeline.audit.frames import JOBS, LEASES, FrameProblem
from logqueue.pipeline.audit.orders import OrderSet
from logqueue.pipeline.audit.plan_history import PlanHistory
from logqueue.pipeline.audit.steps import SegmentSteps, Times
from logqueue.segments import ranges as seq_ranges
from logqueue.segments.ranges import Ranges


@dataclass(slots=True)
class Instance:
    """One topic instance over its life in the log.

    Attributes:
        log_id: As the records have it.
        created, dropped: Orders; None when the log at hand does not tell.
        configs: (order from which it holds, config), ascending.
        known_from: Every record from this seq on that was ever appended is in the log at hand.
        head: Highest seq so far.
        reserved: Highest seq promised never to be given twice.
        appended: Seqs that writes of the log at hand have given to records.
        holes: (first, last, why) of seqs that legitimately have no record.
        doubled: (first, last, order) of seqs that were given twice.
        missing: (first, last, order) of seqs that were passed over without a reason.
        bound_max: Highest `max_deliveries` that a record brought of its own.
        has_removals: Whether records of it went otherwise than as jobs do.
        redriven: (order, seqs, copies in the same transaction) of dead letters that went back.
        regrouped: By seq, (order, group) of keyed writes that put a job into a group.
    """

    number: int
    name: str
    log_id: str
    created: int | None = None
    dropped: int | None = None
    configs: list[tuple[int, TopicOptions]] = field(default_factory=list)
    known_from: int = 1
    head: int = 0
    reserved: int = 0
    appended: Ranges = field(default_factory=list)
    holes: list[tuple[int, int, str]] = field(default_factory=list)
    doubled: list[tuple[int, int, int]] = field(default_factory=list)
    missing: list[tuple[int, int, int]] = field(default_factory=list)
    bound_max: int = 0
    has_removals: bool = False
    redriven: list[tuple[int, list[int], int]] = field(default_factory=list)
    regrouped: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    @property
    def is_queue(self) -> bool:
        """Whether jobs can be claimed."""
        return bool(self.configs) and self.configs[-1][1].is_queue

    @property
    def was_in_memory(self) -> bool:
        """Whether some of its records may never have been logged."""
        return any(not config.is_logged for _, config in self.configs)

    def hole_ranges(self) -> Ranges:
        """All seqs that legitimately have no record."""
        return seq_ranges.union([(first, last) for first, last, _ in self.holes])


@dataclass(slots=True)
class Edge:
    """One router instance: its edge, how far it has come, and what it copied.

    Attributes:
        started: Seq behind which it began; None when its creation is not in the log at hand.
        copied: Seqs of the source that were copied by reference, in the order of the log.
        plain: (order, cursor before, cursor, copies) of copies that do not name their originals.
    """

    number: int
    name: str
    source: int
    dest: int
    has_filter: bool
    started: int | None
    cursor: int
    copied: Ranges = field(default_factory=list)
    repeated: list[tuple[int, int, int]] = field(default_factory=list)
    skipped: Ranges = field(default_factory=list)
    plain: list[tuple[int, int, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Epochs:
    """The committed epochs of one producer, as far as they are not as they should be."""

    last: int | None = None
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    repeated: list[tuple[int, int]] = field(default_factory=list)
    unlike: list[tuple[int, int, str]] = field(default_factory=list)


class AuditHistory:
    """All that one pass over both logs keeps.

    Attributes:
        identity: Of the jobs log, as hex.
        orders: Of all transactions at hand.
        is_partial: Older segments of the jobs log are gone (their live records were moved).
        leases_from: First order of the leases log at hand; None when it begins at its beginning.
        kept_from: First segment of the jobs log that must be there.
        set_back: (order, ms) of the transactions that the clock was set back before, and how far.
        order_ends: By log, the highest order in it.
        is_stopped: Whether the jobs log ends as an orderly stop leaves it.
        certain_order: Up to this order both logs are at hand; None for all there are.
        frames: How many there were.
    """

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.instances: dict[int, Instance] = {}
        self.edges: dict[int, Edge] = {}
        self.producers: dict[str, Epochs] = {}
        self.plans = PlanHistory()
        self.orders = OrderSet()
        self.problems: list[FrameProblem] = []
        self.is_partial = False
        self.leases_from: int | None = None
        self.kept_from = 0
        self.set_back: list[tuple[int, int]] = []
        self.frames = 0
        self.order_ends: dict[str, int] = {}
        self.is_stopped = False
        self.certain_order: int | None = None
        self._suspects: dict[int, FrameProblem] = {}
        self._times = {log: Times() for log in (JOBS, LEASES)}
        self._before: dict[str, SegmentSteps] = {}

    @property
    def is_whole(self) -> bool:
        """Whether nothing of either log is gone or damaged."""
        damaged = any(not problem.is_tail for problem in self.problems)
        return not (self.is_partial or self.leases_from is not None or damaged)

    def lost_orders(self) -> Ranges:
        """Orders that were in a frame which is in no log: refused for want of space, or lost with
        the unsynced tail of one of the logs. Says little unless the logs are whole."""
        last = self.orders.last if self.certain_order is None else self.certain_order
        return seq_ranges.without([(1, last)], self.orders.ranges()) if last else []

    def named(self, name: str) -> list[Instance]:
        """The instances of a topic, oldest first."""
        return [inst for _, inst in sorted(self.instances.items()) if inst.name == name]

    # -- input -------------------------------------------------------------------------------------

    def identify(self, identity: str) -> None:
        """The first header that can be read says whose log it is."""
        self.identity = identity
        for inst in self.instances.values():
            inst.log_id = f"{identity}-{inst.number}"

    def take(self, segment: SegmentSteps) -> None:
        """The next segment of a log."""
        self._join(segment)
        self._take_orders(segment)
        self._times[segment.file.log].extend(segment.times)
        self.frames += segment.frames
        self.kept_from = max(self.kept_from, segment.kept_from)
        if segment.file.log == JOBS:
            self.is_stopped = segment.is_stopped
        for name, *given in segment.steps:
            getattr(self.plans if hasattr(PlanHistory, name) else self, name)(*given)
        for number, bound in segment.bounds.items():
            inst = self._instance(number)
            inst.bound_max = max(inst.bound_max, bound)
        for number in segment.removals:
            self._instance(number).has_removals = True

    def _join(self, segment: SegmentSteps) -> None:
        """Whether the segment follows the one before it."""
        file, before = segment.file, self._before.get(segment.file.log)
        self._before[file.log] = segment
        if before is None and file.log == LEASES and file.id > 1:
            self.leases_from = segment.orders.first
        if before is None or not segment.first:
            return
        if before.file.id + 1 != file.id:
            detail = (
                f"segments {before.file.id + 1} to {file.id - 1} of the {file.log} log are missing"
            )
        elif before.due and segment.first != before.due:
            detail = f"it begins with frame {segment.first} where {before.due} belongs"
        else:
            return
        self.take_problem(FrameProblem("segments_joined", file, 0, detail))

    def _take_orders(self, segment: SegmentSteps) -> None:
        self.orders.merge(segment.orders)
        log = segment.file.log
        self.order_ends[log] = max(self.order_ends.get(log, 0), segment.orders.last)

    def take_problem(self, problem: FrameProblem) -> None:
        """Frames are damaged or missing here."""
        self.problems.append(problem)
        if problem.file.log != LEASES:
            for number in self.instances:
                self._suspects[number] = problem

    def note_set_back(self) -> None:
        """Find where the clock was set back, once both logs are taken in.

        Both logs tell of one clock: steps that may be the same one count once.
        """
        steps = sorted(step for times in self._times.values() for step in times.back)
        joined: list[tuple[int, int, int]] = []
        for before, order, ms in steps:
            if joined and before < joined[-1][1]:
                start, known, most = joined[-1]
                joined[-1] = (start, min(known, order), max(most, ms))
            else:
                joined.append((before, order, ms))
        self.set_back = [(order, ms) for _, order, ms in joined]

    def _instance(self, number: int, name: str = "") -> Instance:
        inst = self.instances.get(number)
        if inst is None:
            inst = Instance(number, name, f"{self.identity}-{number}")
            self.instances[number] = inst
        return inst

    def _hole(self, inst: Instance, last: int, order: int) -> None:
        """Nothing was appended between the head and here. Why?"""
        first = inst.head + 1
        problem = self._suspects.pop(inst.number, None)
        if problem is not None:
            problem.lost[inst.number] = (first, last)
            inst.holes.append((first, last, "damaged"))
        elif last == inst.reserved:
            inst.holes.append((first, last, "reserved"))
        elif inst.was_in_memory:
            inst.holes.append((first, last, "memory"))
        else:
            inst.missing.append((first, last, order))

    # -- steps: topics, routers, producers ---------------------------------------------------------

    def topic_created(self, number: int, name: str, config: TopicOptions, order: int) -> None:
        """A topic came to be."""
        inst = self._instance(number, name)
        inst.name, inst.created = name, order
        inst.configs.append((order, config))

    def topic_configured(self, number: int, config: TopicOptions, order: int) -> None:
        """A topic has another config from here on."""
        self._instance(number).configs.append((order, config))

    def topic_removed(self, number: int, order: int) -> None:
        """A topic was deleted."""
        self._instance(number).dropped = order

    def router_created(
        self, router: int, name: str, source: int, dest: int, has_filter: bool, cursor: int
    ) -> None:
        """A router came to be."""
        self.edges[router] = Edge(router, name, source, dest, has_filter, cursor, cursor)

    def router_configured(self, router: int, has_filter: bool) -> None:
        """A router has another config from here on."""
        edge = self.edges.get(router)
        if edge is not None:
            edge.has_filter = edge.has_filter or has_filter

    def epoch(
        self,
        producer: str,
        epoch: int,
        ranges: Sequence[tuple[str, int, int]],
        committed: Sequence[tuple[int, int, int]],
        order: int,
    ) -> None:
        """A producer committed an epoch."""
        epochs = self.producers.setdefault(producer, Epochs())
        if epochs.last is not None:
            if epoch <= epochs.last:
                epochs.repeated.append((epoch, order))
            elif epoch > epochs.last + 1:
                epochs.gaps.append((epochs.last + 1, epoch - 1, order))
        written = sorted(
            (self._instance(topic).name, first, last) for topic, first, last in committed
        )
        noted = sorted((name, first, last) for name, first, last in ranges)
        # What went to topics that are in memory only is not in the log.
        logged = [part for part in noted if not any(i.was_in_memory for i in self.named(part[0]))]
        if logged != written and noted != written:
            unlike = f"the commit names {noted}, the log has {written}"
            epochs.unlike.append((epoch, order, unlike))
        epochs.last = max(epochs.last or 0, epoch)

    def staged_dropped(self, producer: str) -> None:
        """The next epoch of a producer may have any number."""
        if producer in self.producers:
            self.producers[producer].last = None

    def checkpointed(
        self,
        topics: Sequence[TopicSnapshot],
        routers: Sequence[RouterSnapshot],
        producers: Sequence[ProducerSnapshot],
        clean: bool,
        order: int,
    ) -> None:
        """Says what is known already, unless older segments are gone or damaged."""
        for kept in topics:
            inst = self.instances.get(kept.topic)
            if inst is None:
                inst = self._instance(kept.topic, kept.name)
                inst.head, inst.known_from = kept.head, kept.head + 1
                inst.configs.append((order, kept.config))
            elif kept.head > inst.head:
                self._hole(inst, kept.head, order)
                inst.head = kept.head
            for first, last in kept.holes:
                inst.holes.append((first, last, "skipped"))
            inst.reserved = max(inst.reserved, kept.seqs_reserved)
        if clean:
            # From here on, nothing is promised beyond the heads.
            for inst in self.instances.values():
                inst.reserved = min(inst.reserved, inst.head)
        for edge in routers:
            if edge.router not in self.edges:
                has_filter = edge.options.filter is not None
                self.edges[edge.router] = Edge(
                    edge.router, edge.name, edge.source, edge.dest, has_filter, None, edge.cursor
                )
        for producer in producers:
            if producer.name not in self.producers and producer.epoch >= 0:
                self.producers[producer.name] = Epochs(producer.epoch)

    # -- steps: records ----------------------------------------------------------------------------

    def grow(self, number: int, first: int, last: int, order: int) -> None:
        """Writes gave seqs."""
        inst = self._instance(number)
        if first <= inst.head:
            inst.doubled.append((first, min(last, inst.head), order))
        elif first > inst.head + 1:
            self._hole(inst, first - 1, order)
        self._suspects.pop(number, None)
        seq_ranges.add(inst.appended, first, last)
        inst.head = max(inst.head, last)

    def copied(
        self, router: int, first: int, last: int, cursor: int, ranges: Ranges, order: int
    ) -> None:
        """A router made copies of records by reference."""
        edge = self.edges.get(router)
        if edge is None:
            return
        if first <= edge.cursor:
            edge.repeated.append((first, min(last, edge.cursor), order))
        for start, end in ranges:
            seq_ranges.add(edge.copied, start, end)
        edge.cursor = max(edge.cursor, cursor)

    def skipped(self, number: int, first: int, last: int, order: int) -> None:
        """Seqs were passed over for copies whose originals were gone."""
        inst = self._instance(number)
        if first > inst.head + 1:
            self._hole(inst, first - 1, order)
        inst.holes.append((first, last, "skipped"))
        inst.head = max(inst.head, last)

    def reserved(self, number: int, last: int) -> None:
        """Seqs were promised never to be given twice."""
        inst = self._instance(number)
        inst.reserved = max(inst.reserved, last)

    def regrouped(self, number: int, order: int, groups: Mapping[int, int]) -> None:
        """Jobs got a group, or none, with new content."""
        known = self._instance(number).regrouped
        for seq, group in groups.items():
            known.setdefault(seq, []).append((order, group))

    def redriven(self, number: int, order: int, seqs: list[int], copies: int) -> None:
        """Dead letters went back to their queues."""
        self._instance(number).redriven.append((order, seqs, copies))

    def routed(self, router: int, cursor: int, forwarded: int, skips: bool, order: int) -> None:
        """A router came further otherwise than by copies that name their originals."""
        edge = self.edges.get(router)
        if edge is None:
            return
        if skips:
            seq_ranges.add(edge.skipped, edge.cursor + 1, cursor)
        elif forwarded:
            edge.plain.append((order, edge.cursor, cursor, forwarded))
        edge.cursor = max(edge.cursor, cursor)


def settle(history: AuditHistory, oldest: int | None) -> None:
    """Draw what only the end of the pass can tell.

    Args:
        oldest: First segment of the jobs log at hand; None when there is none.
    """
    history.is_partial = oldest is not None and oldest > 1
    history.note_set_back()
    for number, problem in history._suspects.items():
        # Nothing was appended behind the damage: the head of the topic is unknown.
        inst = history.instances[number]
        if len(history.instances) == 1:
            problem.lost.setdefault(number, (inst.head + 1, None))
