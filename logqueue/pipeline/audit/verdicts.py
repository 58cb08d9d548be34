"""What one bucket of jobs says: counts, and ranges of jobs that break a rule.

Owns: how a judged bucket shrinks to a few ranges and numbers, and how such digests are encoded.
Must not know: engines, how findings are worded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from logqueue.pipeline.audit.findings import FINDINGS_PER_RULE_MAX
from logqueue.pipeline.audit.job_rows import COPY_DEAD, KIND, NONE, Ints, Mask, codes_of
from logqueue.pipeline.audit.job_rules import (
    FLOOR_SHIFT,
    BucketColumns,
    JobContext,
    evidence_of,
    judge,
    kept_copies,
    split_rows,
)
from logqueue.pipeline.audit.rules import ENDS, LEASE_RULES, ONE_END, SOFT_RULES

_SEQ: Final = (1 << FLOOR_SHIFT) - 1


class BrokenRange(msgspec.Struct, array_like=True):
    """Neighbouring jobs that break one rule.

    Attributes:
        place: Of the rule in `LEASE_RULES`.
        is_soft: What is missing may have been in lost lease events.
        first, last: Jobs; all between them break the rule, too, unless `is_soft`.
        jobs: How many they are.
        more: How many further ranges this one represents.
        evidence: About the first event of the first job.
    """

    place: int
    is_soft: bool
    first: int
    last: int
    jobs: int
    more: int
    evidence: dict[str, Any]


class QueueVerdict(msgspec.Struct, array_like=True):
    """What a bucket says of one queue.

    Attributes:
        events: How many there are of it.
        appended, trimmed, open: Jobs.
        ends: Jobs that were appended, by how they ended first; in the order of `ENDS`.
        stray: Jobs that ended and were never appended.
        ended_twice: Jobs with an error of the rule `one_end`.
        unknown: (first, last, may be lost) of jobs that are known from events only.
        floors: (floor, order) of the floors in these blocks.
    """

    log_id: str
    topic: str
    events: int = 0
    appended: int = 0
    trimmed: int = 0
    open: int = 0
    ends: list[int] = []
    stray: int = 0
    ended_twice: int = 0
    unknown: list[tuple[int, int, bool]] = []
    floors: list[tuple[int, int]] = []
    broken: list[BrokenRange] = []


class CopiesVerdict(msgspec.Struct, array_like=True):
    """Copies that do not agree with the ends of jobs.

    Attributes:
        kind: "dead_letter" or "archive".
        source: Name of the queue.
        missing: Jobs that ended without a copy.
        extra: Jobs with a copy that did not end that way.
        doubled: (job, copies, seqs of the first ones) of jobs with too many.
    """

    kind: str
    source: str
    missing: list[tuple[int, int]] = []
    extra: list[tuple[int, int]] = []
    doubled: list[tuple[int, int, list[int]]] = []


class Verdict(msgspec.Struct, array_like=True):
    """What a bucket says."""

    queues: list[QueueVerdict]
    copies: list[CopiesVerdict]


def encode(verdict: Verdict) -> bytes:
    """A verdict as bytes."""
    return msgspec.msgpack.encode(verdict)


def decode(encoded: bytes) -> Verdict:
    """The verdict of `encode`."""
    return msgspec.msgpack.decode(encoded, type=Verdict)


def verdict_of(table: pa.Table, context: JobContext) -> Verdict:
    """Judge a bucket.

    Args:
        table: All its rows, as `job_rows.ROWS`, in any order.
        context: Beyond the rows.
    """
    jobs, present, copies = split_rows(table)
    judge(jobs, context)
    queues = [*_queues(table, jobs, present, context)]
    return Verdict(queues, [*_copies(jobs, copies, context)] if context.sources else [])


# -- queues ----------------------------------------------------------------------------------------


class _Present:
    """The records that exist, as keys of jobs."""

    def __init__(self, present: pa.Table, ids: list[str]) -> None:
        code_of = {id: code for code, id in enumerate(ids)}
        logs, log_ids = codes_of(present.column("log_id"))
        of = np.array([code_of[id] for id in log_ids] or [0], np.int64)
        first = of[logs] << FLOOR_SHIFT | present.column("seq").to_numpy()
        last = of[logs] << FLOOR_SHIFT | present.column("due").to_numpy()
        order = np.argsort(first, kind="stable")
        self._first, self._last = first[order], last[order]

    def has(self, keys: Ints) -> Mask:
        """Which of some jobs have a record."""
        if not len(self._first):
            return np.zeros(len(keys), np.bool_)
        at = np.searchsorted(self._first, keys, "right") - 1
        found: Mask = (at >= 0) & (keys <= self._last[at])
        return found

    def count(self, code: int, up_to: int = _SEQ) -> int:
        """How many records a queue has, up to a seq."""
        low, high = np.searchsorted(self._first, (code << FLOOR_SHIFT, (code + 1) << FLOOR_SHIFT))
        bound = code << FLOOR_SHIFT | min(max(up_to, 0), _SEQ)
        first, last = self._first[low:high], np.minimum(self._last[low:high], bound)
        return int(np.maximum(last - first + 1, 0).sum())


def _queues(
    table: pa.Table, jobs: BucketColumns, present: pa.Table, context: JobContext
) -> Iterator[QueueVerdict]:
    records = _Present(present, jobs.ids)
    is_end = jobs.among(*ENDS)
    first_end = is_end & (jobs.sums(is_end) == 1)
    has_record = records.has(jobs.key)
    touched = ~jobs.among("delay")
    floors = _floors(table)
    for code, (log_id, name) in enumerate(zip(jobs.ids, jobs.names, strict=True)):
        low, high = np.searchsorted(jobs.log, (code, code + 1))
        part = slice(int(low), int(high))
        kinds = jobs.kind[part]
        counted = first_end[part] & has_record[part]
        ends = [int((counted & (kinds == KIND[end])).sum()) for end in ENDS]
        floor = max((floor for floor, _ in context.floors.get(log_id, ())), default=0)
        evicted = records.count(code, floor) - int((counted & (jobs.seq[part] <= floor)).sum())
        appended = records.count(code)
        twice = jobs.broken[part] >> ONE_END & 1 == 1
        yield QueueVerdict(
            log_id,
            name,
            int(touched[part].sum()) + len(floors.get(log_id, ())),
            appended,
            evicted,
            appended - sum(ends) - evicted,
            ends,
            int((first_end[part] & ~has_record[part]).sum()),
            len(np.unique(jobs.seq[part][twice])),
            _unknown(jobs, part, touched[part] & ~has_record[part], context),
            floors.get(log_id, []),
            [*_broken(jobs, part)],
        )


def _floors(table: pa.Table) -> dict[str, list[tuple[int, int]]]:
    moves = table.filter(pa.array(table.column("kind").to_numpy() == KIND["trimmed"]))
    found: dict[str, list[tuple[int, int]]] = {}
    columns = (moves.column(name).to_pylist() for name in ("log_id", "seq", "lseq"))
    for log_id, floor, order in sorted(zip(*columns, strict=True), key=lambda row: row[2]):
        known = found.setdefault(log_id, [])
        # A floor that is no higher than one before it changes nothing.
        if not known or floor > known[-1][0]:
            known.append((floor, order))
    return found


def _unknown(
    jobs: BucketColumns, part: slice, rows: Mask, context: JobContext
) -> list[tuple[int, int, bool]]:
    seqs, first = np.unique(jobs.seq[part][rows], return_index=True)
    if not len(seqs):
        return []
    orders = jobs.lseq[part][rows][first]
    lost_from = context.lost[0][0] if context.lost else np.iinfo(np.int64).max
    may_be_lost = orders > lost_from
    breaks = (np.diff(seqs) != 1) | (np.diff(may_be_lost.astype(np.int8)) != 0)
    starts, ends = _bounds(breaks)
    return [
        (int(seqs[a]), int(seqs[b]), bool(may_be_lost[a]))
        for a, b in zip(starts, ends, strict=True)
    ]


def _bounds(breaks: Mask) -> tuple[Ints, Ints]:
    """First and last places of runs, given where a new one begins."""
    at = np.flatnonzero(breaks)
    starts = np.concatenate([[0], at + 1])
    ends = np.concatenate([at, [len(breaks)]])
    return starts, ends


def ranges_of(seqs: Ints) -> list[tuple[int, int]]:
    """Ascending, distinct seqs as runs of neighbours."""
    if not len(seqs):
        return []
    starts, ends = _bounds(np.diff(seqs) != 1)
    return [*zip(seqs[starts].tolist(), seqs[ends].tolist(), strict=True)]


def _broken(jobs: BucketColumns, part: slice) -> Iterator[BrokenRange]:
    """The first event of each job that breaks a rule, neighbours as one."""
    rows = np.flatnonzero(jobs.broken[part]) + part.start
    if not len(rows):
        return
    for place in range(len(LEASE_RULES)):
        mine = rows[jobs.broken[rows] >> place & 1 == 1]
        softs = jobs.soft[mine] if place in SOFT_RULES else np.zeros(len(mine), np.bool_)
        for is_soft in (False, True):
            chosen = mine[softs == is_soft]
            seqs, first = np.unique(jobs.seq[chosen], return_index=True)
            if not len(seqs):
                continue
            at = chosen[first]
            if is_soft:
                evidence, count = evidence_of(jobs, int(at[0])), len(seqs)
                yield BrokenRange(place, True, int(seqs[0]), int(seqs[-1]), count, 0, evidence)
                continue
            starts, ends = _bounds(np.diff(seqs) != 1)
            kept = FINDINGS_PER_RULE_MAX
            for a, b in zip(starts[:kept].tolist(), ends[:kept].tolist(), strict=True):
                evidence, count = evidence_of(jobs, int(at[a])), b - a + 1
                yield BrokenRange(place, False, int(seqs[a]), int(seqs[b]), count, 0, evidence)
            if len(starts) > kept:
                a, more = int(starts[kept]), len(starts) - kept
                yield BrokenRange(
                    place, False, int(seqs[a]), int(seqs[-1]), len(seqs) - a, more, {}
                )


# -- copies ----------------------------------------------------------------------------------------


def _copies(jobs: BucketColumns, copies: pa.Table, context: JobContext) -> Iterator[CopiesVerdict]:
    kinds = copies.column("kind").to_numpy()
    topics, topic_names = codes_of(copies.column("topic"))
    seqs, places = copies.column("seq").to_numpy(), copies.column("lseq").to_numpy()
    rows = {
        "dead_letter": np.flatnonzero(jobs.among("dead_lettered")),
        "archive": np.flatnonzero(kept_copies(jobs, context)),
    }
    for kind, source in sorted(context.sources):
        is_kind = (kinds == COPY_DEAD) == (kind == "dead_letter")
        code = topic_names.index(source) if source in topic_names else NONE - 1
        mine = is_kind & (topics == code)
        of_source = np.array([name == source for name in jobs.names] or [False], np.bool_)
        ends = jobs.seq[rows[kind][of_source[jobs.log[rows[kind]]]]]
        found = _compared(kind, source, ends, seqs[mine], places[mine])
        if found.missing or found.extra or found.doubled:
            yield found


def _compared(kind: str, source: str, ends: Ints, copied: Ints, places: Ints) -> CopiesVerdict:
    seqs = np.unique(np.concatenate([ends, copied]))
    n_ends = np.bincount(np.searchsorted(seqs, ends), minlength=len(seqs))
    n_copies = np.bincount(np.searchsorted(seqs, copied), minlength=len(seqs))
    doubled = []
    for seq in seqs[n_copies > np.maximum(n_ends, 1)][: FINDINGS_PER_RULE_MAX + 1].tolist():
        at = sorted(places[copied == seq].tolist())
        doubled.append((seq, len(at), at[:10]))
    missing = seqs[(n_ends > 0) & (n_copies == 0)]
    extra = seqs[(n_copies > 0) & (n_ends == 0)]
    return CopiesVerdict(kind, source, ranges_of(missing), ranges_of(extra), doubled)
