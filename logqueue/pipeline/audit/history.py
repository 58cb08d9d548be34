"""What the frames of a log say about topics, seqs, orders, producers and routers.

Owns: one pass over the transactions of both logs, on the driver, that keeps ranges and not records.
Must not know: Spark, how findings are worded.

Seqs may have holes, and the log records each legitimate one:

    skipped    a router's source was trimmed before its copies were made (`SeqsSkipped`)
    reserved   after an unclean end the head of a `disk` topic steps to the end of what it had
               promised (`seqs_reserved`), which is known from the write that promised it
    memory     a topic was of class `ephemeral` for a while, and wrote nothing to the log
    damaged    frames that are known to be damaged or missing were there
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import pairwise

from logqueue import events as ev
from logqueue.events import block as blocks
from logqueue.model.config import RouterOptions, TopicOptions
from logqueue.pipeline.audit.frames import JOBS, LEASES, FrameProblem, Placed
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
    """The committed epochs of one producer: (epoch, order, digest, ranges, ranges as appended)."""

    last: int | None = None
    committed: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    repeated: list[tuple[int, int]] = field(default_factory=list)
    unlike: list[tuple[int, int, str]] = field(default_factory=list)


class AuditHistory:
    """All that one pass over both logs keeps.

    Attributes:
        identity: Of the jobs log, as hex.
        orders: Of all transactions at hand.
        orders_doubled: Orders that two transactions have.
        is_partial: Older segments of the jobs log are gone (their live records were moved).
        leases_from: First order of the leases log at hand; None when it begins at its beginning.
        kept_from: First segment of the jobs log that must be there.
        set_back: (order, ms) of the transactions that the clock was set back before, and how far.
        frames, records: How many there were.
    """

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.instances: dict[int, Instance] = {}
        self.edges: dict[int, Edge] = {}
        self.producers: dict[str, Epochs] = {}
        self.orders: Ranges = []
        self.orders_doubled: list[int] = []
        self.problems: list[FrameProblem] = []
        self.is_partial = False
        self.leases_from: int | None = None
        self.kept_from = 0
        self.set_back: list[tuple[int, int]] = []
        self.frames = self.records = 0
        self._suspects: dict[int, FrameProblem] = {}
        self._times: dict[str, tuple[array[int], array[int]]] = {
            log: (array("q"), array("q")) for log in (JOBS, LEASES)
        }

    @property
    def is_whole(self) -> bool:
        """Whether nothing of either log is gone or damaged."""
        damaged = any(not problem.is_tail for problem in self.problems)
        return not (self.is_partial or self.leases_from is not None or damaged)

    def lost_orders(self) -> Ranges:
        """Orders that were in a frame which is in no log: refused for want of space, or lost with
        the unsynced tail of one of the logs. Says little unless the logs are whole."""
        if not self.orders:
            return []
        return seq_ranges.without([(1, self.orders[-1][1])], self.orders)

    def named(self, name: str) -> list[Instance]:
        """The instances of a topic, oldest first."""
        return [inst for _, inst in sorted(self.instances.items()) if inst.name == name]

    # -- input -------------------------------------------------------------------------------------

    def take_leases(self, placed: Placed, order: int, at: int) -> None:
        """A transaction of the leases log; what it says is in the lease events."""
        self._note_order(order)
        self._note_time(LEASES, order, at)
        self.frames += 1
        if self.leases_from is None and placed.file.log == LEASES and placed.file.id > 1:
            self.leases_from = order

    def take_problem(self, problem: FrameProblem) -> None:
        """Frames are damaged or missing here."""
        self.problems.append(problem)
        if problem.file.log != LEASES:
            for number in self.instances:
                self._suspects[number] = problem

    def take(self, transaction: ev.Transaction) -> None:
        """A transaction of the jobs log."""
        if not transaction.events:
            return  # a placeholder for a lost frame
        self._note_order(transaction.order)
        self.frames += 1
        reader = _Reader(self, transaction)
        for event in transaction.events:
            event.visit_topics(reader)
            event.visit_records(reader)
            self.kept_from = max(self.kept_from, event.needed_from())
        last = transaction.events[-1]
        if not last.keeps_first_time:
            self._note_time(JOBS, transaction.order, last.at)

    def _note_time(self, log: str, order: int, at: int) -> None:
        orders, times = self._times[log]
        orders.append(order)
        times.append(at)

    def note_set_back(self) -> None:
        """Find where the clock was set back, once both logs are taken in."""
        if not any(a > b for _, times in self._times.values() for a, b in pairwise(times)):
            return
        last = 0
        for order, at in merge(*(zip(*columns, strict=True) for columns in self._times.values())):
            if at < last:
                self.set_back.append((order, last - at))
            last = at

    def _note_order(self, order: int) -> None:
        if seq_ranges.holds(self.orders, order, order):
            self.orders_doubled.append(order)
        seq_ranges.add(self.orders, order, order)

    def _instance(self, number: int, name: str = "") -> Instance:
        inst = self.instances.get(number)
        if inst is None:
            inst = Instance(number, name, f"{self.identity}-{number}")
            self.instances[number] = inst
        return inst

    def _grow(self, number: int, first: int, count: int, order: int) -> None:
        """A write gave seqs."""
        inst = self._instance(number)
        last = first + count - 1
        self.records += count
        if first <= inst.head:
            inst.doubled.append((first, min(last, inst.head), order))
        elif first > inst.head + 1:
            self._hole(inst, first - 1, order)
        self._suspects.pop(number, None)
        seq_ranges.add(inst.appended, first, last)
        inst.head = max(inst.head, last)

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

    def _epoch(
        self,
        producer: str,
        epoch: int,
        ranges: Sequence[tuple[str, int, int]],
        committed: list[tuple[str, int, int]],
        order: int,
    ) -> None:
        epochs = self.producers.setdefault(producer, Epochs())
        if epochs.last is not None:
            if epoch <= epochs.last:
                epochs.repeated.append((epoch, order))
            elif epoch > epochs.last + 1:
                epochs.gaps.append((epochs.last + 1, epoch - 1, order))
        noted = sorted((name, first, last) for name, first, last in ranges)
        # What went to topics that are in memory only is not in the log.
        logged = [part for part in noted if not any(i.was_in_memory for i in self.named(part[0]))]
        if logged != sorted(committed) and noted != sorted(committed):
            unlike = f"the commit names {noted}, the log has {sorted(committed)}"
            epochs.unlike.append((epoch, order, unlike))
        epochs.committed.append((epoch, order))
        epochs.last = max(epochs.last or 0, epoch)


class _Reader(ev.TopicVisitor, ev.RecordVisitor):
    """Takes in what one transaction of the jobs log says."""

    def __init__(self, history: AuditHistory, transaction: ev.Transaction) -> None:
        self._history = history
        self._transaction = transaction
        self._order = transaction.order
        # (topic name, first seq, last seq) of committed chunks, neighbours as one.
        self._committed: list[tuple[str, int, int]] = []
        self._committing: ev.Event | None = None

    # -- topics, routers, producers ----------------------------------------------------------------

    def topic_created(self, event: ev.Event, name: str, config: TopicOptions) -> None:
        inst = self._history._instance(event.topic, name)
        inst.name, inst.created = name, self._order
        inst.configs.append((self._order, config))

    def topic_configured(self, event: ev.Event, config: TopicOptions) -> None:
        self._history._instance(event.topic).configs.append((self._order, config))

    def topic_removed(self, event: ev.Event) -> None:
        self._history._instance(event.topic).dropped = self._order

    def router_created(
        self, event: ev.Event, router: int, name: str, dest: int, cursor: int,
        options: RouterOptions,
    ) -> None:  # fmt: skip
        has_filter = options.filter is not None
        edge = Edge(router, name, event.topic, dest, has_filter, cursor, cursor)
        self._history.edges[router] = edge

    def router_configured(self, event: ev.Event, router: int, options: RouterOptions) -> None:
        edge = self._history.edges.get(router)
        if edge is not None:
            edge.has_filter = edge.has_filter or options.filter is not None

    def epoch_committed(
        self, event: ev.Event, producer: str, epoch: int, ranges: Sequence[tuple[str, int, int]]
    ) -> None:
        self._history._epoch(producer, epoch, ranges, self._committed, self._order)

    def staged_dropped(self, event: ev.Event, producer: str, *, forget: bool) -> None:
        producers = self._history.producers
        if forget and producer in producers:
            producers[producer].last = None

    def checkpointed(
        self,
        event: ev.Event,
        topics: Sequence[ev.TopicSnapshot],
        routers: Sequence[ev.RouterSnapshot],
        producers: Sequence[ev.ProducerSnapshot],
        *,
        clean: bool,
    ) -> None:
        """Says what is known already, unless older segments are gone or damaged."""
        history = self._history
        for kept in topics:
            inst = history.instances.get(kept.topic)
            if inst is None:
                inst = history._instance(kept.topic, kept.name)
                inst.head, inst.known_from = kept.head, kept.head + 1
                inst.configs.append((self._order, kept.config))
            elif kept.head > inst.head:
                history._hole(inst, kept.head, self._order)
                inst.head = kept.head
            for first, last in kept.holes:
                inst.holes.append((first, last, "skipped"))
            inst.reserved = max(inst.reserved, kept.seqs_reserved)
        if clean:
            # From here on, nothing is promised beyond the heads.
            for inst in history.instances.values():
                inst.reserved = min(inst.reserved, inst.head)
        for edge in routers:
            if edge.router not in history.edges:
                has_filter = edge.options.filter is not None
                history.edges[edge.router] = Edge(
                    edge.router, edge.name, edge.source, edge.dest, has_filter, None, edge.cursor
                )
        for producer in producers:
            if producer.name not in history.producers and producer.epoch >= 0:
                history.producers[producer.name] = Epochs(producer.epoch)

    # -- records -----------------------------------------------------------------------------------

    def appended(
        self, event: ev.Event, first_seq: int, count: int, block: bytes, size: int
    ) -> None:
        self._history._grow(event.topic, first_seq, count, self._order)
        self._note_bounds(event, block)

    def copied(
        self, event: ev.Event, router: int, cursor: int, first_seq: int, seqs: Sequence[int],
        size: int,
    ) -> None:  # fmt: skip
        self._history._grow(event.topic, first_seq, len(seqs), self._order)
        edge = self._history.edges.get(router)
        if edge is None:
            return
        if seqs[0] <= edge.cursor:
            edge.repeated.append((seqs[0], min(seqs[-1], edge.cursor), self._order))
        if isinstance(seqs, range):
            seq_ranges.add(edge.copied, seqs[0], seqs[-1])
        else:
            for seq in seqs:
                seq_ranges.add(edge.copied, seq, seq)
        edge.cursor = max(edge.cursor, cursor)

    def staged(self, event: ev.Event, chunk: ev.ChunkKey, block: bytes) -> None:
        self._note_bounds(event, block)

    def committed(self, event: ev.Event, chunk: ev.ChunkKey, first_seq: int, count: int) -> None:
        self._history._grow(event.topic, first_seq, count, self._order)
        name = self._history._instance(event.topic).name
        last = first_seq + count - 1
        if self._committing is event:
            _, first_seq, _ = self._committed.pop()
        self._committing = event
        self._committed.append((name, first_seq, last))

    def replaced(self, event: ev.Event, block: bytes) -> None:
        self._note_bounds(event, block)

    def skipped(self, event: ev.Event, first_seq: int, count: int) -> None:
        inst = self._history._instance(event.topic)
        last = first_seq + count - 1
        if first_seq > inst.head + 1:
            self._history._hole(inst, first_seq - 1, self._order)
        inst.holes.append((first_seq, last, "skipped"))
        inst.head = max(inst.head, last)

    def reserved(self, event: ev.Event, last_seq: int) -> None:
        inst = self._history._instance(event.topic)
        inst.reserved = max(inst.reserved, last_seq)

    def trimmed(self, event: ev.Event) -> None:
        self._history._instance(event.topic).has_removals = True

    def removed(self, event: ev.Event, seqs: Sequence[int], *, redriven: bool) -> None:
        inst = self._history._instance(event.topic)
        inst.has_removals = True
        if redriven:
            copies = _Written(self._transaction).records_beside(event.topic)
            inst.redriven.append((self._order, [*seqs], copies))

    def routed(self, event: ev.Event, router: int, cursor: int, forwarded: int) -> None:
        edge = self._history.edges.get(router)
        if edge is None:
            return
        if _Written(self._transaction).skips:
            seq_ranges.add(edge.skipped, edge.cursor + 1, cursor)
        elif forwarded:
            edge.plain.append((self._order, edge.cursor, cursor, forwarded))
        edge.cursor = max(edge.cursor, cursor)

    def _note_bounds(self, event: ev.Event, block: bytes) -> None:
        if not blocks.is_plain(block):
            bounds = blocks.BlockView(block).numbers(blocks.MAX_DELIVERIES)
            if bounds:
                inst = self._history._instance(event.topic)
                inst.bound_max = max(inst.bound_max, *bounds)


class _Written(ev.RecordVisitor):
    """What a whole transaction writes.

    Attributes:
        skips: Whether it skips seqs.
    """

    def __init__(self, transaction: ev.Transaction) -> None:
        self.skips = False
        self._records: Counter[int] = Counter()
        for event in transaction.events:
            event.visit_records(self)

    def records_beside(self, topic: int) -> int:
        """How many records it appends to other topics."""
        return sum(count for number, count in self._records.items() if number != topic)

    def appended(
        self, event: ev.Event, first_seq: int, count: int, block: bytes, size: int
    ) -> None:
        self._records[event.topic] += count

    def skipped(self, event: ev.Event, first_seq: int, count: int) -> None:
        self.skips = True


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
