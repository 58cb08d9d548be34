"""Commands: what a caller wants, typed and within bounds, not yet decided.

Owns: one struct per command, generic over its result; results can be imported from here, too. Must
not know: how a command is decided, HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import msgspec

from logqueue.core.results import AbortResult as AbortResult
from logqueue.core.results import AppendResult as AppendResult
from logqueue.core.results import BatchDropResult as BatchDropResult
from logqueue.core.results import BatchResult as BatchResult
from logqueue.core.results import CancelResult as CancelResult
from logqueue.core.results import ChangeResult as ChangeResult
from logqueue.core.results import ClaimedJob as ClaimedJob
from logqueue.core.results import ClaimedJobs as ClaimedJobs
from logqueue.core.results import ClaimResult as ClaimResult
from logqueue.core.results import CommitResult as CommitResult
from logqueue.core.results import Done as Done
from logqueue.core.results import DropResult as DropResult
from logqueue.core.results import EditResult as EditResult
from logqueue.core.results import EnsureResult as EnsureResult
from logqueue.core.results import ExtendResult as ExtendResult
from logqueue.core.results import FiringOutcome as FiringOutcome
from logqueue.core.results import ForwardResult as ForwardResult
from logqueue.core.results import JobFate as JobFate
from logqueue.core.results import JobState as JobState
from logqueue.core.results import NoneReason as NoneReason
from logqueue.core.results import PurgeResult as PurgeResult
from logqueue.core.results import PutResult as PutResult
from logqueue.core.results import RedriveResult as RedriveResult
from logqueue.core.results import ReleaseResult as ReleaseResult
from logqueue.core.results import RemoveResult as RemoveResult
from logqueue.core.results import RouterDropResult as RouterDropResult
from logqueue.core.results import RouterPutResult as RouterPutResult
from logqueue.core.results import ScheduleDropResult as ScheduleDropResult
from logqueue.core.results import SchedulePutResult as SchedulePutResult
from logqueue.core.results import SettleResult as SettleResult
from logqueue.core.results import StageResult as StageResult
from logqueue.core.results import WriteResult as WriteResult
from logqueue.model.config import RouterOptions, TopicOptions
from logqueue.model.job_batch import BatchCallback
from logqueue.model.schedule import ScheduleOptions
from logqueue.model.tag_predicate import Predicate

R_co = TypeVar("R_co", covariant=True)


class Command(msgspec.Struct, Generic[R_co], frozen=True):
    """What a caller wants; the type says what it results in, once it is decided and done.

    Attributes:
        leases_only: It changes the leases of its topic and nothing else.
        makes_copies: It may copy jobs into the archive or the dead-letter topic of its queue.
    """

    leases_only: ClassVar[bool] = False
    makes_copies: ClassVar[bool] = False

    @property
    def topic(self) -> str:
        """Name of the topic that the result is computed from; "" when that is none."""
        return ""


class PutTopic(Command[PutResult], frozen=True):
    """Create a topic or replace its whole config. `config` is resolved.

    An existing topic keeps its `paused`, which only `SetPaused` changes.

    Attributes:
        if_version: The version that the present config must have; None for any, or no topic.
    """

    topic: str
    config: TopicOptions
    if_version: str | None = None


class EnsureTopic(Command[EnsureResult], frozen=True):
    """Create a topic unless it exists; never change an existing one.

    Attributes:
        config: Resolved; used only to create the topic and to compare.
        sent: The fields of `config` that the caller named, which are the ones to compare.
    """

    topic: str
    config: TopicOptions
    sent: frozenset[str]


class PatchTopic(Command[PutResult], frozen=True):
    """Change some fields of a topic's config by a JSON merge patch (RFC 7386).

    Attributes:
        changes: The decoded patch: null sets a field back to its default, objects are merged,
            fields that no config has are ignored, and so is `paused`: see `SetPaused`.
        if_version: As of `PutTopic`.
    """

    topic: str
    changes: Mapping[str, Any]
    if_version: str | None = None


class SetPaused(Command[PutResult], frozen=True):
    """Pause a queue, which then hands out nothing, or resume it."""

    topic: str
    paused: bool


class DropTopic(Command[DropResult], frozen=True):
    """Delete a topic with everything in it."""

    topic: str
    if_empty: bool = False


OnConflict = Literal["replace", "keep", "reject"]


class Keyed(msgspec.Struct, frozen=True):
    """What a keyed record of a write asks for.

    Attributes:
        index: Place of the record in the block, whose key column holds the same key.
        key: The key as a JSON string fragment, made by `block.write_string`.
        on_conflict: What to do when a waiting job of the queue has that key.
    """

    index: int
    key: bytes
    on_conflict: OnConflict = "replace"


class Append(Command[AppendResult], frozen=True):
    """Write a batch.

    Delays and times to live, each record's own, are number columns of the block.

    Attributes:
        block: The records, encoded by `block.pack`.
        count: Records in the block.
        key: Idempotency key, or None.
        create: True creates an absent topic, False never does, None asks `config.auto_create`.
        config: Config for a topic this write creates; ignored when the topic exists.
        keyed: The records that have a key, ascending by index.
    """

    topic: str
    block: bytes
    count: int
    key: str | None = None
    create: bool | None = None
    config: TopicOptions | None = None
    keyed: tuple[Keyed, ...] = ()


class Claimer(msgspec.Struct, frozen=True):
    """One party of a pass: a claim call, or a work stream with free slots.

    Attributes:
        jobs_max: How many jobs it wants.
        lease_ms: Clamped lease duration, or None for the queue's.
        stream: Identity of the work stream that will hold the leases; 0 for a claim call.
    """

    node: str
    jobs_max: int
    lease_ms: int | None = None
    stream: int = 0


class ClaimJobs(Command[ClaimResult], frozen=True):
    """Share the claimable jobs evenly among all claimers: one pass over the queue.

    Attributes:
        divert: False passes jobs over that were delivered too often, instead of dead-lettering
            them.
        wait_ms: How long a call may wait for its first job. A pass never waits: the dispatcher
            keeps the call on the queue's waitlist meanwhile.
    """

    leases_only: ClassVar[bool] = True
    makes_copies: ClassVar[bool] = True

    topic: str
    claimers: tuple[Claimer, ...]
    divert: bool = True
    wait_ms: int = 0


class AckJobs(Command[SettleResult], frozen=True):
    """Complete jobs: the permanent delete. `tokens` are lease numbers, None where unfenced.

    Attributes:
        results: What each job came to, as JSON, b"" for nothing; None for none at all.
        append: What is written in the same transaction, at most one write per topic. With it all
            of the jobs end or none.
    """

    makes_copies: ClassVar[bool] = True

    topic: str
    node: str
    seqs: Sequence[int]
    tokens: Sequence[int | None] | None = None
    results: Sequence[bytes] | None = None
    append: tuple[Append, ...] = ()


class NackJobs(Command[SettleResult], frozen=True):
    """Give jobs back.

    Attributes:
        delay_ms: Claimable again after this; 0 at once, None as the queue's retry_backoff says.
        error: Kept as the jobs' last error; None keeps the one before.
        count: False gives the delivery back, too, and is never held off by retry_backoff: the
            return of jobs that were never started.
    """

    leases_only: ClassVar[bool] = True

    topic: str
    node: str
    seqs: Sequence[int]
    tokens: Sequence[int | None] | None = None
    delay_ms: int | None = None
    error: str | None = None
    count: bool = True


class RejectJobs(Command[SettleResult], frozen=True):
    """Jobs that this node holds have failed permanently: dead-lettered, or as on_exhausted says."""

    makes_copies: ClassVar[bool] = True

    topic: str
    node: str
    seqs: Sequence[int]
    tokens: Sequence[int | None] | None = None
    error: str | None = None


class ExtendLeases(Command[ExtendResult], frozen=True):
    """Set the deadline of held leases to now + `lease_ms`.

    Attributes:
        progress: How far the jobs are, 0 to 1; None leaves what was said before.
        note: What the worker says of it; None leaves what was said before.
    """

    leases_only: ClassVar[bool] = True

    topic: str
    node: str
    seqs: Sequence[int]
    lease_ms: int
    tokens: Sequence[int | None] | None = None
    progress: float | None = None
    note: str | None = None


class Cohort(Command[list[Any]], frozen=True):
    """Commands of one type on one topic, decided as if one after the other, in one step.

    The result has what each command resulted in, in their order: its own result, or the
    `LogqueueError` that refused it. `core/decide/dispatch.py` knows which commands may be members.
    """

    topic: str
    members: Sequence[Command[Any]]


class ReleaseStream(Command[Done], frozen=True):
    """Give back every job still leased over one work stream.

    Attributes:
        has_worked: Whether the reader of the stream works on its jobs. If not, the deliveries
            do not count.
    """

    leases_only: ClassVar[bool] = True

    topic: str
    stream: int
    has_worked: bool = True


class DeleteRecords(Command[RemoveResult], frozen=True):
    """Delete live records below a seq and/or matching a tag predicate, permanently and silently.
    Done in portions."""

    topic: str
    before_seq: int | None = None
    match: Predicate | None = None


class RemoveRecords(Command[RemoveResult], frozen=True):
    """A portion of `DeleteRecords`: delete those of these records, ascending, that still match."""

    makes_copies: ClassVar[bool] = True

    topic: str
    seqs: Sequence[int]
    match: Predicate | None = None


class CancelJob(Command[CancelResult], frozen=True):
    """Remove one job that is waiting or held; with `force` also one in flight."""

    makes_copies: ClassVar[bool] = True

    topic: str
    seq: int
    force: bool = False


class EditJob(Command[EditResult], frozen=True):
    """Give a waiting or held job other content; it keeps its seq, key and deliveries.

    Attributes:
        data, tag, meta: JSON fragments; None keeps what there is, b"" removes it.
        retry: Make it ready now: a delay ends, a hold is released.
        priority: Its new priority; None keeps what it has.
    """

    topic: str
    seq: int
    data: bytes | None = None
    tag: bytes | None = None
    meta: bytes | None = None
    retry: bool = False
    priority: int | None = None


class CancelKey(Command[CancelResult], frozen=True):
    """Remove the waiting job with a key (a JSON string fragment)."""

    makes_copies: ClassVar[bool] = True

    topic: str
    key: bytes


class Purge(Command[PurgeResult], frozen=True):
    """Remove the jobs that are in some states by now. Done in portions."""

    topic: str
    states: frozenset[JobState]


class PurgeJobs(Command[PurgeResult], frozen=True):
    """A portion of `Purge`: remove those of these jobs, ascending, that are in such a state."""

    makes_copies: ClassVar[bool] = True

    topic: str
    seqs: Sequence[int]
    states: frozenset[JobState]


class Release(Command[ReleaseResult], frozen=True):
    """Let held jobs be claimed again, as if they had never been delivered."""

    topic: str
    seqs: Sequence[int]


JobAction = Literal["retry", "delay", "hold", "release", "cancel", "return", "prioritize"]


class ChangeJobs(Command[ChangeResult], frozen=True):
    """Do the same to those of some jobs, ascending, that are in one of the states. A portion of
    what an operator asks for.

    Attributes:
        action: "retry": claimable now; held ones as if never delivered. "delay": claimable after
            `delay_ms`. "hold": not claimable until released. "release": the end of that. "cancel":
            removed. "return": their leases end, and they are claimable now. "prioritize": they have
            `priority` from now on.
        states: At most those that the action applies to: see `APPLIES_TO`.
        delay_ms: Of "delay".
        priority: Of "prioritize".
    """

    makes_copies: ClassVar[bool] = True

    topic: str
    action: JobAction
    seqs: Sequence[int]
    states: frozenset[JobState]
    delay_ms: int = 0
    priority: int = 0


APPLIES_TO: Mapping[JobAction, frozenset[JobState]] = {
    "retry": frozenset(("delayed", "held")),
    "delay": frozenset(("ready", "delayed")),
    "hold": frozenset(("ready", "delayed")),
    "release": frozenset(("held",)),
    "cancel": frozenset(("ready", "delayed", "held", "in_flight")),
    "return": frozenset(("in_flight",)),
    "prioritize": frozenset(("ready", "delayed", "held")),
}
"""The states of jobs that an action changes."""


DeadLetterReason = Literal["max_deliveries", "rejected", "expired"]


class Redrive(Command[RedriveResult], frozen=True):
    """Move dead letters of a topic back to the queues they came from. Filters add up. Done in
    portions.

    Attributes:
        to: Where all of them go; None: each to its `$dead_letter_from`.
        seqs: Only these.
        match: Only those with such a tag.
        before_seq: Only those below it.
        reason: Only those with this `$dead_letter_reason`.
        origin: Only those from this queue: their `$dead_letter_from`.
        error: Only those whose `$dead_letter_error` is this, or has this pattern; see
            `core/letters.py`. "" for those without an error.
        data: What they get instead of their data.
        limit: How many to move at most.
        dry_run: Only say how many would be moved.
        check_target: Called with each topic that is to get some, whether it exists or not, before
            any of them moves; refuses by raising.
    """

    topic: str
    to: str | None = None
    seqs: Sequence[int] | None = None
    match: Predicate | None = None
    before_seq: int | None = None
    reason: DeadLetterReason | None = None
    origin: str | None = None
    error: str | None = None
    data: bytes | None = None
    limit: int = 1000
    dry_run: bool = False
    check_target: Callable[[str], object] | None = None


class RedriveLetters(Command[RedriveResult], frozen=True):
    """A portion of `Redrive`: move those of these dead letters, ascending, that it still means."""

    topic: str
    seqs: Sequence[int]
    wanted: Redrive


class Expire(Command[Done], frozen=True):
    """Let time act on a topic: records past their TTL and superseded jobs go. A bounded number
    per call. Submitted by the engine only."""

    topic: str


class Compact(Command[Done], frozen=True):
    """Rewrite the live records of neighbouring batches, so that old segments can be dropped.

    Attributes:
        first_seqs: First seqs of the batches, ascending and adjacent in the topic.
    """

    topic: str
    first_seqs: Sequence[int]


class PutRouter(Command[RouterPutResult], frozen=True):
    """Create a router or replace its options.

    Attributes:
        source, dest: Topic names; what is absent is created with the default config.
        create_dest: False refuses an absent `dest` instead.
    """

    router: str
    source: str
    dest: str
    options: RouterOptions
    create_dest: bool = True

    @property
    def topic(self) -> str:
        """The topic that a reply is computed from."""
        return self.source


class DropRouter(Command[RouterDropResult], frozen=True):
    """Delete a router; both topics stay, and so do the copies."""

    router: str


class Forward(Command[ForwardResult], frozen=True):
    """Let a router, named by its instance number, copy what comes next."""

    router: int


class PutSchedule(Command[SchedulePutResult], frozen=True):
    """Create a schedule or replace its options. One that has the same options stays as it is.

    Attributes:
        paused: None leaves an existing schedule as it is, and creates one that is not.
        if_absent: Never change an existing one; say how it differs.
    """

    schedule: str
    options: ScheduleOptions
    paused: bool | None = None
    if_absent: bool = False


class PauseSchedule(Command[SchedulePutResult], frozen=True):
    """Pause a schedule, which then fires no more, or resume it."""

    schedule: str
    paused: bool


class DropSchedule(Command[ScheduleDropResult], frozen=True):
    """Delete a schedule; what it wrote stays."""

    schedule: str


class RunSchedule(Command[FiringOutcome], frozen=True):
    """Have a schedule write its record now.

    Attributes:
        topic: The one it writes to.
    """

    topic: str
    schedule: str


class FireSchedule(Command[FiringOutcome], frozen=True):
    """Let a schedule do what is due. Submitted by the engine only.

    Attributes:
        topic: The one it writes to.
        noticed: When the server looked and found firings due, of which this is one.
    """

    topic: str
    schedule: str
    noticed: int


class OpenBatch(Command[BatchResult], frozen=True):
    """Create a batch of jobs.

    Attributes:
        on_done, on_problem: What is written when it ends.
    """

    name: str
    on_done: BatchCallback | None = None
    on_problem: BatchCallback | None = None


class CloseBatch(Command[BatchResult], frozen=True):
    """Have a batch end once its jobs have."""

    name: str


class DropBatch(Command[BatchDropResult], frozen=True):
    """Delete a batch without jobs."""

    name: str


class EndBatch(Command[Done], frozen=True):
    """End a batch that is due. For the server itself.

    Attributes:
        topic: What its callback is written to; "" for none.
    """

    topic: str
    name: str


class ExpireBatches(Command[Done], frozen=True):
    """Forget batches that ended long ago. For the server itself."""


class StageChunk(Command[StageResult], frozen=True):
    """Stage records that become visible when their producer's epoch is committed.

    Attributes:
        partition, number: Place of the chunk in the epoch.
        attempt: Tells one try of a partition from another.
        block, count: The records.
    """

    producer: str
    epoch: int
    topic: str
    partition: int
    attempt: str
    number: int
    block: bytes
    count: int


class StagedAttempt(NamedTuple):
    """The winning attempt of one partition: how many chunks it staged, and records in all."""

    partition: int
    attempt: str
    chunks: int
    rows: int


class CommitEpoch(Command[CommitResult], frozen=True):
    """Make the parts of an epoch visible, all at once, in the order of their partitions.

    Attributes:
        content: A digest of the epoch's content, whatever its chunks and order; a repeat
            with another one is refused. Empty: a repeat is recognized by the number of records
            only.
    """

    producer: str
    epoch: int
    parts: tuple[StagedAttempt, ...]
    content: str = ""


class AbortEpoch(Command[AbortResult], frozen=True):
    """Discard what is staged for an epoch, and for those before it. Committed ones stay."""

    producer: str
    epoch: int


class ExpireStaged(Command[Done], frozen=True):
    """Discard what producers have staged or remembered for too long. For the server itself."""
