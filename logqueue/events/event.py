"""What every event has: its traits, and what it says to those who read logs.

Owns: the base class, the visitors, the changes of jobs. Must not know: any single event.

Code outside `logqueue.events` and `core/apply` does not ask which class an event is of. It uses
the traits below, or reads what the event says through `visit_topics`, `visit_records` and
`job_changes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from logqueue.events.snapshots import ProducerSnapshot, RouterSnapshot, TopicSnapshot
from logqueue.model.config import RouterOptions, TopicOptions

if TYPE_CHECKING:
    from logqueue.events.split_block import SplitBlock

JOBS = 1
LEASES = 2
BOTH = JOBS | LEASES

LoggedWhen = Literal["always", "topic_logged", "topic_on_disk"]
SyncedWhen = Literal["always", "as_configured", "never"]
SpaceEffect = Literal["takes", "frees", "neutral"]

ChunkKey = tuple[str, int, int, str, int]
"""A staged chunk: producer, epoch, partition, attempt, number."""

JobEndKind = Literal[
    "acked",
    "rejected",
    "dropped",
    "expired",
    "superseded",
    "cancelled",
    "dead_lettered",
    "redriven",
    "deleted",
]
"""How a single job ends."""

JobChangeKind = (
    Literal["claimed", "extended", "released", "held", "unheld", "replaced", "trimmed"] | JobEndKind
)


class JobChange(msgspec.Struct, frozen=True, gc=False):
    """What one event says of some jobs of its topic.

    Attributes:
        kind: What happened.
        seqs: The jobs. Of "trimmed" the floor: every job up to it that had not ended is over.
        node: Who did it; "" when time or an operator did.
        count: How many jobs it counts for; of "trimmed", those that the event has evicted.
        first_lease: Of "claimed": lease number of the first job; they count up from there. Else 0.
        deadline: Of "claimed" and "extended", ms since the epoch. Else 0.
        dues: Of "released": when each job is claimable, ms since the epoch. The same of "replaced",
            empty where all are at once.
        reason: Of "released", "dead_lettered" and "held": why. Of "trimmed": "ttl" or "cap".
        error: Of "released": the error that was reported, or None.
        errors: Of "held": the last error of each job.
        uncounted: Of "released": the deliveries are undone.
        given_back: Of "released": the deliveries do not count towards `max_deliveries`.
        progress, note: Of "extended": how far the jobs are, and what their worker says of it; None
            where it said nothing new.
    """

    kind: JobChangeKind
    seqs: Sequence[int]
    node: str
    count: int
    first_lease: int = 0
    deadline: int = 0
    dues: Sequence[int] = ()
    reason: str = ""
    error: str | None = None
    errors: Sequence[str | None] = ()
    uncounted: bool = False
    given_back: bool = False
    progress: float | None = None
    note: str | None = None

    @property
    def was_waiting(self) -> bool:
        """Of "released": whether the jobs waited and got another time, so that no lease ended."""
        return self.reason in WAITING_REASONS


WAITING_REASONS = frozenset(("postponed", "delayed", "retried"))
"""Why jobs are "released" that waited before."""


class Event(msgspec.Struct, frozen=True, array_like=True):
    """A fact, as the logs keep it.

    The first three traits have no default: every event states them. A field named `seqs_reserved`
    means the same in every event that has it: the highest seq promised never to be given out
    twice; unless 0, the event is synced.

    Attributes:
        log: Which log it goes to: JOBS, LEASES or BOTH.
        logged: "always"; "topic_logged" if the topic's durability class is logged;
            "topic_on_disk" if records of the topic ever were.
        synced: "always"; "as_configured" by the durability class of the topic, or if the event
            reserves seqs; "never" if a later event makes the promise, or there was
            none. The leases log is never synced for the sake of an event.
        space: Whether it "takes" disk space that is left to acks and deletes, "frees" some, or is
            "neutral". An event that frees lets its whole transaction use the spare space.
        has_topic: Whether `topic` is the number of an instance that must exist.
        wakes_readers: Whether those who wait for the topic look again.
        changes_topology: Whether it changes which topics and routers there are; replies that show
            them wait for it.
        ends_topic: Whether the instance and all it held is gone.
        holds_records: Whether it says that records exist, or holds what becomes records: readers of
            records pass over all other events without decoding them.
        keeps_blocks_whole: Whether a restart needs its blocks with the data of their records.
        keeps_first_time: Whether `at` may be earlier than that of events before it.
        at: The dispatcher's clock when it was decided, ms since the epoch.
        topic: Number of the topic instance it is about.
    """

    log: ClassVar[int]
    logged: ClassVar[LoggedWhen]
    synced: ClassVar[SyncedWhen]
    space: ClassVar[SpaceEffect] = "neutral"
    has_topic: ClassVar[bool] = True
    wakes_readers: ClassVar[bool] = True
    changes_topology: ClassVar[bool] = False
    ends_topic: ClassVar[bool] = False
    holds_records: ClassVar[bool] = False
    keeps_blocks_whole: ClassVar[bool] = False
    keeps_first_time: ClassVar[bool] = False

    at: int
    topic: int

    def visit_topics(self, to: TopicVisitor) -> None:
        """Say what it means for topics, routers and producers. Nothing by default."""

    def visit_records(self, to: RecordVisitor) -> None:
        """Say what it means for records, in order. Nothing by default."""

    def visit_plans(self, to: PlanVisitor) -> None:
        """Say what it means for schedules and batches of jobs. Nothing by default."""

    def job_changes(self) -> Iterable[JobChange]:
        """What it means for jobs, if the topic is a queue. Nothing by default."""
        return ()

    def record_blocks(self) -> Sequence[bytes]:
        """The blocks of records in it (see `logqueue.events.block`). None by default."""
        return ()

    def with_blocks(self, blocks: Sequence[bytes | SplitBlock]) -> Event:
        """The same event with other blocks in place of its `record_blocks`, as many of them."""
        return self

    def needed_from(self) -> int:
        """First segment of the jobs log that is still needed; 0 when it does not say."""
        return 0


class TopicVisitor:
    """Learns from events about topics, routers and producers. Each method does nothing by default.

    Every method gets the event first, for its time and the number of its topic.
    """

    def topic_created(self, event: Event, name: str, config: TopicOptions) -> None:
        """A new instance exists."""

    def topic_configured(self, event: Event, config: TopicOptions) -> None:
        """The whole config was replaced."""

    def topic_removed(self, event: Event) -> None:
        """The instance and all it held is gone."""

    def router_created(
        self, event: Event, router: int, name: str, dest: int, cursor: int, options: RouterOptions
    ) -> None:
        """A router from the event's topic to `dest` exists; it starts behind `cursor`."""

    def router_configured(self, event: Event, router: int, options: RouterOptions) -> None:
        """A router has new options."""

    def epoch_committed(
        self, event: Event, producer: str, epoch: int, ranges: Sequence[tuple[str, int, int]]
    ) -> None:
        """A producer's epoch is complete; ranges are (topic name, first seq, last seq)."""

    def staged_dropped(self, event: Event, producer: str, *, forget: bool) -> None:
        """What a producer had staged was not committed in time; perhaps its last epoch is
        forgotten, too."""

    def checkpointed(
        self,
        event: Event,
        topics: Sequence[TopicSnapshot],
        routers: Sequence[RouterSnapshot],
        producers: Sequence[ProducerSnapshot],
        *,
        clean: bool,
    ) -> None:
        """Topics, routers and producers as they are at this place in the log; `clean` at an
        orderly end."""


