"""Neighbouring appends as one: what a start makes of the frames of producers that do not batch.

Owns: which appends may become one, and what they come to. Must not know: logs, files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

import msgspec

from logqueue import events as ev
from logqueue.core.batch import JOINED_BYTES_MAX, JOINED_RECORDS_MAX
from logqueue.core.batches import JOINED_BELOW
from logqueue.events.block import join, size_total

if TYPE_CHECKING:
    from logqueue.events.split_block import SplitBlock

E = TypeVar("E", bound="Entry")

RUN_BELOW = JOINED_BELOW[-1]
"""Appends of so many records are large enough as they are."""

TOPICS_MAX = 8
"""Topics that appends are joined for at a time."""


class AppendRun(ev.Event, frozen=True, array_like=True):
    """What neighbouring appends to one topic come to. No log has it: it replaces their events.

    Attributes:
        at: When the last of the records was accepted.
        first_seq: Seq of the first record; the others follow without a gap.
        block: All the records.
        ages: How many milliseconds before `at` each of them was accepted.
        seqs_reserved: Highest seq promised never to be handed out twice, 0 for none.
        size: Bytes of the records as the limits count them.
    """

    log: ClassVar[int] = ev.JOBS
    logged: ClassVar[ev.LoggedWhen] = "topic_logged"
    synced: ClassVar[ev.SyncedWhen] = "as_configured"
    holds_records: ClassVar[bool] = True

    first_seq: int
    block: bytes
    ages: list[int]
    seqs_reserved: int
    size: int

    def record_blocks(self) -> Sequence[bytes]:
        """See `Event.record_blocks`."""
        return (self.block,)

    def with_blocks(self, blocks: Sequence[bytes | SplitBlock]) -> ev.Event:
        """See `Event.with_blocks`."""
        return msgspec.structs.replace(self, block=blocks[0])

    def visit_records(self, to: ev.RecordVisitor) -> None:
        """See `Event.visit_records`."""
        to.appended(self, self.first_seq, len(self.ages), self.block, self.size)


class Entry(Protocol):
    """A transaction of the jobs log, as the caller knows it."""

    @property
    def segment(self) -> int:
        """The segment that holds its frame."""
        ...

    @property
    def transaction(self) -> ev.Transaction:
        """What it says."""
        ...


class TransactionRun(Generic[E]):
    """Transactions that may be applied as one: neighbouring appends to one topic, or a single one.

    Attributes:
        order: Of the last transaction before the next run. Those of other runs that are complete
            at the same time may be among them.
        entries: The transactions.
        events: The appends.
        segment: The segment that holds them.
        form: Which columns their blocks have.
        next_seq: The seq behind their last.
        records_left, bytes_left: How much more there may be.
    """

    __slots__ = (
        "bytes_left", "entries", "events", "form", "next_seq", "order", "records_left", "segment",
    )  # fmt: skip

    def __init__(self, entry: E) -> None:
        self.order = entry.transaction.order
        self.entries = [entry]
        self.events: list[ev.RecordsAppended] = []

    def begin(self, event: ev.RecordsAppended) -> bool:
        """Let others follow, if this append is small and plain."""
        self.events.append(event)
        self.segment = self.entries[0].segment
        self.form = event.block[1:4]
        self.next_seq = event.first_seq + event.count
        self.records_left = JOINED_RECORDS_MAX - event.count
        self.bytes_left = JOINED_BYTES_MAX - len(event.block)
        return self.bytes_left > 0 and _is_small(event)

    def joined(self) -> AppendRun:
        """What the appends come to."""
        events = self.events
        block = join([event.block for event in events])
        last = events[-1]
        ages = [*chain.from_iterable(repeat(last.at - event.at, event.count) for event in events)]
        reserved = max(event.seqs_reserved for event in events)
        # Logs from before an append had its size are still read.
        size = size_total(block)
        return AppendRun(last.at, last.topic, events[0].first_seq, block, ages, reserved, size)


def in_runs(entries: Iterable[E], block_bytes_max: int) -> Iterator[TransactionRun[E]]:
    """Transactions of the jobs log in their order, as runs.

    In a run there are only appends that no transaction of either log comes between, but for appends
    to other topics; so nothing that matters to them changes places with them.

    Args:
        entries: The transactions.
        block_bytes_max: Only appends with smaller blocks are joined.
    """
    runs: dict[int, TransactionRun[E]] = {}
    last = 0
    # A million in a second: no call but those into C where an append follows another.
    for entry in entries:
        transaction = entry.transaction
        events = transaction.events
        order = transaction.order
        event = events[0] if len(events) == 1 else None
        # Not bytes but as long as them, where a replay left the data in its file.
        if type(event) is not ev.RecordsAppended or len(event.block) >= block_bytes_max:
            yield from _complete(runs, last)
            yield TransactionRun(entry)
            last = order
            continue
        run = runs.get(event.topic)
        if run is not None and order == last + 1 and event.first_seq == run.next_seq:
            block = event.block
            records_left = run.records_left - event.count
            bytes_left = run.bytes_left - len(block)
            if (
                records_left >= 0
                and bytes_left >= 0
                and block[1:4] == run.form
                and entry.segment == run.segment
                and _is_small(event)
            ):
                run.next_seq += event.count
                run.records_left = records_left
                run.bytes_left = bytes_left
                run.events.append(event)
                run.entries.append(entry)
                last = order
                continue
        if run is not None or order != last + 1 or len(runs) == TOPICS_MAX:
            # All of them, so that none reaches over much more than one comes to.
            yield from _complete(runs, last)
        last = order
        run = TransactionRun(entry)
        if run.begin(event):
            runs[event.topic] = run
        else:
            yield from _complete(runs, last)
            yield run
    yield from _complete(runs, last)


def _is_small(event: ev.RecordsAppended) -> bool:
    """Whether an append has few records and changes nothing else."""
    return event.count < RUN_BELOW and not event.cap_floor and not event.hops and event.key is None


def _complete(runs: dict[int, TransactionRun[E]], order: int) -> Iterator[TransactionRun[E]]:
    """No more appends follow the transaction `order` in these runs."""
    for run in runs.values():
        run.order = order
        yield run
    runs.clear()
