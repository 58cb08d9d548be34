"""What became of the jobs of one queue: outcome, result, error; for a time, in bounded memory.

Owns: the entries, the order in which they go, and which segment of the log each is in. Must not
know: records, leases, topics, commands, the log.

An entry is visible while it is no older than `keep_ms`. The oldest go first when there are more
than `max_bytes`. Both are done in bounded steps, so for a moment there may be more entries than are
visible, never fewer.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

import msgspec

from logqueue.core.job_ends import JobEnds
from logqueue.core.record_times import moment, seq_of, time_of
from logqueue.events.event import JobEndKind
from logqueue.events.results import KeptEnd
from logqueue.model.config import ResultOptions

ENTRY_BYTES = 256
"""What an entry counts beside its texts."""

FORGOTTEN_PER_STEP = 2000
KEPT_PER_EVENT = 1000
KEPT_BYTES_PER_EVENT = 256 << 10


class EndedJob(msgspec.Struct, frozen=True, gc=False):
    """What became of a job; jobs that ended together without a text of their own share it.

    Attributes:
        at: When it ended, ms since the epoch.
        node: Whose doing it is; "" when time or an operator did it.
        reason: Of "dead_lettered": why.
        segment: Replay learns of it only from this segment of the jobs log on; 0 when never.
        result: JSON; b"" for none.
        error: The last error, or None.
        key: The key that it still has, as a JSON string; b"" for none.
    """

    outcome: JobEndKind
    at: int
    node: str
    reason: str
    segment: int
    result: bytes = b""
    error: str | None = None
    key: bytes = b""

    @property
    def size(self) -> int:
        """Bytes that it counts."""
        return ENTRY_BYTES + len(self.result) + len(self.error or "") + len(self.key)


class EndedJobs:
    """The ended jobs of a queue; an `EndListener`.

    Attributes:
        bytes: What the entries count together.
    """

    __slots__ = (
        "_by_segment", "_evicted", "_forgotten_before", "_jobs", "_keys", "_options", "_order",
        "bytes",
    )  # fmt: skip

    def __init__(self, options: ResultOptions) -> None:
        self._options = options
        self._jobs: dict[int, EndedJob] = {}
        self._keys: dict[bytes, int] = {}
        # A heap of moments; some may be of entries that were stated again since.
        self._order: list[int] = []
        # Seqs of entries that may be in each segment.
        self._by_segment: dict[int, array[int]] = {}
        self._forgotten_before = 0
        self.bytes = 0
        self._evicted = 0

    def __len__(self) -> int:
        return len(self._jobs)

    # -- queries ---------------------------------------------------------------------------------

    def find(self, seq: int, now: int) -> EndedJob | None:
        """What became of a job; None when that is not kept."""
        job = self._jobs.get(seq)
        return job if job is not None and self._is_visible(job, now) else None

    def holder(self, key: bytes, now: int) -> int | None:
        """Seq of the job that has a key beyond its end."""
        seq = self._keys.get(key)
        return None if seq is None or self.find(seq, now) is None else seq

    def keys_of(self, ends: Iterable[KeptEnd]) -> list[tuple[int, bytes]]:
        """The keys that some entries have."""
        found = ((end[0], self._jobs[end[0]].key) for end in ends)
        return [(seq, key) for seq, key in found if key]

    def visible(self, now: int) -> list[tuple[int, EndedJob]]:
        """All visible entries, by seq."""
        entries = sorted(self._jobs.items())
        return [(seq, job) for seq, job in entries if self._is_visible(job, now)]

    def of_segment(self, segment: int) -> array[int]:
        """Seqs of all entries that only a segment, or an earlier one, tells of; and of others."""
        seqs = array("Q")
        for known in [known for known in self._by_segment if known <= segment]:
            seqs.extend(self._by_segment[known])
        return seqs

    def kept(
        self, seqs: Sequence[int], at: int, segment: int, now: int
    ) -> tuple[list[KeptEnd], int]:
        """Those of some entries that would be lost with a segment, to be stated again.

        Args:
            seqs: From `of_segment`.
            at: Where to begin among them.
            segment: That segment.
            now: The clock.

        Returns:
            As many as one event should hold, and where to go on.
        """
        found: list[KeptEnd] = []
        size = 0
        for place in range(at, min(at + KEPT_PER_EVENT, len(seqs))):
            seq = seqs[place]
            job = self.find(seq, now)
            if job is not None and 0 < job.segment <= segment:
                if size > KEPT_BYTES_PER_EVENT:
                    return found, place
                size += job.size
                found.append(
                    (seq, job.outcome, job.at, job.node, job.reason, job.result, job.error)
                )
        return found, min(at + KEPT_PER_EVENT, len(seqs))

    def _is_visible(self, job: EndedJob, now: int) -> bool:
        return now - job.at <= self._options.keep_ms and job.at >= self._forgotten_before

    # -- changes (by core/apply only) ------------------------------------------------------------

    def jobs_ended(self, topic: object, ends: JobEnds) -> None:
        """See EndListener. How a job ended first is what counts."""
        job = EndedJob(ends.outcome, ends.at, ends.node, ends.reason, ends.segment)
        known = self._jobs
        for seq in ends.seqs:
            if seq not in known:
                self._put(seq, job)
        self.forget(ends.at)

    def note_texts(
        self,
        results: Sequence[tuple[int, bytes]],
        errors: Sequence[tuple[int, str]],
        keys: Sequence[tuple[int, bytes]],
        at: int,
    ) -> None:
        """Results, errors and keys of jobs that have just ended."""
        for seq, result in results:
            if seq in self._jobs:
                self._put(seq, msgspec.structs.replace(self._jobs[seq], result=result))
        for seq, error in errors:
            if seq in self._jobs:
                self._put(seq, msgspec.structs.replace(self._jobs[seq], error=error))
        for seq, key in keys:
            if seq in self._jobs:
                self._put(seq, msgspec.structs.replace(self._jobs[seq], key=key))
        self.forget(at)

    def state_again(
        self,
        ends: Iterable[KeptEnd],
        keys: Iterable[tuple[int, bytes]],
        segment: int,
        now: int,
    ) -> None:
        """Entries are in another segment from now on; at replay they may be new."""
        key_of = dict(keys)
        for seq, outcome, at, node, reason, result, error in ends:
            key = key_of.get(seq, b"")
            self._put(seq, EndedJob(outcome, at, node, reason, segment, result, error, key))
        self.forget(now)

    def segment_dropped(self, segment: int) -> None:
        """A segment, and all before it, has no entry any longer."""
        for known in [known for known in self._by_segment if known <= segment]:
            del self._by_segment[known]

    def change(self, options: ResultOptions, now: int) -> None:
        """Other bounds from now on; what is forgotten by now does not come back."""
        self._forgotten_before = max(self._forgotten_before, now - self._options.keep_ms)
        self._options = options
        self.forget(now)

    def forget(self, now: int, jobs_max: int = FORGOTTEN_PER_STEP) -> bool:
        """Remove entries that are too old or too many, the oldest first.

        Returns:
            Whether there are more, for the next call.
        """
        order, jobs = self._order, self._jobs
        while order:
            seq, at = seq_of(order[0]), time_of(order[0])
            job = jobs.get(seq)
            if job is not None and job.at == at:
                is_visible = self._is_visible(job, now)
                if is_visible and self.bytes <= self._options.max_bytes:
                    break
                if not jobs_max:
                    return True
                self._evicted += is_visible
                self.bytes -= job.size
                del jobs[seq]
                if job.key and self._keys.get(job.key) == seq:
                    del self._keys[job.key]
            heappop(order)
            jobs_max -= jobs_max > 0
        return False

    def take_evicted(self) -> int:
        """How many went before their time since the last call, for lack of room: an observation,
        not part of the replayed state."""
        evicted, self._evicted = self._evicted, 0
        return evicted

    def large_parts(self) -> list[list[Any] | dict[Any, Any]]:
        """Everything that is large, to be freed bit by bit; it must no longer be used."""
        return [self._jobs, self._keys, self._order, self._by_segment]

    def _put(self, seq: int, job: EndedJob) -> None:
        earlier = self._jobs.get(seq)
        if earlier is not None:
            self.bytes -= earlier.size
        if earlier is None or earlier.at != job.at:
            heappush(self._order, moment(job.at, seq))
        self._jobs[seq] = job
        self.bytes += job.size
        if job.key and self._keys.get(job.key, 0) <= seq:
            self._keys[job.key] = seq
        if job.segment and (earlier is None or earlier.segment != job.segment):
            seqs = self._by_segment.get(job.segment)
            if seqs is None:
                seqs = self._by_segment[job.segment] = array("Q")
            seqs.append(seq)