class PlanVisitor:
    """Learns from events about schedules and batches of jobs. Each method does nothing by default.

    Every method gets the event first, for its time and the number of its topic.
    """

    def schedule_set(self, event: Event, name: str, next_at: int) -> None:
        """A schedule exists, and fires next at this time; 0 for never."""

    def schedule_removed(self, event: Event, name: str) -> None:
        """A schedule is gone."""

    def schedule_fired(
        self, event: Event, name: str, scheduled_for: int, next_at: int, seq: int, result: str
    ) -> None:
        """A schedule has fired; what it wrote is in the events before this one."""

    def schedule_advanced(self, event: Event, name: str, next_at: int) -> None:
        """Firings of a schedule were passed over."""

    def batch_opened(self, event: Event, name: str, on_done: str, on_problem: str) -> None:
        """A batch of jobs exists, with the topics of its callbacks; "" for none."""

    def batch_closed(self, event: Event, name: str) -> None:
        """A batch is closed."""

    def batch_ended(self, event: Event, name: str, joined: int, done: int) -> None:
        """A batch has ended; its callback is in the events before this one."""

    def batch_removed(self, event: Event, name: str) -> None:
        """A batch is gone."""


class RecordVisitor:
    """Learns from events about records. Each method does nothing by default.

    Every method gets the event first, for its time and the number of its topic.
    """

    def appended(self, event: Event, first_seq: int, count: int, block: bytes, size: int) -> None:
        """Records were appended; `size` are their bytes as the limits count them."""

    def copied(
        self, event: Event, router: int, cursor: int, first_seq: int, seqs: Sequence[int], size: int
    ) -> None:
        """A router appended copies of the records `seqs` of its source, which are earlier in
        the log; it has come to `cursor` there."""

    def staged(self, event: Event, chunk: ChunkKey, block: bytes) -> None:
        """A chunk was laid down; it is not visible yet."""

    def committed(self, event: Event, chunk: ChunkKey, first_seq: int, count: int) -> None:
        """A staged chunk was appended. Its block is earlier in the log, or in this frame."""

    def moved(self, event: Event, span: tuple[int, int], block: bytes) -> None:
        """Live records were written again unchanged, with their own seqs. They replace every batch
        in their span of seqs."""

    def replaced(self, event: Event, block: bytes) -> None:
        """Jobs got new content, with their own seqs."""

    def skipped(self, event: Event, first_seq: int, count: int) -> None:
        """Seqs without a record, reported to readers as lost."""

    def reserved(self, event: Event, last_seq: int) -> None:
        """Seqs up to this one are promised never to be given out twice."""

    def trimmed(self, event: Event) -> None:
        """Records at the front may be gone."""

    def removed(self, event: Event, seqs: Sequence[int], *, redriven: bool) -> None:
        """Records are gone; redriven ones went back to where they came from."""

    def routed(self, event: Event, router: int, cursor: int, forwarded: int) -> None:
        """A router has come to `cursor` in its source, and has made copies that an `appended`
        beside it says."""
