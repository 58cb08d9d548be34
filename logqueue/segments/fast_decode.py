"""Transactions as readers of records decode them: what holds no records is passed over unread.

Owns: which events hold records or are needed to find them. Must not know: what is done with them.
"""

from __future__ import annotations

from collections.abc import Callable
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


PASSED: frozenset[type] = frozenset(
    msgspec.defstruct(
        f"{kind.__name__}Passed", [], tag=kind.__struct_config__.tag, array_like=True, gc=False
    )
    for kind in ev.EVENTS
    if not _is_read(kind)
)
"""Types of the events that were passed over."""

_READ = [kind for kind in ev.EVENTS if _is_read(kind) and kind is not ev.RecordsAppended]
_Transaction = msgspec.defstruct(
    "_Transaction",
    [("order", int), ("events", list[reduce(or_, [*_READ, *PASSED], RecordEvents)])],  # type: ignore[misc]
    array_like=True,
    gc=False,
)

decode_records: Callable[[bytes], Any] = msgspec.msgpack.Decoder(_Transaction).decode
"""Read a frame payload. Its events are `RecordEvents`, of a type in `PASSED`, or as in core."""
