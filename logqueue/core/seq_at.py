"""Finding records by the time they were accepted. Pure; must not know who asks."""

from __future__ import annotations

from typing import NamedTuple

from logqueue.core.topic import Topic


class Found(NamedTuple):
    """Where the records from a time on begin.

    Attributes:
        seq: Of the first of them; one above the head when there is none.
        previous: Seq of the record before it, 0 when there is none. Those between were removed.
    """

    seq: int
    previous: int


def seek(topic: Topic, time: int) -> Found:
    """The first record, in the order of seqs, that was accepted at a time or later.

    Times nearly always rise with the seqs. Where a clock was set back they do not; records with
    earlier times may then follow.

    Args:
        topic: As of now.
        time: ms since the epoch.
    """
    previous = 0
    for chunk in topic.batches.chunks:
        if chunk.newest < time:
            previous = chunk.batches[-1].last_live_seq()
            continue
        for batch in chunk.batches:
            if batch.newest < time:
                previous = batch.last_live_seq()
                continue
            for index in batch.live_indexes():
                if batch.ts_at(index) >= time:
                    return Found(batch.seq_at(index), previous)
                previous = batch.seq_at(index)
    return Found(topic.head + 1, previous)
