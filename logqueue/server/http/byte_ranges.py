"""Which bytes of something a request is for, by RFC 9110.

Owns: the grammar of `Range` and what it comes to. Must not know: what the bytes are of.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_RANGE = re.compile(rb"bytes[ \t]*=[ \t]*(\d{0,19})-(\d{0,19})[ \t]*", re.IGNORECASE)


class ByteRange(NamedTuple):
    """Bytes from `start` up to `stop`, not included."""

    start: int
    stop: int


class NoSuchBytes(ValueError):
    """The range begins behind the end."""


def part_of(header: bytes | None, total: int) -> ByteRange | None:
    """What a `Range` header asks for.

    Args:
        header: Its value, None when there is none.
        total: Bytes there are.

    Returns:
        The part; None for all of it: no range, several, or a unit or grammar not known here, all of
        which a server may pass over.

    Raises:
        NoSuchBytes: There is nothing in the range.
    """
    found = _RANGE.fullmatch(header) if header is not None else None
    if found is None or (not found[1] and not found[2]):
        return None
    if not found[1]:
        suffix = int(found[2])
        if suffix == 0 or total == 0:
            raise NoSuchBytes
        return ByteRange(max(total - suffix, 0), total)
    start = int(found[1])
    last = int(found[2]) if found[2] else total - 1
    if found[2] and last < start:
        return None
    if start >= total:
        raise NoSuchBytes
    return ByteRange(start, min(last + 1, total))
