"""Which segments to read for which records, each record once.

Owns: the rule that the earliest segment at hand in which a record can be read is the one it is read
from, and what else has to be at hand for that. Pure. Must not know: files, how records are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from logqueue.events import ChunkKey
from logqueue.segments import ranges as rg
from logqueue.segments.index import LogName, Reference, SegmentIndex
from logqueue.segments.known import KnownTopics, RouterFacts, TopicFacts
from logqueue.segments.ranges import Ranges


class Seeds(msgspec.Struct):
    """What is known of topics and routers where a segment begins, as far as a read needs it."""

    topics: list[TopicFacts] = []
    routers: list[RouterFacts] = []

    def known(self) -> KnownTopics:
        """The same as a start for reading on."""
        known = KnownTopics()
        known.add(self.topics, self.routers)
        return known


class TopicRead(msgspec.Struct):
    """What to take of one topic instance.

    Attributes:
        topic, name, log_id: Which one.
        ranges: Originals to take.
        moved: Seqs to take of the rewritten records; those that are not there are gone.
    """

    topic: int
    name: str
    log_id: str
    ranges: Ranges = []
    moved: Ranges = []

    @property
    def rows_max(self) -> int:
        """No more records than this come of it."""
        return rg.count(self.ranges) + rg.count(self.moved)


class SourceSegment(msgspec.Struct):
    """An earlier segment that holds bytes of a read's records."""

    segment: int
    bytes: int
    crc32: int
    seeds: Seeds


class SegmentRead(msgspec.Struct):
    """One segment to read, with all that is needed to read it by itself. It can be pickled.

    Attributes:
        log, identity, segment: Which segment.
        log_id: Identity of the jobs log in hex.
        bytes: Read up to here.
        crc32: Of these bytes.
        topics: What to take.
        seeds: What is known where it begins.
        source_segments: Other segments that have to be at hand, ascending.
        first_order, last_order: Of job events, the orders to take.
    """

    log: LogName
    identity: str
    log_id: str
    segment: int
    bytes: int
    crc32: int
    topics: list[TopicRead]
    seeds: Seeds
    source_segments: list[SourceSegment] = []
    first_order: int = 0
    last_order: int = (1 << 63) - 1

    @property
    def name(self) -> str:
        """As rows tell it, "jobs-7"."""
        return f"{self.log}-{self.segment}"


def topics_of(indexes: Iterable[SegmentIndex]) -> KnownTopics:
    """All topics and routers that some segments tell of, as they are at the end.

    Args:
        indexes: Of the jobs log, ascending.
    """
    known = KnownTopics()
    for index in indexes:
        known.add(index.learned, index.routers)
    return known


def choose(
    known: KnownTopics, topics: Iterable[str] | None = None, pattern: str | None = None
) -> Ranges:
    """The instances of some topics, dropped ones among them, as ranges of their numbers.

    Args:
        known: Of the whole log.
        topics: Names; None for any.
        pattern: Regular expression that a whole name has to match; None for any.
    """
    names = None if topics is None else set(topics)
    found = re.compile(pattern) if pattern is not None else None
    return rg.union(
        (number, number)
        for number, facts in known.topics.items()
        if facts.name
        and (names is None or facts.name in names)
        and (found is None or found.fullmatch(facts.name) is not None)
    )


def plan_records(
    indexes: Sequence[SegmentIndex], wanted: Mapping[int, Ranges | None]
) -> list[SegmentRead]:
    """The reads that give every wanted record once, as far as it is in these segments.

    Args:
        indexes: Of all segments of the jobs log that are at hand, ascending. Leave none out: a
            rewritten record counts only where no earlier segment has it.
        wanted: Seqs by topic instance; None for all of an instance.
    """
    names = topics_of(indexes)
    plan = _Plan(names)
    reads = []
    for index in indexes:
        read = plan.step(index, wanted)
        if read is not None:
            reads.append(read)
    return reads


class _Had(msgspec.Struct):
    """What can be read of a segment: by topic, seqs of all, and of those that are references."""

    segment: int
    seqs: dict[int, Ranges]
    referenced: dict[int, Ranges]
    borrowed: list[Reference]


