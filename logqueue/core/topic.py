"""One topic: its live batches, its floors, its idempotency keys.

Owns: the structures and the few ways they change (called from `apply` only) or are looked at.
Must not know: commands, jobs and leases (see `queue_topic`), the log.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from logqueue.core.batch import Batch, Record
from logqueue.core.batches import Batches, live_size
from logqueue.core.record_attributes import RecordAttributeIndex
from logqueue.core.record_times import due_at, expires_at, is_timed, time_of, written_at
from logqueue.core.tags import TagIndex
from logqueue.errors import StorageUnreadable
from logqueue.events.block import (
    FOLLOW,
    GROUP,
    KEY,
    MAX_DELIVERIES,
    PRIORITY,
    TAG,
    UNIQUE,
    BlockView,
    has_tags,
    is_bare,
    is_plain,
    size_total,
    tags_of,
)
from logqueue.model import limits
from logqueue.model.config import TopicOptions

KEYS_FORGOTTEN_PER_WRITE = 100


class Remembered(NamedTuple):
    """What a repeated write with the same idempotency key is answered with. `results` as in the
    event `RecordsReplaced`; empty when all records were new."""

    at: int
    first_seq: int
    records: int
    head: int
    segment: int
    results: tuple[tuple[int, int], ...] = ()


class Topic:
    """The state of one topic instance. A queue is a `QueueTopic`; what is not one is a log.

    Attributes:
        number: Identity of the instance; a recreated topic gets another one.
        head: Highest seq ever assigned, 0 when none.
        cap_floor, ttl_floor: Highest seq that caps, or TTL, have evicted from the front.
        holes: Runs of seqs above the floor that were lost before they got here (first, last),
            ascending; readers see them as lost.
        seqs_reserved: Seqs up to here were promised durably (class `disk` only).
        tags: Which records have which tag; None while no record had one.
        attributes: Indexes over records with columns of their own; None while there never was one.
        due_again_at: When what is due is to be looked at again, after it could not go where it has
            to; an observation, not part of the replayed state.
        last_read_at: Time of the last read; an observation, not part of the replayed state.
        touched_at: The same as used by the advisory priority, which a list may refresh too.
        is_trimming: Whether records over its caps are still to go, a portion at a time. Not kept by
            checkpoints: what is left then is removed with the next write.
        is_on_disk: Whether the log holds, or may hold, records of this topic.
        replacing: New content of jobs that is not in its place yet, from a place in each batch on,
            the lowest seqs last; written at `replaced_at`. See `apply_replacing`.
        mark_written, mark_durable: Jobs-log positions that must be written, or synced, before a
            reply computed from this topic may leave; kept by the engine, not replayed.
    """

    __slots__ = (
        "attributes", "batches", "cap_floor", "config", "due_again_at", "head", "holes",
        "is_on_disk", "is_trimming", "keys",
        "last_read_at", "last_write_at", "mark_durable", "mark_written", "name", "number",
        # Set in a `QueueTopic` only; the slot is here so that a log can become a queue in place.
        "queue",
        "replaced_at", "replacing", "seqs_reserved", "tags", "touched_at", "ttl_floor",
    )  # fmt: skip

    def __init__(self, number: int, name: str, config: TopicOptions) -> None:
        self.number = number
        self.name = name
        self.config = config
        self.head = 0
        self.cap_floor = 0
        self.ttl_floor = 0
        self.seqs_reserved = 0
        self.holes: list[tuple[int, int]] = []
        self.last_write_at = 0
        self.last_read_at = 0
        self.touched_at = 0
        self.is_trimming = False
        self.is_on_disk = config.is_logged
        self.mark_written = 0
        self.mark_durable = 0
        self.batches = Batches()
        self.tags: TagIndex | None = None
        self.keys: dict[str, Remembered] = {}
        self.attributes: RecordAttributeIndex | None = None
        self.due_again_at = 0
        self.replacing: list[tuple[Batch, int]] = []
        self.replaced_at = 0

    # -- queries ---------------------------------------------------------------------------------

    @property
    def live(self) -> int:
        """Records not removed."""
        return self.batches.live

    @property
    def live_bytes(self) -> int:
        """Size of the live records as the limits count it, in bytes."""
        return self.batches.size

    @property
    def floor(self) -> int:
        """Highest seq involuntarily removed from the front."""
        return max(self.cap_floor, self.ttl_floor)

    @property
    def is_over(self) -> bool:
        """Whether it holds more than its caps allow."""
        records, size = self.config.cap_records, self.config.cap_bytes
        return bool((records and self.live > records) or (size and self.live_bytes > size))

    @property
    def removed_max(self) -> int:
        """How many records one transaction may take out."""
        if self.attributes is not None:
            return min(limits.INDEXED_PER_PASS_MAX, limits.FINISHED_PER_PASS_MAX)
        return limits.FINISHED_PER_PASS_MAX

    @property
    def evicted_max(self) -> int | None:
        """How many records may go from the front at once; None when any number is cheap, since
        nothing but whole batches has to go."""
        return None if self.attributes is None else self.removed_max

    @property
    def earliest_seq(self) -> int:
        """Lowest seq not yet removed from the front; head + 1 when the topic is empty."""
        return self.batches.first.first_live_seq() if self.batches else self.head + 1

    def effective_priority(self, now: int) -> int:
        """Advisory priority, -1000 to 1000: as configured, else decaying since the last read."""
        config = self.config
        if config.priority is not None:
            return min(max(config.priority, -limits.PRIORITY_MAX), limits.PRIORITY_MAX)
        idle_ms = now - self.touched_at
        if not config.auto_priority or not self.touched_at or idle_ms > 300_000:
            return 0
        return round(500 * math.pow(2.0, -max(idle_ms, 0) / 30_000))

    def batch_of(self, seq: int) -> Batch | None:
        """The batch whose range holds this seq, if any."""
        return self.batches.find(seq)

    def batches_from(self, seq: int) -> Iterator[Batch]:
        """Batches that may hold live records with this seq or a higher one, ascending."""
        return self.batches.since(seq)

    def holds(self, seq: int) -> bool:
        """Whether a record lives."""
        batch = self.batch_of(seq)
        return batch is not None and batch.index_of(seq) >= 0

    def is_bare(self, first: int, last: int) -> bool:
        """Whether no record lives from one seq to another, both counted in."""
        for batch in self.batches_from(first):
            if batch.first_seq > last:
                return True
            seqs = batch.live_seqs(first)
            if seqs:
                return seqs[0] > last
        return True

    def records(self, seqs: Sequence[int]) -> Iterator[Record]:
        """Live records among ascending seqs; the rest is passed over."""
        for batch, start, end in self.batches.runs(seqs):
            yield from batch.at(range(start, end))

    def readable(self, seqs: Sequence[int]) -> dict[int, Record]:
        """Live records among ascending seqs, by seq; without those whose data cannot be read."""
        try:
            return {record[0]: record for record in self.records(seqs)}
        except StorageUnreadable:
            found: dict[int, Record] = {}
            for seq in seqs:
                with suppress(StorageUnreadable):
                    found.update((record[0], record) for record in self.records([seq]))
            return found

    def fitting(self, seqs: Sequence[int], bytes_max: int) -> int:
        """How many of ascending live seqs, from the first on, are no larger together than a bound,
        as the limits count bytes; one at least."""
        if self.live_bytes <= bytes_max:
            return len(seqs)
        at = 0
        left = bytes_max
        while at < len(seqs):
            batch = self.batch_of(seqs[at])
            if batch is None:
                at += 1
                continue
            end = bisect_right(seqs, batch.last_seq, at)
            # Blocks are larger than the records in them: mostly there is no need to look closer.
            size = len(batch.block)
            if size > left:
                for place in range(at, end):
                    left -= batch.size_of(seqs[place])
                    if left < 0 and place:
                        return place
            else:
                left -= size
            at = end
        return len(seqs)

    def key_of(self, seq: int) -> tuple[bytes, int, int]:
        """A live record's key (b"" when it has none), when its content was written, and for how
        long it has the key, as the column `UNIQUE` says."""
        batch = self.batch_of(seq)
        if batch is None or batch.is_plain:
            return b"", 0, 0
        index = batch.index_of(seq)
        if index < 0:
            return b"", 0, 0
        view = BlockView(batch.block)
        written = written_at(view, index, batch.ts_at(index))
        return view.text(KEY, index), written, view.number(UNIQUE, index)

    def order_of(self, seq: int) -> tuple[int, bytes]:
        """A live record's priority and group, 0 and b"" when it has none."""
        if self.attributes is None:
            return 0, b""
        batch = self.batch_of(seq)
        if batch is None or batch.is_plain:
            return 0, b""
        index = batch.index_of(seq)
        if index < 0:
            return 0, b""
        view = BlockView(batch.block)
        return view.number(PRIORITY, index), view.text(GROUP, index)

    def follow_of(self, seq: int) -> bytes:
        """What follows a live record, as the block keeps it; b"" for nothing."""
        if self.attributes is None:
            return b""
        batch = self.batch_of(seq)
        if batch is None or batch.is_plain:
            return b""
        index = batch.index_of(seq)
        return BlockView(batch.block).text(FOLLOW, index) if index >= 0 else b""

    @property
    def has_steps(self) -> bool:
        """Whether any record may be followed by the steps of a chain."""
        return self.attributes is not None and self.attributes.has_steps

    def tag_of(self, seq: int) -> bytes:
        """A live record's tag as a JSON string fragment, b"" when it has none."""
        batch = self.batch_of(seq)
        index = batch.index_of(seq) if batch is not None else -1
        return BlockView(batch.block).text(TAG, index) if batch is not None and index >= 0 else b""

    def size_of(self, seq: int) -> int:
        """Bytes of a live record as the limits count them; 0 when there is none."""
        batch = self.batch_of(seq)
        return batch.size_of(seq) if batch is not None else 0

    def due_of(self, seq: int) -> int:
        """When a live record was first to be claimable; 0 when it asked for no delay."""
        batch = self.batch_of(seq)
        if batch is None or batch.is_plain:
            return 0
        index = batch.index_of(seq)
        return due_at(BlockView(batch.block), index, batch.ts_at(index))

    def is_timed(self, seq: int) -> bool:
        """Whether a record is a job that comes by its own time; see `timing.is_timed`."""
        batch = self.batch_of(seq)
        if batch is None or batch.is_plain:
            return False
        index = batch.index_of(seq)
        return index >= 0 and is_timed(BlockView(batch.block), index, batch.ts_at(index))

    def deliveries_max(self, seq: int) -> int:
        """Deliveries after which a live job is exhausted, by its own bound or the topic's; 0 when
        it never is."""
        attributes = self.attributes
        if attributes is not None and attributes.has_bounds:
            batch = self.batch_of(seq)
            if batch is not None and not batch.is_plain:
                own = BlockView(batch.block).number(MAX_DELIVERIES, batch.index_of(seq))
                if own:
                    return own
        return self.config.max_deliveries

    def is_due(self, now: int) -> bool:
        """Whether records are past their TTL or over tightened caps, or jobs superseded."""
        if self.is_trimming and self.is_over:
            return True
        bounded = self.config.ttl_ms and self.batches
        if bounded and self.batches.first.first_live_ts() < self.expired_before(now):
            return True
        return self.attributes is not None and self.attributes.is_due(now)

    def is_past_its_own(self, seq: int, now: int) -> bool:
        """Whether a live record is past its own time to live."""
        batch = self.batch_of(seq)
        if batch is None or batch.is_plain:
            return False
        index = batch.index_of(seq)
        end = expires_at(BlockView(batch.block), index, batch.ts_at(index)) if index >= 0 else 0
        return 0 < end < now

    def next_expiry(self) -> int | None:
        """When the first record will be past its TTL, ms since the epoch; None if never."""
        ends = []
        if self.config.ttl_ms and self.batches:
            ends.append(self.batches.first.first_live_ts() + self.config.ttl_ms)
        if self.attributes is not None and self.attributes.expiries:
            ends.append(time_of(self.attributes.expiries[0]))
        return min(ends) + 1 if ends else None

    def expired_before(self, now: int) -> int:
        """Records accepted before this time are past their TTL at `now`; 0 when none can be.

        A record is expired when now - ts > ttl_ms, strictly.
        """
        ttl_ms = self.config.ttl_ms
        return max(now - ttl_ms, 0) if ttl_ms else 0

    def expired_floor(self, before: int, others: Collection[int] = ()) -> tuple[int, int]:
        """The front's unbroken run of records that are older than a time or among others, or as
        much of it as may go at once.

        Returns:
            Its last seq, 0 when there is no such run, and how many records it has.
        """
        if not before and not others:
            return 0, 0
        return self.batches.front_of(before, others, self.evicted_max)

    def front_expired(self, before: int, limit: int) -> list[int]:
        """Seqs of the front's unbroken run of records that are older than a time."""
        found: list[int] = []
        for batch in self.batches:
            for index in batch.live_indexes():
                if batch.ts_at(index) >= before or len(found) == limit:
                    return found
                found.append(batch.seq_at(index))
        return found

    def remembered(self, key: str, now: int) -> Remembered | None:
        """The earlier write under an idempotency key, while its window lasts."""
        found = self.keys.get(key)
        if found is None or now - found.at > self.config.idempotency_window_ms:
            return None
        return found

    # -- changes (by core/apply only) ------------------------------------------------------------

    def insert(self, batch: Batch, size: int, *, is_indexed: bool = False) -> None:
        """Add a batch with all its records live; `size` as the limits count it. The index may know
        its tags already."""
        assert batch.live == batch.count
        assert size > 0
        self.batches.add(batch, size)
        if is_bare(batch.block):
            return
        if has_tags(batch.block) and not is_indexed:
            self._index(batch.live_seqs(), tags_of(batch.block))
        if not is_plain(batch.block):
            self._attributes().enter(batch, range(batch.count))

    def _index(self, seqs: Sequence[int], tags: Sequence[bytes]) -> None:
        """Note the tags of records that the index does not know."""
        if self.tags is None:
            self.tags = TagIndex()
        self.tags.add(seqs, tags)

    def _attributes(self) -> RecordAttributeIndex:
        if self.attributes is None:
            self.attributes = self._new_attributes()
        return self.attributes

    def _new_attributes(self) -> RecordAttributeIndex:
        return RecordAttributeIndex()

    def remove(self, seqs: Sequence[int]) -> list[int]:
        """Remove records; seqs that are not live are passed over.

        Args:
            seqs: Ascending, without repeats.

        Returns:
            The seqs that were live.
        """
        self._take_leave(seqs)
        removed = self.batches.remove(seqs)
        if self.tags is not None:
            self.tags.stale += len(removed)
        return removed

    def _take_leave(self, seqs: Sequence[int]) -> None:
        """Records are about to go: take them out of the indexes over their own columns."""
        attributes = self.attributes
        if attributes is None:
            return
        at = 0
        while at < len(seqs):
            batch = self.batch_of(seqs[at])
            if batch is None:
                at += 1
                continue
            indexes = []
            while at < len(seqs) and seqs[at] <= batch.last_seq:
                index = -1 if batch.is_plain else batch.index_of(seqs[at])
                if index >= 0:
                    indexes.append(index)
                at += 1
            if indexes:
                attributes.leave(batch, indexes)

    def evict(self, floor: int) -> list[list[Batch]]:
        """Remove every record up to and with `floor`.

        Returns:
            Batches that are no longer used.
        """
        if self.holes:
            self.holes = [hole for hole in self.holes if hole[1] > floor]
        if self.attributes is not None:
            for batch in self.batches:
                if batch.last_seq > floor:
                    break
                if not batch.is_plain:
                    self.attributes.leave(batch, [*batch.live_indexes()])
        before = self.live
        gone = self.batches.cut_front(floor)
        if self.tags is not None:
            self.tags.stale += before - self.live
        seqs: list[int] = []
        if self.batches and self.batches.first.first_seq <= floor:
            seqs = self.remove(self.batches.first.live_seqs(last=floor))
        cut = [chunk.batches for chunk in gone]
        if before > self.live:
            self._evicted(floor, before - self.live, cut, seqs)
        return cut

    def _evicted(
        self, floor: int, count: int, cut: Sequence[Sequence[Batch]], seqs: Sequence[int]
    ) -> None:
        """So many records up to a floor are gone: those of whole batches, and those with seqs."""

    def release(self) -> list[list[Any] | dict[Any, Any]]:
        """Release all that it holds: the topic itself was deleted.

        Returns:
            What held them, to be freed bit by bit.
        """
        held: list[list[Any] | dict[Any, Any]] = [c.batches for c in self.batches.chunks]
        held.append(self.keys)
        held.append(self.replacing)
        if self.tags is not None:
            held.extend(self.tags.release())
        if self.attributes is not None:
            held.extend(self.attributes.release())
            self.attributes = None
        self.batches, self.keys, self.tags, self.replacing = Batches(), {}, None, []
        return held

    def replace(self, first: int, last: int, batch: Batch) -> None:
        """Put a moved batch in the place of all records in its range of seqs."""
        # At replay neighbours may be in one batch that were not when it was logged.
        self.batches.cut_before(first)
        self.batches.cut_before(last + 1)
        old = self.batches.take_range(first, last)
        known = self._keep_attributes(old, batch)
        self.batches.add(batch, size_total(batch.block))
        if has_tags(batch.block) and sum(b.live for b in old) < batch.live:
            # Only at replay: what was moved was appended before the log begins.
            there = {seq for earlier in old for seq in earlier.live_seqs()}
            tags = tags_of(batch.block)
            fresh = [i for i in range(batch.count) if batch.seq_at(i) not in there]
            self._index([batch.seq_at(i) for i in fresh], [tags[i] for i in fresh])
        if not batch.is_plain:
            attributes = self._attributes()
            new = [i for i in batch.live_indexes() if batch.seq_at(i) not in known]
            stayed = [i for i in batch.live_indexes() if batch.seq_at(i) in known]
            attributes.weigh(batch, stayed, 1)
            if new:
                attributes.enter(batch, new)

    def _keep_attributes(self, old: Sequence[Batch], batch: Batch) -> set[int]:
        """Remove moved batches from the indexes, but for the records that stay.

        Returns:
            Seqs of those.
        """
        known: set[int] = set()
        if self.attributes is not None:
            for earlier in old:
                if earlier.is_plain:
                    continue
                places = [*earlier.live_indexes()]
                stay = [i for i in places if batch.index_of(earlier.seq_at(i)) >= 0]
                go = [i for i in places if batch.index_of(earlier.seq_at(i)) < 0]
                self.attributes.leave(earlier, go)
                self.attributes.weigh(earlier, stay, -1)
                known.update(earlier.seq_at(i) for i in stay)
        return known

    def drop_reserved(self) -> None:
        """An orderly end: whatever comes next must be promised again, so that this end of the log
        stays a clean one if all that is written from now on is lost."""
        self.seqs_reserved = min(self.seqs_reserved, self.head)

    def supersede(self, fresh: Sequence[Batch]) -> None:
        """Put batches of neighbouring seqs, ascending, in the places of the records with their
        seqs, whether those are known (yet) or not."""
        seqs = [seq for batch in fresh for seq in batch.live_seqs()]
        retagged = self._retag(self.tags, fresh) if self.tags is not None else None
        self.remove(seqs)
        for old in self._reaching_into(fresh):
            cut_out = seqs[bisect_left(seqs, old.first_seq) : bisect_right(seqs, old.last_seq)]
            self.batches.take_range(old.first_seq, old.last_seq)
            for part in old.around(cut_out):
                self.batches.add(part, live_size(part))
        for batch in fresh:
            self.insert(batch, size_total(batch.block), is_indexed=retagged is not None)
        if retagged:
            self._index([*retagged], [*retagged.values()])

    def _reaching_into(self, fresh: Sequence[Batch]) -> list[Batch]:
        """Batches whose range has seqs of others."""
        found: dict[int, Batch] = {}
        for batch in fresh:
            for old in self.batches_from(batch.first_seq):
                if old.first_seq > batch.last_seq:
                    break
                found[old.first_seq] = old
        return [*found.values()]

    def _retag(self, tags: TagIndex, fresh: Sequence[Batch]) -> dict[int, bytes]:
        """Let the index forget tags that change; the seqs and tags that it is to learn."""
        learn: dict[int, bytes] = {}
        old = view = None
        for batch in fresh:
            given = BlockView(batch.block).column(TAG) or [b""] * batch.count
            for seq, tag in zip(batch.live_seqs(), given, strict=True):
                if old is None or not old.first_seq <= seq <= old.last_seq:
                    old = self.batch_of(seq)
                    view = BlockView(old.block) if old is not None else None
                index = old.index_of(seq) if old is not None else -1
                if index < 0 or view is None:
                    learn[seq] = tag
                    continue
                before = view.text(TAG, index)
                if before != tag:
                    tags.discard(seq, before)
                    learn[seq] = tag
                tags.stale -= 1
        return learn

    def remember(self, key: str, write: Remembered) -> None:
        """Keep an idempotency key; of those past their window the oldest few go."""
        self.keys.pop(key, None)
        self.keys[key] = write
        self.forget_keys(write.at, KEYS_FORGOTTEN_PER_WRITE)

    def forget_keys(self, now: int, keys_max: int | None = None) -> None:
        """Forget keys past their window, all or at most so many."""
        before = now - self.config.idempotency_window_ms
        stale = []
        for other, earlier in islice(self.keys.items(), keys_max):
            if earlier.at >= before:
                break
            stale.append(other)
        for other in stale:
            del self.keys[other]
