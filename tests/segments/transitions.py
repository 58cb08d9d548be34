"""Job events read one by one: what decoding by column must agree with."""

from __future__ import annotations

from collections.abc import Iterator

from logqueue import events as ev
from logqueue.segments.job_events import JobTransition, rows_of
from logqueue.segments.payloads import payloads
from logqueue.segments.plan import SegmentRead


def transitions(data: bytes, read: SegmentRead) -> Iterator[JobTransition]:
    """The rows that a read takes of its segment, in the order of the log."""
    wanted = {topic.topic for topic in read.topics}
    known = read.seeds.known()
    for _, payload in payloads(data, read.name, length=read.bytes, checksum=read.crc32):
        transaction = ev.decode(payload)
        for event in transaction.events:
            if transaction.order > read.last_order:
                continue
            if event.topic in wanted:
                rows = [*rows_of(event, transaction.order, read.log, known)]
                if transaction.order >= read.first_order:
                    yield from rows
            event.visit_topics(known)
