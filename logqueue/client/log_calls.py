"""Calls about the logs themselves, for bulk readers: their segments, and seqs by time.

Owns: their parameters and what they mean. Must not know: how a call is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from logqueue.client.calls import Call, Listing, call, given, request
from logqueue.client.endpoints import GET_SEGMENT, LIST_SEGMENTS, SEQ_AT
from logqueue.shapes import Segment, SegmentPage, SeqAt

SEGMENTS_PER_PAGE = 1000

LogName = Literal["jobs", "leases"]


def segment_page(
    log: LogName = "jobs",
    *,
    topics: Iterable[str] | None = None,
    since: int | None = None,
    cursor: str | None = None,
    page_size: int | None = None,
) -> Call[SegmentPage]:
    """One page of the list of a log's segments, oldest first.

    Everything that was written before the call is durable and in the list, also of segments that
    still grow. To go by `order`, take that of the first page.

    Args:
        log: `jobs` for records and what ends jobs, `leases` for who held which job.
        topics: Tell only of these, and leave out segments that have nothing to do with them.
        since: Only segments with this number (7 of `jobs-7`) or a higher one.
        cursor: `next_cursor` of the page before.
        page_size: 1 to 1000; 100 when not given.

    Raises:
        Forbidden: The key is limited to name prefixes.
    """
    query = given(
        log=log,
        topic=None if topics is None else ",".join(topics),
        since=since,
        cursor=cursor or None,
        page_size=page_size,
    )
    return call(LIST_SEGMENTS, query=query)


def segments(
    log: LogName = "jobs", *, topics: Iterable[str] | None = None, since: int | None = None
) -> Listing[Segment]:
    """Every segment of a log that fits, oldest first, page by page; see `segment_page`."""
    names = None if topics is None else [*topics]

    def ask(cursor: str | None) -> Call[SegmentPage]:
        return segment_page(
            log, topics=names, since=since, cursor=cursor, page_size=SEGMENTS_PER_PAGE
        )

    def turn(page: SegmentPage) -> tuple[list[Segment], Call[SegmentPage] | None]:
        return page.segments, ask(page.next_cursor) if page.next_cursor else None

    return Listing(ask(None), turn)


def segment(id: str, *, start: int = 0, stop: int | None = None) -> Call[bytes]:
    """The bytes of a segment, or some of them, as docs/wal-format.md describes them.

    All of it is held in memory: ask for parts of large ones.

    Args:
        id: As the list tells it, such as `jobs-7`.
        start: The first byte wanted.
        stop: The first byte after the last one wanted; the end when not given.

    Raises:
        SegmentNotFound: It does not exist, or was dropped.
        RangeNotSatisfiable: `start` is behind its end.
        Forbidden: The key is limited to name prefixes.
    """
    wanted = None
    if start or stop is not None:
        wanted = f"bytes={start}-" if stop is None else f"bytes={start}-{stop - 1}"
    asked = request(GET_SEGMENT, id, accept="application/octet-stream", range=wanted)
    return Call((asked,), lambda answers: answers[0].body)


def seq_at(topic: str, ts: int) -> Call[SeqAt]:
    """Where the records from a time on begin, as far as the topic still has them.

    Args:
        ts: ms since the epoch.

    Raises:
        TopicNotFound: There is no such topic.
        InvalidRequest: It is no such time.
    """
    return call(SEQ_AT, topic, query={"ts": ts})
