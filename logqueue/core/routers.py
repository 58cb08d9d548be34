"""One router: an edge from a topic to another, how far it has come, and what its copies look like.

Owns: which records of the source are copied next, and the bytes of the copies; both follow from
the state alone, so that the log need not hold a copy's payload a second time. Changes nothing.
Must not know: commands, events, when a router runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from logqueue.core.batch import Batch, Record
from logqueue.core.topic import Topic
from logqueue.events import block as blocks
from logqueue.events.copy_blocks import Original, pack_copies
from logqueue.events.split_block import Block
from logqueue.model import limits
from logqueue.model.config import RouterOptions

_SHARED_MIN = 64
"""Whole batches from this size on are copied alone, so that the copy shares their bytes; smaller
ones are worth more when they make one batch together."""


class RouterState:
    """The state of one router instance.

    Attributes:
        number: Identity of the instance, from the same counter as topics.
        source, dest: Topic instances.
        cursor: Last seq of the source that was examined.
        forwarded: Records copied over this instance's life.
        made: The copies that the last decision has made, with the seqs of their originals, until
            they are applied: applying must not have to read records again. Not part of the state.
    """

    __slots__ = ("cursor", "dest", "forwarded", "made", "name", "number", "options", "source")

    def __init__(
        self, number: int, name: str, source: int, dest: int, options: RouterOptions
    ) -> None:
        self.number = number
        self.name = name
        self.source = source
        self.dest = dest
        self.options = options
        self.cursor = 0
        self.forwarded = 0
        self.made: tuple[Sequence[int], Block] | None = None


class Pick(NamedTuple):
    """What a router copies next.

    Attributes:
        seqs: Live records of the source, ascending; all under the same hop count.
        cursor: Last seq examined when all of them are copied.
        hops: Hop count of the originals.
        is_logged: Whether the log holds every original and will, so that the copy can refer to
            them.
    """

    seqs: Sequence[int]
    cursor: int
    hops: int
    is_logged: bool


def pick(router: RouterState, source: Topic, now: int, kept_from: int) -> Pick:
    """The next records to copy: at most `limits.FORWARDED_PER_PASS_MAX`, or one whole batch.

    Records that were deleted, are past their TTL, do not match the filter or have come too many
    hops are passed over.

    Args:
        router: Read only.
        source: Read only.
        now: The clock.
        kept_from: Log segments below this one are about to be dropped.
    """
    before = source.expired_before(now)
    taken: list[int] = []
    hops = 0
    is_logged = True
    cursor = router.cursor
    for batch in source.batches_from(cursor + 1):
        found = _matching(router, batch, before) if batch.hops < limits.ROUTER_HOPS_MAX else ()
        if found:
            is_shared = len(found) == batch.count >= _SHARED_MIN and batch.is_whole
            is_shared = is_shared and batch.is_plain
            if taken and (is_shared or batch.hops != hops):
                return Pick(taken, cursor, hops, is_logged)
            hops = batch.hops
            is_logged = is_logged and batch.segment >= max(kept_from, 1)
            if is_shared:
                return Pick(found, batch.last_seq, hops, is_logged)
            taken.extend(islice(found, limits.FORWARDED_PER_PASS_MAX - len(taken)))
            if len(taken) == limits.FORWARDED_PER_PASS_MAX:
                last = batch.last_seq if taken[-1] == found[-1] else taken[-1]
                return Pick(taken, last, hops, is_logged)
        cursor = max(cursor, batch.last_seq)
    return Pick(taken, source.head, hops, is_logged)


def _matching(router: RouterState, batch: Batch, before: int) -> Sequence[int]:
    """Seqs of a batch that the router has not examined and would copy."""
    start = router.cursor + 1
    seqs = batch.live_seqs(start)
    if before and batch.ts < before:
        seqs = [seq for seq in seqs if batch.ts_at(batch.index_of(seq)) >= before]
    wanted = router.options.filter
    if wanted is None or not seqs:
        return seqs
    tags = blocks.BlockView(batch.block).column(blocks.TAG)
    if tags is None:
        return []
    matches = {tag: wanted.matches(blocks.read_string(tag)) for tag in set(tags) if tag}
    return [seq for seq in seqs if matches.get(tags[batch.index_of(seq)], False)]


def copies(router: RouterState, source: Topic, seqs: Sequence[int]) -> Block | None:
    """The block of some records' copies; None unless the source holds every one of them."""
    if not seqs:
        return None
    batch = source.batch_of(seqs[0])
    if (
        batch is not None
        and batch.is_whole
        and batch.is_plain
        and batch.count == len(seqs)
        and batch.first_seq == seqs[0]
        and batch.last_seq == seqs[-1]
        and router.options.keeps_records
    ):
        # The usual case: source and destination share the bytes.
        return batch.block
    records = [*source.records(seqs)]
    if len(records) != len(seqs):
        return None
    return _pack(router, source, records)


def origin(source: Topic, seqs: Sequence[int]) -> tuple[int, int]:
    """The hop count of some live records, and the oldest log segment that their payloads are in."""
    hops = oldest = at = 0
    while at < len(seqs):
        batch = source.batch_of(seqs[at])
        assert batch is not None, "looked for before its records were found"
        hops = batch.hops
        oldest = min(oldest or batch.segment, batch.segment)
        at = bisect_right(seqs, batch.last_seq, at)
    return hops, oldest


def _pack(router: RouterState, source: Topic, records: list[Record]) -> bytes:
    edge = (router.name, router.number, source.name, source.number)
    seqs = [seq for seq, _, _ in records]
    originals = [Original(texts, *source.order_of(seq)) for seq, _, texts in records]
    return pack_copies(edge, router.options, seqs, originals)
