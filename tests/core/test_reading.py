"""Reading by runs and the shared encoding of records, against a reading without short cuts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from logqueue.api import record_texts
from logqueue.api.record_texts import RecordTexts, encode_records, shown
from logqueue.core.batch import Batch
from logqueue.core.reading import ReadPage, RemovedRange, read
from logqueue.core.topic import Topic
from logqueue.events import block as blocks
from logqueue.events.block import BlockView, write_string
from logqueue.model.config import TopicOptions
from tests.core.world import job, pack

NODES = [None, "a", "b"]
TTL_MS = 100


@dataclass
class Kept:
    """One record as a reader should see it."""

    seq: int
    ts: int
    data: str
    tag: str | None
    node: str | None
    meta: object

    @property
    def size(self) -> int:
        """As the limits count it."""
        meta = "" if self.meta is None else compact(self.meta)
        return len(compact(self.data)) + len(meta)

    def shown(self, *, tags: bool, meta: bool, data: bool) -> dict[str, Any]:
        """What it looks like."""
        members = {
            "$seq": self.seq,
            "$ts": self.ts,
            "$node": self.node,
            "$tag": self.tag if tags else None,
            "data": self.data if data else None,
            "meta": self.meta if meta else None,
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass
class Shelf:
    """A topic, and what should be in it."""

    topic: Topic = field(
        default_factory=lambda: Topic(1, "t", TopicOptions(ttl_ms=TTL_MS).resolved())
    )
    kept: list[Kept] = field(default_factory=list)

    def append(self, records: list[tuple[str, str | None, str | None, object]], ts: int) -> None:
        """A batch."""
        first = self.topic.head + 1
        texts = [job(data, tag=tag, node=node, meta=meta) for data, tag, node, meta in records]
        block = pack(texts)
        batch = Batch(block, first, len(records), ts, 1)
        self.topic.insert(batch, BlockView(block).size_total())
        self.topic.head += len(records)
        self.kept += [Kept(first + i, ts, *record) for i, record in enumerate(records)]

    def skip(self, count: int) -> None:
        """Seqs that were lost before they got here."""
        self.topic.holes.append((self.topic.head + 1, self.topic.head + count))
        self.topic.head += count

    def delete(self, seqs: set[int]) -> None:
        """Records that somebody deleted."""
        self.topic.remove(sorted(seqs))
        self.kept = [record for record in self.kept if record.seq not in seqs]

    def evict(self, floor: int) -> None:
        """A front that caps have taken."""
        self.topic.cap_floor = max(self.topic.cap_floor, floor)
        self.topic.evict(floor)
        self.kept = [record for record in self.kept if record.seq > floor]

    def move(self, first: int, last: int) -> None:
        """Batches between two seqs, live records only, written anew as one."""
        batches = [b for b in self.topic.batches if first <= b.first_seq and b.last_seq <= last]
        records = [record for batch in batches for record in batch.records()]
        if records:
            block = pack([texts for _, _, texts in records])
            columns = [
                BlockView(block).column(column) for column in range(len(blocks.TEXT_COLUMNS))
            ]
            moved = blocks.pack(
                columns, seqs=[seq for seq, _, _ in records], ts=[ts for _, ts, _ in records]
            )
            self.topic.replace(batches[0].first_seq, batches[-1].last_seq, Batch.moved(moved, 2))


def compact(value: object) -> str:
    """JSON without blanks."""
    return json.dumps(value, separators=(",", ":"))


def naive(
    shelf: Shelf, from_seq: int, now: int, limit: int, budget: int, own: set[str]
) -> tuple[list[int], RemovedRange | None]:
    """The seqs that one read delivers, and the loss it reports."""
    topic = shelf.topic
    head, floor = topic.head, topic.floor
    tombstone, start = None, from_seq + 1
    if from_seq > head:
        tombstone, start = RemovedRange(1, head, "recreated", head, topic.earliest_seq, head), 1
    elif from_seq < floor:
        gap = floor - from_seq
        tombstone = RemovedRange(start, floor, "cap", gap, floor + 1, head)
        start = floor + 1
    wanted = [
        record
        for record in shelf.kept
        if record.seq >= start and now - record.ts <= TTL_MS and record.node not in own
    ]
    holes = [hole for hole in topic.holes if hole[1] >= start]
    if holes and tombstone is None and not [r for r in wanted if r.seq < holes[0][0]]:
        first, last = start, holes[0][1]
        tombstone = RemovedRange(first, last, "source_trim", last - first + 1, last + 1, head)
        holes.pop(0)
    if holes:
        wanted = [record for record in wanted if record.seq < holes[0][0]]
    taken: list[int] = []
    size = 0
    for record in wanted:
        size += record.size
        if len(taken) == limit or (taken and size > budget):
            break
        taken.append(record.seq)
    return taken, tombstone


def seqs_of(page: ReadPage) -> list[int]:
    """The seqs a page delivers."""
    return [seq for batch, start, end in page.runs for seq in batch.seqs_at(start, end)]


records: st.SearchStrategy[Any] = st.tuples(
    st.text(alphabet="xyz", max_size=6),
    st.sampled_from([None, "", "t"]),
    st.sampled_from(NODES),
    st.sampled_from([None, {}, 7]),
)
steps: st.SearchStrategy[list[Any]] = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"), st.lists(records, min_size=1, max_size=7), st.integers(0, 200)
        ),
        st.tuples(st.just("skip"), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.sets(st.integers(1, 40), max_size=12)),
        st.tuples(st.just("evict"), st.integers(1, 12)),
        st.tuples(st.just("move"), st.integers(1, 20), st.integers(10, 60)),
    ),
    max_size=14,
)


def build(script: list[Any]) -> Shelf:
    """A topic that has seen some things."""
    shelf = Shelf()
    for verb, *arguments in script:
        if verb == "evict":
            arguments = [min(arguments[0], shelf.topic.head)]
        getattr(shelf, verb)(*arguments)
    return shelf


@settings(max_examples=300, deadline=None)
@given(
    script=steps,
    now=st.integers(0, 320),
    limit=st.integers(1, 9),
    budget=st.integers(1, 60),
    own=st.sets(st.sampled_from(["a", "b"])),
)
def test_a_reader_gets_what_a_naive_one_gets(
    script: list[Any], now: int, limit: int, budget: int, own: set[str]
) -> None:
    """From every cursor: the same records and losses; the cursor passes over nothing else."""
    shelf = build(script)
    nodes = {write_string(node) for node in own}
    for from_seq in range(shelf.topic.head + 2):
        page = read(shelf.topic, from_seq, now, records_max=limit, bytes_max=budget, nodes=nodes)
        taken, tombstone = naive(shelf, from_seq, now, limit, budget, own)
        assert (seqs_of(page), page.tombstone) == (taken, tombstone)
        behind, _ = naive(shelf, page.next_from_seq, now, 10**6, 10**9, own)
        assert not set(behind) & set(taken)
        least = 0 if from_seq > shelf.topic.head else from_seq
        assert page.next_from_seq >= (taken[-1] if taken else least)
        assert page.next_from_seq <= shelf.topic.head


@settings(max_examples=200, deadline=None)
@given(
    script=steps,
    now=st.integers(0, 320),
    limit=st.integers(1, 9),
    budget=st.integers(1, 60),
    own=st.sets(st.sampled_from(["a", "b"])),
)
def test_a_reader_who_goes_on_gets_everything_once(
    script: list[Any], now: int, limit: int, budget: int, own: set[str]
) -> None:
    """Every live record above the floor, in order, and every hole exactly once."""
    shelf = build(script)
    nodes = {write_string(node) for node in own}
    cursor, taken, losses = 0, [], []
    for _ in range(2 * shelf.topic.head + 2):
        page = read(shelf.topic, cursor, now, records_max=limit, bytes_max=budget, nodes=nodes)
        taken += seqs_of(page)
        if page.tombstone is not None:
            losses.append((page.tombstone.gap_from, page.tombstone.gap_to))
        cursor = page.next_from_seq
    assert cursor == shelf.topic.head
    live = [r for r in shelf.kept if now - r.ts <= TTL_MS and r.node not in own]
    assert taken == [record.seq for record in live]
    floor = shelf.topic.floor
    holes = [(max(first, floor + 1), last) for first, last in shelf.topic.holes]
    expected = ([(1, floor)] if floor else []) + holes
    assert [last for _, last in losses] == [last for _, last in expected]
    for (first, last), (hole, _) in zip(losses, expected, strict=True):
        # A gap begins behind the cursor, so what was deleted in front of the hole is part of it.
        assert first <= hole
        assert not [seq for seq in taken if first <= seq <= last]


@settings(max_examples=200, deadline=None)
@given(
    script=steps,
    choices=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    kept_bytes=st.sampled_from([0, 500, 1 << 20]),
    section=st.sampled_from([2, 3, 512]),
    cursors=st.lists(st.integers(0, 60), min_size=1, max_size=6),
)
def test_shared_texts_say_what_the_records_say(
    script: list[Any],
    choices: tuple[bool, bool, bool],
    kept_bytes: int,
    section: int,
    cursors: list[int],
) -> None:
    """Whatever is kept of what was encoded before, and in sections of whatever length."""
    shelf = build(script)
    tags, meta, data = choices
    show = shown(tags=tags, meta=meta, data=data)
    shared = RecordTexts(kept_bytes)
    usual, record_texts.SECTION_RECORDS = record_texts.SECTION_RECORDS, section
    try:
        for cursor in cursors:
            page = read(shelf.topic, cursor, 0, records_max=5, bytes_max=1 << 20)
            found = json.loads(b"[%b]" % shared.join(1, page.runs, show))
            seqs = set(seqs_of(page))
            expected = [
                record.shown(tags=tags, meta=meta, data=data)
                for record in shelf.kept
                if record.seq in seqs
            ]
            assert found == expected
            assert shared.bytes_kept <= kept_bytes
    finally:
        record_texts.SECTION_RECORDS = usual


def test_readers_share_one_encoding() -> None:
    """The second reader is given the very bytes of the first."""
    shelf = Shelf()
    shelf.append([("x", None, None, None)] * 3, 0)
    page = read(shelf.topic, 0, 0, records_max=9, bytes_max=1 << 20)
    shared = RecordTexts()
    show = shown(tags=False, meta=True)
    assert shared.join(1, page.runs, show) is shared.join(1, page.runs, show)


def test_large_records_are_not_kept() -> None:
    """They would push out everything else, and copying is all that encoding them costs."""
    shelf = Shelf()
    shelf.append([("x" * 600_000, None, None, None)] * 2, 0)
    page = read(shelf.topic, 1, 0, records_max=1, bytes_max=1 << 20)
    shared = RecordTexts()
    text = shared.join(1, page.runs, shown(tags=False, meta=False))
    assert json.loads(text)["$seq"] == 2
    assert shared.bytes_kept == 0
    (batch, start, end) = page.runs[0]
    assert encode_records(batch, start, end, shown(tags=False, meta=False)) == [text]