class _Plan:
    """Plans over the segments, oldest first."""

    def __init__(self, names: KnownTopics) -> None:
        self._names = names
        self._known = KnownTopics()
        self._had: list[_Had] = []
        self._covered: dict[int, Ranges] = {}
        self._chunks: dict[ChunkKey, int] = {}
        self._source_segments: dict[int, tuple[SegmentIndex, Seeds]] = {}

    def step(self, index: SegmentIndex, wanted: Mapping[int, Ranges | None]) -> SegmentRead | None:
        """What to read of the next segment, None when nothing."""
        referenced = self._referenced(index)
        all_referenced: dict[int, Ranges] = {}
        for reference in index.borrowed:
            last = reference.first + reference.count - 1
            rg.add(all_referenced.setdefault(reference.topic, []), reference.first, last)
        had = _Had(index.segment, {}, referenced, index.borrowed)
        topics = []
        needed: dict[int, Ranges] = {}
        for part in index.topics:
            originals = rg.without(part.ranges, all_referenced.get(part.topic, []))
            originals = rg.union(originals, referenced.get(part.topic, []))
            covered = self._covered.get(part.topic, [])
            if part.topic in wanted:
                take = rg.without(_wanted(originals, wanted[part.topic]), covered)
                rewritten = rg.without(_wanted(part.moved, wanted[part.topic]), covered)
                rewritten = rg.without(rewritten, originals)
                if take or rewritten:
                    name = self._names.name(part.topic)
                    topics.append(TopicRead(part.topic, name, part.log_id, take, rewritten))
                    needed[part.topic] = rg.both(take, referenced.get(part.topic, []))
            had.seqs[part.topic] = rg.union(originals, part.moved)
            self._covered[part.topic] = rg.union(covered, had.seqs[part.topic])
        segments = self._segments_for(had, needed)
        read = None
        if topics:
            read = SegmentRead(
                index.log, index.identity, index.log_id, index.segment, index.bytes, index.crc32,
                topics, self._seeds(index), self._as_source_segments(segments),
            )  # fmt: skip
        self._source_segments[index.segment] = index, self._seeds(index)
        self._had.append(had)
        self._chunks.update((key, index.segment) for key in index.staged)
        self._known.add(index.learned, index.routers)
        return read

    def _referenced(self, index: SegmentIndex) -> dict[int, Ranges]:
        """The references whose source is at hand."""
        referenced: dict[int, Ranges] = {}
        for reference in index.borrowed:
            if reference.chunk is not None:
                found = [(0, reference.count - 1)] if reference.chunk in self._chunks else []
            else:
                first, last = _sources(reference)
                earlier = rg.cut(self._covered.get(reference.source, []), first, last)
                here = rg.cut(referenced.get(reference.source, []), first, last)
                found = [(a - first, b - first) for a, b in rg.union(earlier, here)]
            for start, end in found:
                into = referenced.setdefault(reference.topic, [])
                rg.add(into, reference.first + start, reference.first + end)
        return referenced

    def _segments_for(self, had: _Had, needed: Mapping[int, Ranges]) -> set[int]:
        """The earlier segments that references of a segment take their bytes from."""
        found: set[int] = set()
        asked: dict[int, Ranges] = {topic: ranges for topic, ranges in needed.items() if ranges}
        # Backwards: a copy's source may be a reference in the same segment, before it.
        for reference in reversed(had.borrowed):
            last = reference.first + reference.count - 1
            for start, end in rg.cut(asked.get(reference.topic, []), reference.first, last):
                if reference.chunk is not None:
                    found.add(self._chunks[reference.chunk])
                    continue
                shift = reference.source_first - reference.first
                rest: Ranges = [(start + shift, end + shift)]
                here = rg.both(rest, had.referenced.get(reference.source, []))
                asked[reference.source] = rg.union(asked.get(reference.source, []), here)
                found |= self._holders(reference.source, rest, had.segment)
        return found

    def _holders(self, topic: int, seqs: Ranges, before: int) -> set[int]:
        """The latest segments before one that have some seqs, and those they refer to."""
        found: set[int] = set()
        for had in reversed(self._had):
            if had.segment >= before:
                continue
            hit = rg.both(seqs, had.seqs.get(topic, []))
            if hit:
                found.add(had.segment)
                copied = rg.both(hit, had.referenced.get(topic, []))
                if copied:
                    found |= self._segments_for(had, {topic: copied})
                seqs = rg.without(seqs, hit)
            if not seqs:
                break
        return found

    def _as_source_segments(self, segments: Iterable[int]) -> list[SourceSegment]:
        source_segments = []
        for segment in sorted(segments):
            index, seeds = self._source_segments[segment]
            source_segments.append(SourceSegment(segment, index.bytes, index.crc32, seeds))
        return source_segments

    def _seeds(self, index: SegmentIndex) -> Seeds:
        """What decoding copies in a segment needs to know at its beginning."""
        parts = {part.topic for part in index.topics if part.rows}
        routers = [router for router in self._known.routers.values() if router.dest in parts]
        later = [router for router in index.routers if router.dest in parts]
        sources = sorted({router.source for router in [*routers, *later]})
        topics = [_facts(self._names, self._known, topic) for topic in sources]
        return Seeds(topics, [msgspec.structs.replace(router) for router in routers])


def _facts(names: KnownTopics, known: KnownTopics, topic: int) -> TopicFacts:
    """A topic as known where a segment begins; what never changes, as known at the end."""
    facts = known.topics.get(topic, TopicFacts(topic))
    named = names.topics.get(topic, facts)
    return msgspec.structs.replace(facts, name=named.name, is_queue=named.is_queue)


def _wanted(ranges: Ranges, wanted: Ranges | None) -> Ranges:
    return ranges if wanted is None else rg.both(ranges, wanted)


def _sources(reference: Reference) -> tuple[int, int]:
    return reference.source_first, reference.source_first + reference.count - 1


def plan_events(
    jobs: Sequence[SegmentIndex],
    leases: Sequence[SegmentIndex],
    wanted: Iterable[int],
    *,
    first_order: int = 0,
    last_order: int = (1 << 63) - 1,
) -> list[SegmentRead]:
    """The reads that give every job event of some topics once.

    Args:
        jobs, leases: Of all segments at hand, each ascending.
        wanted: Topic instances; those that are not queues have no job events.
        first_order, last_order: Take the transactions from one to the other, both included.
    """
    names = topics_of(jobs)
    queues = [topic for topic in sorted(set(wanted)) if names.is_queue(topic)]
    reads = []
    known = KnownTopics()
    for index in [*jobs, *leases]:
        parts = {part.topic: part for part in index.topics}
        topics = [
            TopicRead(topic, names.name(topic), f"{index.log_id}-{topic}")
            for topic in queues
            if topic in parts and parts[topic].events
        ]
        if topics and index.first_order <= last_order and index.last_order >= first_order:
            facts = [_facts(names, known, read.topic) for read in topics]
            read = SegmentRead(
                index.log, index.identity, index.log_id, index.segment, index.bytes, index.crc32,
                topics, Seeds(facts), [], first_order, last_order,
            )  # fmt: skip
            reads.append(read)
        known.add(index.learned, index.routers)
    return reads
