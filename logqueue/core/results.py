"""What commands result in.

Owns: one struct per result. Must not know: how a command is decided, HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat, starmap
from typing import Any, Literal, NamedTuple

import msgspec

from logqueue.core.job_batches import JobBatch
from logqueue.core.schedules import ScheduleState
from logqueue.model.config import TopicOptions
from logqueue.model.schedule import FiringResult

JobState = Literal["ready", "delayed", "in_flight", "held"]


class PutResult(NamedTuple):
    """Result of PutTopic, PatchTopic and SetPaused."""

    created: bool
    config: TopicOptions


class EnsureResult(NamedTuple):
    """Result of EnsureTopic.

    Attributes:
        created: Whether the topic was.
        config: The config that the topic has now.
        differs: Per field that was sent and has another value: the present and the wanted value.
    """

    created: bool
    config: TopicOptions
    differs: Mapping[str, tuple[Any, Any]] = {}


class DropResult(NamedTuple):
    """Result of DropTopic: whether it was there, and the routers that went with it."""

    deleted: bool
    routers_removed: tuple[str, ...] = ()


WriteResult = Literal["created", "replaced", "kept"]


class AppendResult(NamedTuple):
    """Result of Append.

    Attributes:
        first_seq: Seq of the first record; with `results`, the lowest of them.
        records: Records in the write.
        created: Whether the topic was.
        results: Effective seq and fate of each record in the order of the write, when any of them
            had a key; None says that all were created with consecutive seqs.
    """

    first_seq: int
    records: int
    head_seq: int
    created: bool
    deduped: bool
    results: Sequence[tuple[int, WriteResult]] | None = None

    @property
    def created_count(self) -> int:
        """How many records became new jobs."""
        if self.results is None:
            return self.records
        return sum(result == "created" for _, result in self.results)

    @property
    def last_seq(self) -> int:
        """Seq of the last record; with `results`, the highest of them."""
        if self.results is None:
            return self.first_seq + self.records - 1
        return max(seq for seq, _ in self.results)


class ClaimedJob(NamedTuple):
    """One leased job as handed out.

    Attributes:
        lease: Lease number; `lease_` + hex on the wire.
        deadline: ms since the epoch.
        deliveries: Claims of this job so far, this one included.
        data, tag, meta: JSON fragments; b"" when absent.
        key, group: JSON string fragments; b"" when absent.
        error: The last error a worker gave with it, or None.
        updated_at: When a keyed write replaced it, ms since the epoch; 0 when none did.
        given_back: Deliveries among these that do not count towards `max_deliveries`.
        follow: What follows it, see `events/follow.py`; b"" for nothing.
    """

    seq: int
    lease: int
    deadline: int
    ts: int
    deliveries: int
    data: bytes
    tag: bytes
    meta: bytes
    key: bytes = b""
    error: str | None = None
    updated_at: int = 0
    given_back: int = 0
    priority: int = 0
    group: bytes = b""
    follow: bytes = b""


class JobFate(NamedTuple):
    """What most jobs do not have; attributes as of `ClaimedJob`."""

    key: bytes = b""
    error: str | None = None
    updated_at: int = 0
    given_back: int = 0
    follow: bytes = b""


class ClaimedJobs(msgspec.Struct, eq=False):
    """The jobs of one claimer, ascending, or in the order of the claim where jobs have priorities
    or groups; column by column. Each is made when it is asked for.

    Attributes:
        seqs, leases, times, deliveries, data: As of `ClaimedJob`, one for each job.
        deadline: Of all of them, ms since the epoch.
        tags, metas: One for each job; None when no job has any.
        priorities, groups: One for each job; None when no job has any.
        fates: One for each job; None when no job has one.
    """

    seqs: Sequence[int]
    leases: Sequence[int]
    deadline: int
    times: list[int] = []
    deliveries: Sequence[int] = ()
    data: list[bytes] = []
    tags: list[bytes] | None = None
    metas: list[bytes] | None = None
    priorities: list[int] | None = None
    groups: list[bytes] | None = None
    fates: Sequence[JobFate] | None = None

    # Payloads must not get into the log with a traceback.
    __repr__ = object.__repr__

    def __len__(self) -> int:
        return len(self.seqs)

    def __iter__(self) -> Iterator[ClaimedJob]:
        count = len(self.seqs)
        columns = zip(
            self.seqs,
            self.leases,
            repeat(self.deadline, count),
            self.times,
            self.deliveries,
            self.data,
            repeat(b"", count) if self.tags is None else self.tags,
            repeat(b"", count) if self.metas is None else self.metas,
            strict=True,
        )
        if self.fates is None and self.priorities is None and self.groups is None:
            return starmap(ClaimedJob, columns)
        rows = zip(
            starmap(ClaimedJob, columns),
            repeat(JobFate(), count) if self.fates is None else self.fates,
            repeat(0, count) if self.priorities is None else self.priorities,
            repeat(b"", count) if self.groups is None else self.groups,
            strict=True,
        )
        return (
            job._replace(**fate._asdict(), priority=priority, group=group)
            for job, fate, priority, group in rows
        )


NoneReason = Literal[
    "empty", "delayed", "in_flight", "paused", "rate_limited", "max_in_flight", "group_busy"
]


class ClaimResult(NamedTuple):
    """Result of ClaimJobs: jobs per claimer, in their order, each ascending, and what is left.

    Attributes:
        ready: Jobs still claimable.
        reason: Why a claimer got nothing; None when all got some.
        retry_after_ms: When time alone may change that, if it is known.
        is_cut: The pass stopped at its bound; the next one continues.
    """

    jobs: list[ClaimedJobs]
    ready: int
    reason: NoneReason | None = None
    retry_after_ms: int | None = None
    is_cut: bool = False


class SettleResult(NamedTuple):
    """Result of AckJobs, NackJobs and RejectJobs: how many counted, which did not, and the
    counters after it.

    Attributes:
        appended: Of an ack that writes: the result of each write; empty when none was made, because
            a job was not held. None of any other.
    """

    settled: int
    skipped: list[int]
    ready: int
    in_flight: int
    appended: Sequence[AppendResult] | None = None


class ExtendResult(NamedTuple):
    """Result of ExtendLeases: the seqs that counted (repeats and all), the rest, the deadline."""

    seqs: list[int]
    skipped: list[int]
    deadline: int


class RemoveResult(NamedTuple):
    """Result of DeleteRecords and RemoveRecords: how many were removed, the topic's state after it,
    and what one transaction had no room for."""

    deleted: int
    earliest_seq: int
    head_seq: int
    live: int
    live_bytes: int
    rest: Sequence[int] = ()


class RouterPutResult(NamedTuple):
    """Result of PutRouter."""

    created: bool


class RouterDropResult(NamedTuple):
    """Result of DropRouter."""

    deleted: bool


class SchedulePutResult(NamedTuple):
    """Result of PutSchedule and PauseSchedule.

    Attributes:
        created: Whether the schedule was.
        schedule: As it is then.
        differs: Of `PutSchedule` with `if_absent`: members of which the schedule has others.
    """

    created: bool
    schedule: ScheduleState
    differs: tuple[str, ...] = ()


class ScheduleDropResult(NamedTuple):
    """Result of DropSchedule."""

    deleted: bool


class FiringOutcome(NamedTuple):
    """Result of RunSchedule and FireSchedule.

    Attributes:
        scheduled_for: The time of the firing, ms since the epoch; 0 when there was none.
        seq: The job it made, replaced or found.
        result: What became of its record.
        missed: Firings that were passed over.
    """

    scheduled_for: int
    seq: int
    result: FiringResult | None = None
    missed: int = 0


class ForwardResult(NamedTuple):
    """Result of Forward.

    Attributes:
        copied: Records copied by this pass.
        is_behind: There is more to examine.
        is_stalled: The destination has no room for the next record.
    """

    copied: int
    is_behind: bool
    is_stalled: bool


class BatchResult(NamedTuple):
    """Result of OpenBatch and CloseBatch; `created` says whether this call made it."""

    batch: JobBatch
    created: bool


class BatchDropResult(NamedTuple):
    """Result of DropBatch."""

    deleted: bool


class StageResult(NamedTuple):
    """Result of StageChunk.

    Attributes:
        is_new: False when the very chunk was staged, or its epoch committed, before.
        staged_bytes: What the producer has staged now.
    """

    is_new: bool
    staged_bytes: int


class CommitResult(NamedTuple):
    """Result of CommitEpoch.

    Attributes:
        is_new: False when the epoch was committed before.
        ranges: (topic, first seq, last seq) of what the epoch appended.
    """

    is_new: bool
    ranges: tuple[tuple[str, int, int], ...]


class AbortResult(NamedTuple):
    """Result of AbortEpoch.

    Attributes:
        is_committed: The epoch was committed before, so nothing of it is discarded.
        staged_bytes: What the producer still has staged.
    """

    is_committed: bool
    staged_bytes: int


class CancelResult(NamedTuple):
    """Result of CancelJob and CancelKey.

    Attributes:
        seq: The job; 0 when there is none with that key.
        state: What it was before; None when there is no such job.
        cancelled: False also for a job in flight that was not forced.
    """

    seq: int
    state: JobState | None
    cancelled: bool


class EditResult(NamedTuple):
    """Result of EditJob: the state of the job before and after it."""

    was: JobState
    state: JobState


class PurgeResult(NamedTuple):
    """Result of Purge and PurgeJobs: how many were removed of each state asked for, and what one
    transaction had no room for."""

    counts: dict[JobState, int]
    rest: Sequence[int] = ()


class ChangeResult(NamedTuple):
    """Result of ChangeJobs: which were changed, and what one transaction had no room for."""

    changed: Sequence[int]
    rest: Sequence[int] = ()


class ReleaseResult(NamedTuple):
    """Result of Release: how many were held and are ready now, the others, and the counters."""

    released: int
    skipped: list[int]
    ready: int
    held: int


class RedriveResult(NamedTuple):
    """Result of Redrive.

    Attributes:
        redriven: Moved (or would be, in a dry run).
        skipped: Selected but left: no known source, no room there, or in flight here.
        remaining: Matching dead letters that are left, the skipped ones among them.
        targets: Topics that got some.
        rest: What one transaction had no room for.
    """

    redriven: int
    skipped: int
    remaining: int
    targets: list[str]
    rest: Sequence[int] = ()


class Done(NamedTuple):
    """Result of commands that only the server itself executes."""

    total: int = 0
