"""What the columns of a record say about time.

Owns: when a record was written, is due and expires, read from its block; and the packing of a
moment with a seq into one number, which is what ordered indexes hold. Must not know: topics.
"""

from __future__ import annotations

from logqueue.core.block import DELAY, NOT_BEFORE, TTL, UPDATED_AT, View

_SEQ_BITS = 64
_SEQ_MASK = (1 << _SEQ_BITS) - 1


def moment(at: int, seq: int) -> int:
    """A time and a seq as one number that sorts by time, then by seq."""
    return at << _SEQ_BITS | seq


def time_of(packed: int) -> int:
    """The time of a moment, ms since the epoch."""
    return packed >> _SEQ_BITS


def seq_of(packed: int) -> int:
    """The seq of a moment."""
    return packed & _SEQ_MASK


def written_at(view: View, index: int, ts: int) -> int:
    """When a record got its present content, ms since the epoch; `ts` is when it got its seq."""
    return view.number(UPDATED_AT, index) or ts


def due_at(view: View, index: int, ts: int) -> int:
    """When a record was first to be claimable, ms since the epoch; 0 when it asked for no delay."""
    delay = view.number(DELAY, index)
    if delay:
        return written_at(view, index, ts) + delay
    return view.number(NOT_BEFORE, index)


def expires_at(view: View, index: int, ts: int) -> int:
    """Last ms of a record's own time to live, 0 when it has none."""
    ttl = view.number(TTL, index)
    return written_at(view, index, ts) + ttl if ttl else 0


def is_timed(view: View, index: int, ts: int) -> bool:
    """Whether a job comes by its own time and not by the claim cursor: it was delayed when it was
    written, or was replaced later. A fact of the record that never changes."""
    return bool(view.number(UPDATED_AT, index)) or due_at(view, index, ts) > ts
