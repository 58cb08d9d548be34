"""Which jobs of a queue a caller selects: by state, tag, key, age, deliveries, holder and text.

Owns: the filter, whether a job passes it, what of a job a search for text examines, and which index
finds the jobs that may pass. Changes nothing. Must not know: pages, commands, what becomes of the
jobs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import msgspec

from logqueue.core.batch import Batch
from logqueue.core.commands import JobState
from logqueue.core.leases import JobEntry
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.record_times import seq_of
from logqueue.core.selection import matching_parts
from logqueue.events.block import DATA, GROUP, KEY, PRIORITY, TAG, BlockView
from logqueue.events.split_block import SplitBlock
from logqueue.model import limits
from logqueue.model.tag_predicate import Predicate

COLD_BYTES = 16 << 10
"""What an access to data outside memory counts for, beside the bytes it reads."""
RUN_JOBS_MAX = 250
RUN_BYTES_MAX = 256 << 10
"""Neighbouring jobs whose data is searched as one: where it has no such text, none of them has."""
INDEX_SHARE = 4
"""An index is used if it has at most one of so many live jobs: otherwise a scan is as good."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What a job must be to be selected; all of it.

    Attributes:
        states: In one of these; empty for any.
        match: Has such a tag.
        key: Has this key, a JSON string fragment.
        node: This node holds its lease.
        min_age_ms, max_age_ms: Was written at least, or at most, so long ago; None for any age.
        min_deliveries: Was delivered at least so often.
        needles: One of these byte strings is in its data, tag, key or last error: the ways in which
            one text may be written; empty for any. See `needles_of`.
        seqs: Is one of these; None for any.
        priority: Has this priority; None for any.
        group: Has this group, a JSON string fragment.
    """

    states: frozenset[JobState] = frozenset()
    match: Predicate | None = None
    key: bytes | None = None
    node: str | None = None
    min_age_ms: int | None = None
    max_age_ms: int | None = None
    min_deliveries: int = 0
    needles: tuple[bytes, ...] = ()
    seqs: Sequence[int] | None = None
    priority: int | None = None
    group: bytes | None = None

    @property
    def has_entries_only(self) -> bool:
        """Whether all jobs it selects were delivered or held: they have an entry in the queue."""
        only = self.states and self.states <= {"held", "in_flight"}
        return bool(only or self.node is not None or self.min_deliveries)


ANY_JOB = JobFilter()
_error_of = attrgetter("error")


def needles_of(text: str) -> tuple[bytes, ...]:
    """The ways in which JSON may have a text: as it is, within a string, with its characters
    escaped. Records are kept without blanks between tokens, so a text that looks like a part of
    formatted JSON is also searched for without them."""
    inner = json.dumps(text)[1:-1]
    forms = [
        text,
        json.dumps(text, ensure_ascii=False)[1:-1],
        inner,
        inner.replace("/", "\\/"),
        text.replace('": ', '":').replace(", ", ","),
    ]
    if not text.isascii():
        forms.append("".join(c if c.isascii() else json.dumps(c)[1:-1].upper() for c in text))
        forms[-1] = forms[-1].replace("\\U", "\\u")
    return tuple(dict.fromkeys(form.encode("utf-8", "surrogatepass") for form in forms))


def state_of(topic: QueueTopic, seq: int) -> JobState:
    """The state of a live job, as of the last `elapse`."""
    queue = topic.queue
    job = queue.jobs.get(seq)
    if job is None:
        return "delayed" if queue.is_delayed(seq, topic.due_of(seq)) else "ready"
    if job.grant is not None:
        return "in_flight"
    if seq in queue.held:
        return "held"
    return "delayed" if job.ready_at else "ready"


class ScanRun(NamedTuple):
    """Some neighbouring jobs of a queue.

    Attributes:
        seqs: Those that may pass.
        batch: Where they are.
        last: Their last seq.
        scanned: How many of them were examined for that, one at least.
    """

    seqs: Sequence[int]
    batch: Batch
    last: int
    scanned: int


class JobFilterRun:
    """A filter at work on one queue, at one time.

    Attributes:
        searched: Bytes that the search for text has examined so far; an access to data outside
            memory counts for some more.
    """

    def __init__(self, topic: QueueTopic, wanted: JobFilter, now: int) -> None:
        self._topic = topic
        self._wanted = wanted
        self._states = wanted.states
        self._newest = None if wanted.min_age_ms is None else now - wanted.min_age_ms
        self._oldest = None if wanted.max_age_ms is None else now - wanted.max_age_ms
        self._has_ages = self._newest is not None or self._oldest is not None
        self._seqs = None if wanted.seqs is None else frozenset(wanted.seqs)
        asked = (wanted.key, wanted.match, wanted.group, wanted.priority)
        self._has_columns = bool(wanted.needles) or any(value is not None for value in asked)
        self._batch: Batch | None = None
        self._view: BlockView | None = None
        self._data: object = None
        self.searched = 0

    def passes(self, seq: int, batch: Batch | None = None) -> bool:
        """Whether there is such a live job, and it passes.

        Args:
            seq: Any.
            batch: Where it is, if the caller knows.

        Raises:
            StorageUnreadable: The disk does not give the data that it takes to tell.
        """
        wanted, topic = self._wanted, self._topic
        if self._seqs is not None and seq not in self._seqs:
            return False
        job = topic.queue.jobs.get(seq)
        if wanted.node is not None or wanted.min_deliveries:
            grant = job.grant if job is not None else None
            if job is None or job.deliveries < wanted.min_deliveries:
                return False
            if wanted.node is not None and (grant is None or grant.node != wanted.node):
                return False
        if batch is None:
            batch = topic.batch_of(seq)
            if batch is None:
                return False
        index = batch.index_of(seq)
        if index < 0 or (self._states and state_of(topic, seq) not in self._states):
            return False
        if self._has_ages and not self._is_of_age(batch.ts_at(index)):
            return False
        if not self._has_columns:
            return True
        view = self._view_of(batch)
        if wanted.group is not None and view.text(GROUP, index) != wanted.group:
            return False
        if wanted.priority is not None and view.number(PRIORITY, index) != wanted.priority:
            return False
        if wanted.key is not None and view.text(KEY, index) != wanted.key:
            return False
        if wanted.match is not None and not wanted.match.matches_fragment(view.text(TAG, index)):
            return False
        return not wanted.needles or self._has_text(view, index, batch, job)

    def runs(self, after: int) -> Iterator[ScanRun]:
        """All jobs behind a seq, in runs of bounded size, without those of which it is known
        cheaply that they do not pass. Between two runs nothing may change.

        Raises:
            StorageUnreadable: The disk does not give the data that it takes to tell.
        """
        for batch in self._topic.batches_from(after + 1):
            if self._has_ages and not self._may_be_of_age(batch):
                yield ScanRun((), batch, batch.last_seq, 1)
                continue
            seqs = batch.live_seqs(after + 1)
            if not self._wanted.needles:
                if seqs:
                    yield ScanRun(seqs, batch, seqs[-1], len(seqs))
                continue
            at = 0
            while at < len(seqs):
                stop = self._run_end(batch, seqs, at)
                run = seqs[at:stop]
                yield ScanRun(
                    run if self._may_have_text(batch, run) else (), batch, run[-1], len(run)
                )
                at = stop

    def _may_be_of_age(self, batch: Batch) -> bool:
        return (self._newest is None or batch.ts <= self._newest) and (
            self._oldest is None or batch.newest >= self._oldest
        )

    def _run_end(self, batch: Batch, seqs: Sequence[int], at: int) -> int:
        """Where a run ends that begins at a place among the live seqs of a batch."""
        view, first = self._view_of(batch), batch.index_of(seqs[at])
        stop = min(at + RUN_JOBS_MAX, len(seqs))
        while stop > at + 1:
            before, last = view.column_span(DATA, first, batch.index_of(seqs[stop - 1]) + 1)
            if last - before <= RUN_BYTES_MAX:
                break
            stop = (at + stop) // 2
        return stop

    def _may_have_text(self, batch: Batch, run: Sequence[int]) -> bool:
        """Whether a job of a run may have the text: all of them are searched as one."""
        queue = self._topic.queue
        if queue.has_errors and any(map(_error_of, filter(None, map(queue.jobs.get, run)))):
            return True
        view, needles = self._view_of(batch), self._wanted.needles
        start, end = batch.index_of(run[0]), batch.index_of(run[-1]) + 1
        self._note_access(batch)
        for column in (TAG, KEY, DATA):
            before, last = view.column_span(column, start, end)
            self.searched += last - before
            if last and view.may_have(column, start, end, needles):
                return True
        return False

    def _note_access(self, batch: Batch) -> None:
        block = batch.block
        if isinstance(block, SplitBlock) and block.data is not self._data:
            self._data = block.data
            self.searched += COLD_BYTES if block.data.in_memory is None else 0

    def _is_of_age(self, ts: int) -> bool:
        if self._newest is not None and ts > self._newest:
            return False
        return self._oldest is None or ts >= self._oldest

    def _view_of(self, batch: Batch) -> BlockView:
        view = self._view
        if view is None or batch is not self._batch:
            self._batch, self._view = batch, (view := BlockView(batch.block))
        return view

    def _has_text(self, view: BlockView, index: int, batch: Batch, job: JobEntry | None) -> bool:
        needles = self._wanted.needles
        texts = [view.text(TAG, index), view.text(KEY, index)]
        if job is not None and job.error is not None:
            texts.append(job.error.encode("utf-8", "surrogatepass"))
        self.searched += sum(map(len, texts))
        for text in texts:
            if any(needle in text for needle in needles):
                return True
        self._note_access(batch)
        data = view.text(DATA, index)
        self.searched += len(data)
        return any(needle in data for needle in needles)


class IndexedParts(NamedTuple):
    """What an index finds.

    Attributes:
        size: About how many seqs.
        parts: All of them, in parts of bounded size, in no order.
    """

    size: int
    parts: Iterator[list[int]]


def indexed_parts(topic: QueueTopic, wanted: JobFilter, before: int) -> IndexedParts | None:
    """Seqs below one that may pass, found by an index, in parts of bounded size, in no order; None
    when a scan of all jobs is as good. Between two parts anything may change, so each part has to
    be held against the filter.

    Args:
        topic: Read only.
        wanted: The filter.
        before: The first seq that is not of interest.
    """
    queue = topic.queue
    if wanted.seqs is not None:
        return IndexedParts(len(wanted.seqs), _sliced(sorted(wanted.seqs), before))
    if wanted.key is not None:
        if queue.keys is None:
            return IndexedParts(0, iter(()))
        # Of jobs in flight or held there is no index by key.
        waiting = queue.keys.find(wanted.key)
        parts = chain([[] if waiting is None else [waiting]], _sliced([*queue.jobs], before))
        return IndexedParts(len(queue.jobs) + 1, parts)
    choices: list[tuple[int, Callable[[], Iterator[list[int]]]]] = []
    if wanted.states == {"held"}:
        choices.append((len(queue.held), lambda: _sliced([*queue.held], before)))
    elif wanted.has_entries_only:
        choices.append((len(queue.jobs), lambda: _sliced([*queue.jobs], before)))
    if wanted.states == {"delayed"}:
        choices.append((len(queue.delayed), lambda: _delayed_parts(topic, before)))
    if wanted.match is not None:
        tagged = topic.tags.count(wanted.match) if topic.tags is not None else 0
        choices.append((tagged, lambda: matching_parts(topic, wanted.match, before)))
    if not choices:
        return None
    size, made = min(choices, key=lambda choice: choice[0])
    return IndexedParts(size, made()) if size * INDEX_SHARE <= topic.live else None


def selected(
    topic: QueueTopic, search: JobFilterRun, indexed: IndexedParts | None, before: int
) -> Iterator[tuple[list[int], int]]:
    """All jobs below a seq that pass, by an index or else a scan, in bounded steps between which
    anything may change.

    Yields:
        Those that pass, and how many were examined.
    """
    if indexed is not None:
        yield from passing(search, indexed.parts)
        return
    after = 0
    while after + 1 < before:
        found: list[int] = []
        scanned, last = 0, 0
        searched_max = search.searched + limits.SEARCHED_BYTES_PER_PASS_MAX
        for run in search.runs(after):
            some = run.seqs[: limits.FILTERED_PER_PASS_MAX - scanned] if run.seqs else run.seqs
            found += [seq for seq in some if seq < before and search.passes(seq, run.batch)]
            scanned += len(some) if run.seqs else run.scanned
            last = some[-1] if some else run.last
            is_full = scanned >= limits.FILTERED_PER_PASS_MAX or search.searched >= searched_max
            if is_full or last + 1 >= before:
                break
        if not last:
            return
        after = last
        yield found, scanned


def _delayed_parts(topic: QueueTopic, before: int) -> Iterator[list[int]]:
    moments = [*topic.queue.delayed]
    for at in range(0, len(moments), limits.SCANNED_PER_PASS_MAX):
        seqs = map(seq_of, moments[at : at + limits.SCANNED_PER_PASS_MAX])
        yield sorted(seq for seq in seqs if seq < before)


def _sliced(seqs: Sequence[int], before: int) -> Iterator[list[int]]:
    for at in range(0, len(seqs), limits.SCANNED_PER_PASS_MAX):
        some = seqs[at : at + limits.SCANNED_PER_PASS_MAX]
        yield sorted(seq for seq in some if seq < before)


def passing(
    search: JobFilterRun, parts: Iterable[Sequence[int]]
) -> Iterator[tuple[list[int], int]]:
    """Hold parts of the seqs of a queue against a filter, in bounded steps.

    Yields:
        Those that pass, and how many were examined.
    """
    for part in parts:
        found: list[int] = []
        scanned, searched_max = 0, search.searched + limits.SEARCHED_BYTES_PER_PASS_MAX
        for seq in part:
            scanned += 1
            if search.passes(seq):
                found.append(seq)
            if search.searched >= searched_max or scanned == limits.FILTERED_PER_PASS_MAX:
                yield found, scanned
                found, scanned = [], 0
                searched_max = search.searched + limits.SEARCHED_BYTES_PER_PASS_MAX
        yield found, scanned
