"""Whether the index of a segment can be made without the segments before it.

Owns: that question. Must not know: indexes.
"""

from __future__ import annotations

import msgspec

from logqueue import events as ev
from wal import (
    FRAME_FIELDS,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    HEADER_BYTES,
    File,
    HeaderState,
    decode_header,
)


def is_self_contained(file: File) -> bool:
    """Whether a segment of the jobs log begins with all there is to know of topics.

    The first does, and those that have a whole checkpoint at their head.
    """
    data = file.pread(HEADER_BYTES + FRAME_HEADER_BYTES, 0)
    state, header = decode_header(data[:HEADER_BYTES])
    if header is None or state is not HeaderState.OK or header.id == 1:
        return True
    if len(data) < HEADER_BYTES + FRAME_HEADER_BYTES:
        return False
    magic, length, _, _ = FRAME_FIELDS.unpack_from(data, HEADER_BYTES)
    if magic != FRAME_MAGIC:
        return False
    payload = file.pread(length, HEADER_BYTES + FRAME_HEADER_BYTES)
    try:
        event = ev.decode(payload).events[0]
    except (msgspec.MsgspecError, IndexError):
        return False
    if not isinstance(event, ev.Checkpointed):
        return False
    # The last part of an earlier checkpoint may be there too.
    return not event.more and event.first_segment in (0, header.id)
