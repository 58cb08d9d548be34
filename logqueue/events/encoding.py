"""The bytes of a transaction: a msgpack array, so that old logs stay readable.

Owns: which events the logs know, the transaction that holds the events of one decision, frame
payloads. Must not know: what any event means.

New fields of an event are appended with a default. A tag is never used twice.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

import msgspec

from logqueue.events import (
    checkpoints,
    job_batches,
    jobs,
    records,
    results,
    routers,
    schedules,
    staging,
    topics,
)
from logqueue.events.event import Event
from logqueue.events.records import RecordsAppended

EVENTS: Final[tuple[type[Event], ...]] = tuple(
    kind
    for noun in (
        topics,
        records,
        routers,
        staging,
        jobs,
        results,
        schedules,
        job_batches,
        checkpoints,
    )
    for kind in vars(noun).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind.__module__ == noun.__name__
)
"""Every event: all classes of the modules by noun."""

if TYPE_CHECKING:
    _Decodable = Event
else:
    _Decodable = reduce(or_, EVENTS)  # msgspec tells events apart by the tags of a union


class Transaction(msgspec.Struct, frozen=True, array_like=True):
    """The events of one decision, in one frame: all of them happened or none.

    Attributes:
        order: Position among all decisions; replay merges the two logs by it.
    """

    order: int
    events: list[_Decodable]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Transaction)


LOST: Final = _encoder.encode(Transaction(0, []))
"""The payload of a frame that replaces one lost to damage: no event, no order."""


LARGE_BLOCK_BYTES = 1 << 20
"""Blocks from here on go to the log as they are: see `encode_parts`."""
BLOCK_PLACE: Final = bytes.fromhex("a3f1c07e5b924d188c0fe6d1b7402955")
"""Placeholder for a large block while the rest of its transaction is encoded."""


def encode(order: int, events: list[Event]) -> bytes:
    """The frame payload of a transaction."""
    assert events, "an empty decision is not logged"
    return _encoder.encode(Transaction(order, events))


def encode_parts(order: int, events: list[Event]) -> list[bytes]:
    """The same in parts: the block of a large write is not copied."""
    large: list[RecordsAppended] = []
    for event in events:
        if type(event) is RecordsAppended and len(event.block) >= LARGE_BLOCK_BYTES:
            large.append(event)
    if len(large) == 1:
        block = large[0].block
        bare = msgspec.structs.replace(large[0], block=BLOCK_PLACE)
        payload = encode(order, [bare if event is large[0] else event for event in events])
        around = payload.split(b"\xc4%c%b" % (len(BLOCK_PLACE), BLOCK_PLACE))
        if len(around) == 2:
            return [b"%b\xc6%b" % (around[0], len(block).to_bytes(4, "big")), block, around[1]]
    return [_encoder.encode(Transaction(order, events))]


def decode(payload: bytes) -> Transaction:
    """Read a frame payload.

    Raises:
        msgspec.DecodeError: The bytes are not a transaction of this version.
    """
    return _decoder.decode(payload)
