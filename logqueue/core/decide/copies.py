"""Copies of finished jobs in other topics: what they carry, and where they go.

Owns: the stamped meta, and the events that append copies to a topic that may have to be created.
Changes nothing. Must not know: why a job comes to an end.

A copy has the data, tag, node, priority and group of the original. Its meta is the original's with
stamps, each a string: readers need not guess a type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from logqueue import events as ev
from logqueue.core.batch import Batch
from logqueue.core.topic import Topic
from logqueue.errors import RecordTooLarge, Throttled, TopicFull
from logqueue.events.block import read_string
from logqueue.model import limits

NO_ROOM = (RecordTooLarge, TopicFull, Throttled)
"""Why a topic may refuse copies."""

_encoder = msgspec.json.Encoder()
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


def stamped(meta: bytes, stray_key: str, stamps: Iterable[tuple[str, str]]) -> bytes:
    """A meta with stamps; an original that is not an object is kept whole under `stray_key`."""
    keys: dict[str, msgspec.Raw] = {}
    if meta.startswith(b"{"):
        keys = _objects.decode(meta)
    elif meta:
        keys[stray_key] = msgspec.Raw(meta)
    for name, value in stamps:
        keys[name] = msgspec.Raw(_encoder.encode(value))
    return _encoder.encode(keys)


def order_stamps(prefix: str, order: tuple[int, bytes]) -> list[tuple[str, str]]:
    """What a copy says of the priority and the group of its original, where it has them."""
    priority, group = order
    stamps = [(prefix + "priority", str(priority))] if priority else []
    return [*stamps, (prefix + "group", read_string(group))] if group else stamps


def hops_of(topic: Topic, seqs: Iterable[int], hops_of_new: int = 0) -> list[int]:
    """How many routers some ascending records have come through.

    Args:
        topic: Read only.
        seqs: Live ones, and such as the same decision adds.
        hops_of_new: What the latter have come through.
    """
    found: list[int] = []
    batch: Batch | None = None
    for seq in seqs:
        if batch is None or not batch.first_seq <= seq <= batch.last_seq:
            batch = topic.batch_of(seq)
        found.append(batch.hops if batch is not None else hops_of_new)
    return found


def removable(topic: Topic, seqs: Sequence[int], *, are_copied: bool) -> Sequence[int]:
    """The first of some ascending live seqs, as many as one transaction may remove, or copy and
    remove; at least one."""
    if are_copied:
        some = seqs[: limits.COPIED_PER_PASS_MAX]
        return some[: topic.fitting(some, limits.COPIED_BYTES_MAX)]
    some = seqs[: topic.removed_max]
    return some[: topic.fitting(some, limits.FINISHED_BYTES_MAX)]


def as_many_as_fit(
    seqs: Sequence[int], attempt: Callable[[Sequence[int]], list[ev.Event]]
) -> tuple[int, list[ev.Event]]:
    """Find the longest part from the front that finds room: how many, and their events."""
    fits, too_many = 0, len(seqs) + 1
    events: list[ev.Event] = []
    count = len(seqs)
    while count > fits:
        try:
            fits, events = count, attempt(seqs[:count])
        except NO_ROOM:
            too_many = count
        count = (fits + too_many) // 2
    return fits, events
