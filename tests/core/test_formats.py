"""What is stored: blocks, events, and a log from before; and what configs and predicates say."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logqueue import events as ev
from logqueue.core.apply.dispatch import apply
from logqueue.core.apply.replay import finish_replay
from logqueue.core.batch import Batch
from logqueue.core.invariants import check
from logqueue.core.state import State
from logqueue.errors import InvalidRequest
from logqueue.events import block as blocks
from logqueue.model.config import BackoffOptions, RouterOptions, TopicOptions, is_topic_name
from logqueue.model.job_batch import BatchCallback
from logqueue.model.schedule import ScheduleOptions
from logqueue.model.tag_predicate import Predicate
from tests.portrait import portrait

GOLDEN = Path(__file__).with_name("golden_log.json")
FRAGMENT = st.binary(max_size=40)
RECORDS = st.lists(
    st.tuples(st.binary(min_size=1, max_size=40), FRAGMENT, FRAGMENT, FRAGMENT),
    min_size=1,
    max_size=30,
)


def columns(records: list[Any]) -> list[list[bytes] | None]:
    found = [[record[c] for record in records] for c in range(4)]
    return [column if any(column) else None for column in found]


@pytest.mark.parametrize("key", [None, "k", ev.BLOCK_PLACE.hex(), "\N{SNOWMAN}"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_large_block_goes_to_the_log_as_it_is(key: str | None, count: int) -> None:
    block = blocks.pack([[b"1" * ev.LARGE_BLOCK_BYTES], None, None, None])
    events: list[ev.Event] = [ev.RecordsTrimmed(1, 1, 1, 1, 1, 1)]
    for k in range(count):
        events.append(ev.RecordsAppended(5, 3, 9 + k, 1, block, 0, key, 7, len(block), 0, 0))
    parts = ev.encode_parts(8, events)
    assert b"".join(parts) == ev.encode(8, events)
    assert (block in parts) == (count == 1)
    small = [ev.RecordsAppended(5, 3, 9, 1, b"x", 0, key, 7, 1, 0, 0)]
    assert ev.encode_parts(8, [*small]) == [ev.encode(8, [*small])]


@given(RECORDS, st.data())
def test_a_block_gives_back_what_went_in(records: list[Any], data: st.DataObject) -> None:
    block = blocks.pack(columns(records))
    view = blocks.BlockView(block)
    assert [view.texts(i) for i in range(view.count)] == records
    assert [*view.rows(range(view.count))] == records
    some = sorted(data.draw(st.sets(st.integers(0, len(records) - 1))))
    assert [*view.rows(some)] == [records[i] for i in some]
    assert view.size_total() == sum(len(r[0]) + len(r[3]) for r in records)
    assert [view.size(i) for i in range(view.count)] == [len(r[0]) + len(r[3]) for r in records]
    assert view.numbers(blocks.SEQ) is None


@given(RECORDS, st.data())
def test_a_moved_batch_knows_its_records(records: list[Any], data: st.DataObject) -> None:
    n = len(records)
    seqs = sorted(data.draw(st.sets(st.integers(1, 2**40), min_size=n, max_size=n)))
    times = data.draw(st.lists(st.integers(0, 2**45), min_size=n, max_size=n))
    batch = Batch.moved(blocks.pack(columns(records), seqs=seqs, ts=times), 3)
    assert [*batch.records()] == list(zip(seqs, times, records, strict=True))
    gone = data.draw(st.sets(st.sampled_from(seqs), max_size=n - 1))
    for seq in gone:
        place = batch.index_of(seq)
        batch.remove(place, place + 1)
    assert [*batch.live_seqs()] == [seq for seq in seqs if seq not in gone]
    assert batch.first_live_seq() == min(set(seqs) - gone)
    assert all((batch.index_of(seq) < 0) == (seq in gone) for seq in seqs)


@pytest.mark.parametrize("header", [b"\x02\x01\0\0", b"\x01\x81\0\0", b"\x01\x01\0\x02"])
def test_blocks_from_the_future_are_refused(header: bytes) -> None:
    with pytest.raises(blocks.BlockError):
        blocks.BlockView(header + b"\1\0\0\0" + b"\1\0\0\0x")


def samples_of_schedules(block: bytes) -> list[ev.Event]:
    """What schedules do."""
    options = ScheduleOptions("jobs", b'{"data":4}', block, "0 3 * * *", timezone="Europe/Berlin")
    keyed = ScheduleOptions(
        "jobs", b"{}", block, "", 60_000, "UTC", 500, catch_up="all", on_conflict="keep"
    )
    batch = ev.BatchSnapshot("c", 1, 2, 0, 3, 1, None, BatchCallback("t", b"{}", block))
    kept = ev.ScheduleSnapshot("b", keyed, True, 1000, 3000, 1, 2, 3, 2000, 2001, 9, "kept")
    return [
        ev.ScheduleSet(1011, 0, "a", options, False, 2000),
        ev.ScheduleFired(1012, 1, "a", 2000, 3000, 9, "replaced", 4),
        ev.ScheduleAdvanced(1013, 0, "a", 4000, 2),
        ev.Checkpointed(1014, 0, [], 2, 99, schedules=[kept], batches=[batch]),
        ev.JobBatchOpened(1016, 0, "b", BatchCallback("t", b"{}", block), None),
        ev.JobBatchClosed(1017, 0, "b"),
        ev.JobBatchEnded(1018, 0, "b", 3, 2),
        ev.JobBatchRemoved(1019, 0, "b"),
        ev.ScheduleRemoved(1015, 0, "a"),
        ev.JobTexts(1016, 1, [(1, b"2")], [(2, "x")], [(1, b'"k"')]),
        ev.EndsKept(1017, 1, [], [(1, b'"k"')]),
    ]


def samples() -> list[ev.Event]:
    """A little history with one event of every kind."""
    config = TopicOptions(type="queue", durability="fsync", leases_durable=True).resolved()
    block = blocks.pack([[b"1", b"2", b"3"], None, None, None])
    moved = blocks.pack([[b"2"], None, None, None], seqs=[2], ts=[1000])
    one = blocks.pack([[b"4"], None, None, None])
    options = RouterOptions(filter=Predicate("a", True), guarantee="exactly_once")
    edge = ev.RouterSnapshot(4, "r", 1, 3, 5, 1, options)
    replaced = blocks.pack(
        [[b"9"], None, None, None, [b'"k"']],
        seqs=[2],
        ts=[1000],
        numbers={blocks.UPDATED_AT: [1010]},
    )
    kept = ev.TopicSnapshot(1, "q", config, 3, 0, 0, 0, 1000, 0)
    return [
        ev.TopicCreated(1000, 1, "q", config),
        ev.RecordsAppended(1000, 1, 1, 3, block, 0, "k", 0),
        ev.KeysRemembered(1001, 1, [("old", 900, 1, 1, 1)]),
        ev.JobsClaimed(1002, 1, 77, 4, [("w", 5000, 9, [1, 2, 3])]),
        ev.JobsExtended(1003, 1, "w", 6000, [2]),
        ev.JobsReleased(1004, 1, "w", "nack", 1500, [3]),
        ev.BackoffChanged(1004, 1, BackoffOptions("constant", 100)),
        ev.JobsRescheduled(1004, 1, [3], [1600]),
        ev.JobsAcked(1005, 1, "w", [1]),
        ev.RecordsRemoved(1006, 1, [3]),
        ev.RecordsMoved(1007, 1, moved, (1, 3)),
        ev.TopicConfigured(1008, 1, config),
        ev.RecordsTrimmed(1009, 1, 0, 1),
        ev.TopicCreated(1009, 3, "copies", config),
        ev.RouterCreated(1009, 1, 4, "r", 3, 3, options),
        ev.RouterConfigured(1009, 1, 4, RouterOptions()),
        ev.RecordsAppended(1009, 1, 4, 1, one, 0, None, 0, 1, 2),
        ev.RecordsForwarded(1009, 3, 4, 4, 1, 1, 4, []),
        ev.RouterAdvanced(1009, 3, 4, 5),
        ev.SeqsSkipped(1009, 3, 2, 2),
        ev.ChunkStaged(1009, 3, "p", 5, 0, "a", 0, one, 1, 1),
        ev.ChunksCommitted(1009, 3, "p", 5, [(0, "a", 0)], [1], 4),
        ev.EpochCommitted(1009, 0, "p", 5, b"digest", [("copies", 4, 4)]),
        ev.StagedDropped(1009, 0, "p"),
        ev.Checkpointed(1010, 0, [kept], 2, 99, routers=[edge]),
        ev.SegmentsDropped(1, 0, 7),
        ev.LeasesCheckpointed(1011, 1, 4, [ev.JobSnapshot(2, 1, 78, 6000, 9, 0, "w")]),
        ev.RecordsReplaced(1011, 1, [replaced], "l", [(2, 1), (4, 0)], 4),
        ev.JobsHeld(1011, 1, [(2, 3, "no luck"), (4, 0, None)]),
        ev.HoldsReleased(1011, 1, [4]),
        ev.JobTexts(1011, 1, [(1, b'{"a":1}')], [(3, "no luck")]),
        ev.EndsKept(1011, 1, [(1, "acked", 1005, "w", "", b'{"a":1}', None)]),
        ev.JobsRetimed(1011, 1, [2], 1700, "delayed"),
        ev.RecordsFinished(1011, 1, "cancelled", "w", [4]),
        ev.TopicCreated(1012, 2, "gone", config),
        ev.TopicRemoved(1013, 2),
        ev.RouterRemoved(1014, 1, 4),
        *samples_of_schedules(one),
    ]


@pytest.mark.parametrize("event", samples(), ids=lambda e: type(e).__name__)
def test_events_come_back_as_they_were(event: ev.Event) -> None:
    found = ev.decode(ev.encode(7, [event]))
    assert found == ev.Transaction(7, [event])


def test_every_kind_of_event_is_sampled() -> None:
    kinds = {kind for kind in vars(ev).values() if isinstance(kind, type)}
    wanted = {k for k in kinds if issubclass(k, ev.Event) and k is not ev.Event}
    assert {type(event) for event in samples()} == wanted


def test_a_log_from_before_still_says_the_same() -> None:
    """The golden file was written by the first version; it must never be written again."""
    golden = json.loads(GOLDEN.read_text())
    state = State()
    for payload in golden["frames"]:
        for event in ev.decode(base64.b64decode(payload)).events:
            apply(state, event, 1)
    finish_replay(state, clean=False)
    check(state)
    queue = portrait(state)["q"]
    assert {seq: texts[1].decode() for seq, texts in queue["records"].items()} == {2: "2"}
    assert queue["queue"]["jobs"] == {2: ("leased", 1, 78, "w", 6000, 9)}
    assert queue["keys"]["k"] == (1000, 1, 3, 3)
    assert queue["head"] == 3 and [*state.topics] == ["q"]


@pytest.mark.parametrize(
    ("given_config", "field", "found"),
    [
        ({"lease_ms": 0}, "lease_ms", 100),
        ({"lease_ms": 10**12}, "lease_ms", 86_400_000),
        ({"claim_jitter_ms": 60_000}, "claim_jitter_ms", 5000),
        ({}, "durability", "disk"),
        ({"durable": True}, "durability", "fsync"),
        ({"durable": True, "durability": "disk"}, "durable", False),
        ({"durability": "fsync"}, "durable", True),
        ({"priority": 5000}, "priority", 5000),
    ],
)
def test_configs_are_clamped(given_config: dict[str, Any], field: str, found: object) -> None:
    assert getattr(TopicOptions(**given_config).resolved(), field) == found


def test_numbers_beyond_64_bits_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        TopicOptions(ttl_ms=2**64).resolved()


@pytest.mark.parametrize(
    ("name", "good"),
    [("a", True), ("A0._:-", True), ("x" * 255, True), ("x" * 256, False), ("", False)]
    + [(name, False) for name in ("-a", ".a", ":a", "_a", "a/b", "a>b", "ä", "a\n", "a b")],
)
def test_names(name: str, good: bool) -> None:
    assert is_topic_name(name) is good


@pytest.mark.parametrize(
    ("form", "yes", "no"),
    [
        ("abc", ["abc"], ["abcd", "ab", ""]),
        ("abc*", ["abc", "abcd"], ["ab", "xabc"]),
        (["tag", "Eq", "abc*"], ["abc*"], ["abcd"]),
        (["tag", "Glob", "a**"], ["a*", "a*b"], ["ab"]),
        ("*", ["", "x"], []),
        ("", [""], ["x"]),
        ("a*b", ["a*b"], ["axb"]),
    ],
)
def test_predicates(form: object, yes: list[str], no: list[str]) -> None:
    predicate = Predicate.parse(form)
    assert Predicate.parse(predicate.canonical()) == predicate
    assert all(predicate.matches(tag) for tag in yes)
    assert not any(predicate.matches(tag) for tag in [*no, None])


@pytest.mark.parametrize(
    "form",
    [
        ["tag", "Eq"],
        ["node", "Eq", "x"],
        ["tag", "eq", "x"],
        ["tag", "Glob", "x"],
        ["tag", "Eq", "x", "y"],
        [1, 2, 3],
        {},
        5,
        None,
        True,
    ],
)
def test_broken_predicates(form: object) -> None:
    with pytest.raises(InvalidRequest):
        Predicate.parse(form)
