"""One page of the list of segments: which, in which order, as JSON.

Owns: what a filter by topic keeps, the end of a page, the bytes of an entry. Works in steps. Must
not know: HTTP, how what is in a segment is found out.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from logqueue.api import replies
from logqueue.segments.index import LogName, SegmentIndex
from logqueue.segments.plan import plan_records
from logqueue.server.storage.segment_store import SegmentPlace, SegmentScan, SegmentStore

PAGE_BYTES = 8 << 20
ITEMS_PER_STEP = 1000


class SegmentQuery(NamedTuple):
    """Which segments a caller lists.

    Attributes:
        topics: Names; None for all.
        since: Only segments with this id or a higher one.
        after: Only those after this id, where the previous page ended.
        limit: Maximum number of entries.
    """

    log: LogName
    topics: frozenset[str] | None
    since: int
    after: int
    limit: int


class SegmentListing(NamedTuple):
    """Entries as JSON; `next_after` is None on the last page."""

    entries: list[bytes]
    next_after: int | None


def list_segments(
    segments: SegmentStore, query: SegmentQuery, places: Sequence[SegmentPlace], through: int
) -> Generator[None, None, SegmentListing]:
    """List the segments that match a query, with what is in them.

    Args:
        segments: All segments of the server.
        query: Which of them to list.
        places: All segments of the log.
        through: Number of the last frame that is durable.

    Raises:
        OSError: A segment cannot be read.
    """
    segments.forget_all_but(query.log, {place.id for place in places})
    seen: list[tuple[SegmentPlace, SegmentScan]] = []
    keep: set[int] | None = None
    numbers: frozenset[int] = frozenset()
    if query.topics is not None or query.log == "leases":
        yield from segments.learn_topics()
    if query.topics is not None:
        seen = yield from _look_at(segments, places, through)
        numbers = frozenset(segments.numbers_of(query.topics))
        keep, numbers = _needed(query.log, [look.index for _, look in seen], numbers)
    else:
        first = max(query.since, query.after + 1)
        wanted = [place for place in places if place.id >= first]
        # One more than fits tells that there is another page.
        seen = yield from _look_at(segments, wanted, through, query.limit + 1)
    entries: list[bytes] = []
    size = last = 0
    for place, look in seen:
        if place.id < query.since or place.id <= query.after:
            continue
        if keep is not None:
            if place.id not in keep:
                continue
            look = replace(look, index=_only(look.index, numbers))
        if len(entries) >= query.limit or size >= PAGE_BYTES:
            return SegmentListing(entries, last)
        entry = yield from _encode(place, look)
        entries.append(entry)
        size += len(entry)
        last = place.id
    return SegmentListing(entries, None)


def _look_at(
    segments: SegmentStore, places: Sequence[SegmentPlace], through: int, enough: int | None = None
) -> Generator[None, None, list[tuple[SegmentPlace, SegmentScan]]]:
    seen: list[tuple[SegmentPlace, SegmentScan]] = []
    for place in places:
        if len(seen) == enough:
            break
        try:
            look = yield from segments.scan(place, through)
        except FileNotFoundError:
            # Dropped since the list was made, and not archived.
            continue
        seen.append((place, look))
    return seen


def _needed(
    log: LogName, indexes: list[SegmentIndex], numbers: frozenset[int]
) -> tuple[set[int], frozenset[int]]:
    """Which segments to tell of for some topics, and of which topics in them: what a copy is made
    of may be elsewhere, and has to be looked up there."""
    keep = {
        index.segment for index in indexes if any(part.topic in numbers for part in index.topics)
    }
    if log == "jobs":
        for read in plan_records(indexes, dict.fromkeys(numbers)):
            keep.update(source.segment for source in read.source_segments)
    edges = {
        (reference.topic, reference.source) for index in indexes for reference in index.borrowed
    }
    edges |= {(facts.dest, facts.source) for index in indexes for facts in index.routers}
    sources = set(numbers)
    while more := {source for dest, source in edges if dest in sources and source} - sources:
        sources |= more
    return keep, frozenset(sources)


def _only(index: SegmentIndex, numbers: frozenset[int]) -> SegmentIndex:
    """What an index says of some topics."""
    return msgspec.structs.replace(
        index,
        topics=[part for part in index.topics if part.topic in numbers],
        learned=[facts for facts in index.learned if facts.topic in numbers],
        routers=[
            facts for facts in index.routers if facts.source in numbers or facts.dest in numbers
        ],
        borrowed=[reference for reference in index.borrowed if reference.topic in numbers],
    )


def _encode(place: SegmentPlace, look: SegmentScan) -> Generator[None, None, bytes]:
    """An entry. Long lists are encoded part by part, since nothing else runs meanwhile."""
    index = look.index
    head: dict[str, Any] = {
        "id": place.name,
        "sealed": place.is_sealed,
        "archived": place.is_archived,
    }
    if look.damage is not None:
        head["damage"] = look.damage
    lists: list[bytes] = []
    for name in ("topics", "learned", "routers", "borrowed", "staged"):
        items = getattr(index, name)
        parts = []
        for start in range(0, len(items), ITEMS_PER_STEP):
            parts.append(replies.encode(items[start : start + ITEMS_PER_STEP])[1:-1])
            yield
        lists.append(b'"%b":[%b]' % (name.encode(), b",".join(parts)))
    bare = msgspec.structs.replace(index, topics=[], learned=[], routers=[], borrowed=[], staged=[])
    fields = {**head, **msgspec.to_builtins(bare)}
    return b"%b,%b}" % (replies.encode(fields)[:-1], b",".join(lists))
