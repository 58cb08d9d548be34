"""Neighbouring appends as one: what a start makes of the frames of producers that do not batch.

Owns: which appends may become one, and what they come to. Must not know: logs, files.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, ClassVar

import msgspec

from logqueue import events as ev
from logqueue.core.batch import JOINED_BYTES_MAX, JOINED_RECORDS_MAX
from logqueue.core.batches import JOINED_BELOW
from logqueue.events.block import join, size_total

if TYPE_CHECKING:
    from logqueue.events.split_block import SplitBlock

RUN_BELOW = JOINED_BELOW[-1]
"""Appends of so many records are large enough as they are."""


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


class RunBuilder:
    """Collects neighbouring appends to one topic.

    Attributes:
        segment: The jobs-log segment that holds their frames.
        events: The appends; the seqs of each are right behind those of the one before.
    """

    __slots__ = ("_form", "_next", "_records_left", "_room", "_topic", "events", "segment")

    def __init__(self) -> None:
        self._topic = self.segment = self._next = 0
        self.events: list[ev.RecordsAppended] = []
        self._form = b""
        self._records_left = JOINED_RECORDS_MAX
        self._room = JOINED_BYTES_MAX

    def take(self, event: ev.Event, segment: int) -> bool:
        """Take in an event, if it is an append like those before."""
        if type(event) is not ev.RecordsAppended:
            return False
        # Not bytes but as long as them, where a replay left the data in its file.
        block = event.block
        left = self._records_left - event.count
        room = self._room - len(block)
        if (
            left < 0
            or room < 0
            or event.count >= RUN_BELOW
            or event.cap_floor
            or event.key is not None
            or event.hops
            or type(block) is not bytes
        ):
            return False
        form = block[1:4]
        if not self.events:
            self._topic, self.segment, self._form = event.topic, segment, form
        elif (
            event.first_seq != self._next
            or event.topic != self._topic
            or segment != self.segment
            or form != self._form
        ):
            return False
        self._next = event.first_seq + event.count
        self._records_left = left
        self._room = room
        self.events.append(event)
        return True

    def joined(self) -> AppendRun:
        """What the appends come to; there must be one."""
        events = self.events
        block = join([event.block for event in events])
        at = events[-1].at
        ages = [*chain.from_iterable(repeat(at - event.at, event.count) for event in events)]
        reserved = max(event.seqs_reserved for event in events)
        # Logs from before an append had its size are still read.
        size = size_total(block)
        return AppendRun(at, self._topic, events[0].first_seq, block, ages, reserved, size)
