"""Transactions as readers of records decode them: what holds no records is passed over unread.

Owns: which events hold records or are needed to find them. Must not know: what is done with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from logqueue import events as ev


class RecordEvents(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """Records of one topic that came in one event; at once the front part of a `RecordsAppended`.

    Millions of these are made, so they are none of the garbage collector's business.

    Attributes:
        at: When they were appended, ms since the epoch, unless the block brings its own times.
        topic: Number of the instance.
        first_seq: Of the first record, unless the block brings its own seqs.
        count: How many.
        block: See `logqueue.events.block`.
    """

    at: int
    topic: int
    first_seq: int
    count: int
    block: bytes


assert RecordEvents.__struct_config__.tag == ev.RecordsAppended.__struct_config__.tag
assert ev.RecordsAppended.__struct_fields__[: len(RecordEvents.__struct_fields__)] == (
    RecordEvents.__struct_fields__
)


def _is_read(kind: type[ev.Event]) -> bool:
    return kind.holds_records or kind.visit_topics is not ev.Event.visit_topics


def decoder_of(
    kinds: Sequence[type[ev.Event]],
) -> tuple[frozenset[type], Callable[[bytes], Any]]:
    """A decoder of frame payloads for readers of records, by the traits of the events.

    Returns:
        Types of the events that it passes over, and the decoder. The events that it gives are
        `RecordEvents`, of one of these types, or as in core.
    """
    passed = frozenset(
        msgspec.defstruct(
            f"{kind.__name__}Passed", [], tag=kind.__struct_config__.tag, array_like=True, gc=False
        )
        for kind in kinds
        if not _is_read(kind)
    )
    read = [kind for kind in kinds if _is_read(kind) and kind is not ev.RecordsAppended]
    transaction = msgspec.defstruct(
        "_Transaction",
        [("order", int), ("events", list[reduce(or_, [*read, *passed], RecordEvents)])],  # type: ignore[misc]
        array_like=True,
        gc=False,
    )
    return passed, msgspec.msgpack.Decoder(transaction).decode


PASSED, decode_records = decoder_of(ev.EVENTS)
