"""Ranges and plans, held against sets."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from logqueue import events as ev
from logqueue.model.config import TopicOptions
from logqueue.pipeline.rows.event_columns import event_columns
from logqueue.segments import ranges as rg
from logqueue.segments.catalog import read_segment, scan
from logqueue.segments.index import VERSION, Reference, SegmentIndex, TopicPart
from logqueue.segments.known import TopicFacts
from logqueue.segments.plan import SegmentRead, plan_events, plan_records
from wal import Log

pairs = st.tuples(st.integers(1, 60), st.integers(0, 9)).map(lambda p: (p[0], p[0] + p[1]))
many = st.lists(pairs, max_size=12)


def numbers(ranges: list[tuple[int, int]]) -> set[int]:
    return {n for first, last in ranges for n in range(first, last + 1)}


def is_sound(ranges: rg.Ranges) -> bool:
    return all(a <= b for a, b in ranges) and all(x[1] + 1 < y[0] for x, y in pairwise(ranges))


@given(many, many)
def test_ranges_are_sets_of_numbers(some: rg.Ranges, others: rg.Ranges) -> None:
    a, b = rg.union(some), rg.union(others)
    assert is_sound(a) and numbers(a) == numbers(some)
    for found, expected in (
        (rg.union(a, b), numbers(a) | numbers(b)),
        (rg.both(a, b), numbers(a) & numbers(b)),
        (rg.without(a, b), numbers(a) - numbers(b)),
    ):
        assert is_sound(found) and numbers(found) == expected
    assert rg.count(a) == len(numbers(a))


@given(many, pairs)
def test_looking_into_ranges(some: rg.Ranges, pair: tuple[int, int]) -> None:
    first, last = pair
    added: rg.Ranges = []
    for one in some:
        rg.add(added, *one)
    assert is_sound(added) and numbers(added) == numbers(some)
    inside = numbers([pair])
    assert numbers(rg.cut(added, first, last)) == numbers(some) & inside
    assert rg.holds(added, first, last) == (inside <= numbers(some))


TOPICS = (1, 2, 3)


@st.composite
def histories(draw: st.DrawFn) -> list[SegmentIndex]:
    """Segments of a log in which anything is moved, and topic 3 copies topic 2 by reference."""
    heads = dict.fromkeys(TOPICS, 0)
    copied = 0
    indexes = []
    for segment in range(1, draw(st.integers(2, 9))):
        parts: list[TopicPart] = []
        references: list[Reference] = []
        for topic in TOPICS:
            part = TopicPart(topic, f"t{topic}", f"log-{topic}", ranges=[], moved=[])
            room = draw(st.integers(0, 6))
            if topic == 3:
                room = min(room, heads[2] - copied)
            if room:
                rg.add(part.ranges, heads[topic] + 1, heads[topic] + room)
                part.rows = room
            if topic == 3 and room:
                # Those whose originals this very segment has are not references.
                here = parts[-1].ranges[0][0] if parts and parts[-1].ranges else heads[2] + 1
                count = max(0, min(room, here - copied - 1))
                if count:
                    references.append(Reference(3, heads[3] + 1, count, 2, copied + 1))
                copied += room
            before = heads[topic]
            if before and draw(st.booleans()):
                first = draw(st.integers(1, before))
                rg.add(part.moved, first, draw(st.integers(first, before)))
            heads[topic] += room
            parts.append(part)
        indexes.append(
            SegmentIndex(
                VERSION,
                "jobs",
                "log",
                "log",
                segment,
                1,
                0,
                4096,
                0,
                0,
                0,
                0,
                0,
                parts,
                [TopicFacts(topic, f"t{topic}") for topic in TOPICS],
                [],
                references,
            )
        )
    return indexes


def at_hand(indexes: list[SegmentIndex]) -> dict[int, set[int]]:
    """What can be read of these segments at all."""
    found: dict[int, set[int]] = {topic: set() for topic in TOPICS}
    for index in indexes:
        here: dict[int, set[int]] = {}
        for part in index.topics:
            here[part.topic] = numbers(part.ranges)
        for run in index.borrowed:
            for place in range(run.count):
                if run.source_first + place not in found[run.source]:
                    here[run.topic].discard(run.first + place)
        for part in index.topics:
            found[part.topic] |= here[part.topic] | numbers(part.moved)
    return found


@given(histories(), st.integers(0, 5), st.one_of(st.none(), many))
def test_each_record_at_hand_is_read_once(
    indexes: list[SegmentIndex], skipped: int, wanted: rg.Ranges | None
) -> None:
    indexes = indexes[skipped:]
    wish = None if wanted is None else rg.union(wanted)
    reads = plan_records(indexes, {1: wish, 3: wish})
    found: Counter[tuple[int, int]] = Counter()
    for read in reads:
        for topic in read.topics:
            found.update((topic.topic, seq) for seq in numbers(topic.ranges))
            found.update((topic.topic, seq) for seq in numbers(topic.moved))
    there = at_hand(indexes)
    expected = {
        (topic, seq)
        for topic in (1, 3)
        for seq in there[topic]
        if wish is None or seq in numbers(wish)
    }
    assert set(found) == expected
    assert set(found.values()) <= {1}
    _sources_have_what_is_referenced(indexes, reads)


def _sources_have_what_is_referenced(indexes: list[SegmentIndex], reads: list[SegmentRead]) -> None:
    by_id = {index.segment: index for index in indexes}
    for read in reads:
        referenced: set[int] = set()
        for source in read.source_segments:
            assert source.segment < read.segment
            part = by_id[source.segment].part(2)
            assert part is not None
            referenced |= numbers(part.ranges) | numbers(part.moved)
        taken = {seq for topic in read.topics if topic.topic == 3 for seq in numbers(topic.ranges)}
        for run in by_id[read.segment].borrowed:
            needed = {
                run.source_first + place for place in range(run.count) if run.first + place in taken
            }
            assert needed <= referenced


def test_orders_that_step_back_where_a_segment_begins_lose_no_event(tmp_path: Path) -> None:
    """A checkpoint of an early version has the order behind that of the frame it goes before."""
    log = Log.open(str(tmp_path))
    queue = TopicOptions(type="queue").resolved()
    kept = ev.TopicSnapshot(1, "q", queue, 9, 0, 0, 0, 0, 0)
    for order, event in (
        (1, ev.TopicCreated(5, 1, "q", queue)),
        (3, ev.Checkpointed(5, 0, [kept], 2, 1)),
        (2, ev.JobsAcked(5, 1, "w", [7])),
        (4, ev.JobsAcked(5, 1, "w", [8])),
    ):
        log.append(ev.encode(order, [event]), sync=True)
    log.close()
    (path,) = tmp_path.glob("*.wal")
    index = scan(path, "jobs")
    assert (index.first_order, index.last_order) == (1, 4)
    for first, last, expected in ((1, 2, [7]), (2, 2, [7]), (3, 9, [8]), (1, 9, [7, 8])):
        (read,) = plan_events([index], [], [1], first_order=first, last_order=last)
        columns = event_columns(read_segment(path), read)
        told = [seq for found in columns for seq in found.seq.tolist()]
        assert told == expected
