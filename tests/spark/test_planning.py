"""Topics, gaps, micro-batches and tasks from indexes of segments, without files or Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading import options
from logqueue.pipeline.reading.available import AvailableEvents, AvailableRange, Piece, Range
from logqueue.pipeline.reading.offset_planner import (
    EventsOffsetPlanner,
    Limit,
    RecordsOffsetPlanner,
)
from logqueue.pipeline.reading.offsets import DataLossError
from logqueue.pipeline.reading.options import Reading, Selection
from logqueue.pipeline.reading.planning import SegmentTask, Survey, weight
from logqueue.pipeline.reading.pushdown import Pushdown
from logqueue.segments import ranges as rg
from logqueue.segments.index import SegmentIndex, TopicPart
from logqueue.segments.known import TopicFacts
from logqueue.segments.plan import SegmentRead

LOG = "ab" * 16
ALL = Selection(pattern=".*")
MIB = 1 << 20


def reading(**given: str) -> Reading:
    return options.offline({"path": "/data", "topicPattern": ".*", **given}).reading


def index(
    segment: int,
    parts: Sequence[TopicPart] = (),
    learned: Sequence[TopicFacts] = (),
    *,
    log: str = "jobs",
    orders: tuple[int, int] | None = None,
    size: int = MIB,
) -> SegmentIndex:
    first, last = orders or (segment * 100, segment * 100 + 99)
    return SegmentIndex(
        1, "jobs" if log == "jobs" else "leases", LOG, LOG, segment, 1, 2, size, 0, first, last,
        first, last, list(parts), list(learned),
    )  # fmt: skip


def part(topic: int, first: int, last: int, *, moved: rg.Ranges | None = None) -> TopicPart:
    rows = last - first + 1
    seqs = [(first, last)] if rows else []
    anew = rg.count(moved or [])
    return TopicPart(
        topic, "", f"{LOG}-{topic}", seqs, rows, rows * 100, first, last, moved or [], anew,
        anew * 100, 1, 1,
    )  # fmt: skip


def facts(topic: int, name: str, head: int = 0) -> TopicFacts:
    return TopicFacts(topic, name, True, 0, 0, head=head)


def taken(tasks: Sequence[SegmentTask], topic: int) -> list[tuple[int, int]]:
    """All ranges that tasks take of a topic, sorted."""
    reads = [read for task in tasks for read in task.reads]
    parts = [part for read in reads for part in read.topics if part.topic == topic]
    return sorted(pair for part in parts for pair in [*part.ranges, *part.moved])


def in_order(pairs: Sequence[tuple[int, int]]) -> bool:
    return all(before[1] < after[0] for before, after in pairwise(pairs))


# -- packing ---------------------------------------------------------------------------------------

sizes = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 300), st.integers(4096, 64 * MIB)),
    min_size=1,
    max_size=30,
)


@given(sizes, st.data())
def test_tasks_cover_a_range_exactly_once(
    segments: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    nexts, indexes = [1, 1], []
    for number, (rows, others, size) in enumerate(segments, 1):
        parts = []
        for topic, count in enumerate((rows, others), 1):
            if count:
                parts.append(part(topic, nexts[topic - 1], nexts[topic - 1] + count - 1))
                nexts[topic - 1] += count
        known = [facts(1, "a"), facts(2, "b")] if number == 1 else []
        indexes.append(index(number, parts, known, size=size))
    first = data.draw(st.integers(1, nexts[0]))
    end = data.draw(st.integers(first, nexts[0]))
    wanted = [Range("a", f"{LOG}-1", first, end)] if first < end else []
    if nexts[1] > 1:
        wanted.append(Range("b", f"{LOG}-2", 1, nexts[1]))
    partition_bytes = data.draw(st.integers(64 << 10, 128 * MIB))
    minimum = data.draw(st.integers(1, 9))
    asked = reading(partitionBytes=str(partition_bytes), minPartitions=str(minimum))
    tasks = Survey(indexes, [], ALL).record_tasks(wanted, asked, Pushdown())
    for topic, range in ((1, (first, end - 1)), (2, (1, nexts[1] - 1))):
        pairs = taken(tasks, topic)
        assert in_order(pairs)
        assert rg.union(pairs) == ([range] if range[0] <= range[1] else [])
    uncut = {(read.segment, weight(read)) for task in tasks for read in task.reads}
    total = sum(size for _, size in uncut)
    assert len(tasks) <= max(-(-total // partition_bytes), minimum)
    # A pure function of the range and the list: nothing else, no time, no memory.
    assert Survey(indexes, [], ALL).record_tasks(wanted, asked, Pushdown()) == tasks


def test_small_segments_share_a_task_and_large_ones_do_not() -> None:
    indexes = [index(1, [part(1, 1, 10)], [facts(1, "a")])]
    indexes += [index(n, [part(1, n * 10 - 9, n * 10)]) for n in range(2, 101)]
    survey = Survey(indexes, [], ALL)
    wanted = [Range("a", f"{LOG}-1", 1, 1001)]
    assert len(survey.record_tasks(wanted, reading(), Pushdown())) == 2
    assert len(survey.record_tasks(wanted, reading(partitionBytes="10m"), Pushdown())) == 10
    one = survey.record_tasks([Range("a", f"{LOG}-1", 15, 16)], reading(), Pushdown())
    assert [read.segment for task in one for read in task.reads] == [2]


def test_segments_are_cut_only_for_the_least_number_of_tasks() -> None:
    survey = Survey([index(1, [part(1, 1, 10)], [facts(1, "a")], size=64 * MIB)], [], ALL)
    wanted = [Range("a", f"{LOG}-1", 1, 11)]
    assert len(survey.record_tasks(wanted, reading(partitionBytes="1m"), Pushdown())) == 1
    tasks = survey.record_tasks(wanted, reading(minPartitions="4"), Pushdown())
    assert len(tasks) == 4
    assert taken(tasks, 1) == [(1, 3), (4, 5), (6, 8), (9, 10)]


def test_filters_leave_out_segments_by_topic_seq_and_time() -> None:
    indexes = [index(1, [part(1, 1, 10)], [facts(1, "a"), facts(2, "b")])]
    indexes += [index(n, [part(1, n * 10 - 9, n * 10), part(2, n, n)]) for n in range(2, 11)]
    survey = Survey(indexes, [], ALL)
    wanted = [Range("a", f"{LOG}-1", 1, 101), Range("b", f"{LOG}-2", 2, 11)]

    def segments(pushdown: Pushdown) -> list[int]:
        tasks = survey.record_tasks(pushdown.of_ranges(wanted), reading(), pushdown)
        return [read.segment for task in tasks for read in task.reads]

    assert segments(Pushdown()) == [*range(1, 11)]
    assert segments(Pushdown(topics=frozenset({"a"}), first=85)) == [9, 10]
    assert segments(Pushdown(topics=frozenset({"b"}), last=3)) == [2, 3]
    assert segments(Pushdown(topics=frozenset({"a"}), to_micros=19_999)) == [1, 2]
    assert segments(Pushdown(from_ms=95, topics=frozenset({"a"}))) == [10]
    assert segments(Pushdown(topics=frozenset())) == []
    assert Pushdown(first=5, last=4).of_ranges(wanted) == []


# -- what is held ----------------------------------------------------------------------------------


def test_a_log_from_its_begin_tells_of_everything() -> None:
    indexes = [
        index(1, [part(1, 1, 10)], [facts(1, "a")]),
        # Seqs 11 to 4106 were promised before a crash and never handed out.
        index(2, [part(1, 4107, 4110)], [facts(1, "a", head=4106)]),
    ]
    available = Survey(indexes, [], ALL).available()["a"]
    assert (available.log, available.next, available.complete_from, available.gaps) == (
        f"{LOG}-1",
        4111,
        1,
        [],
    )
    assert available.rows(1, 4111) == 14


def test_dropped_segments_leave_untold_seqs_and_live_records() -> None:
    moved: rg.Ranges = [(5, 9)]
    indexes = [
        index(7, [part(1, 101, 110)], [facts(1, "a", head=100)]),
        index(8, [part(1, 111, 120, moved=moved)], [facts(1, "a", head=110)]),
    ]
    available = Survey(indexes, [], ALL).available()["a"]
    assert (available.next, available.complete_from, available.gaps) == (121, 101, [(1, 100)])
    assert [(piece.first, piece.last) for piece in available.pieces] == [
        (5, 9),
        (101, 110),
        (111, 120),
    ]
    # A hole in the archive, too.
    indexes = [
        index(1, [part(1, 1, 10)], [facts(1, "a")]),
        index(4, [part(1, 31, 40)], [facts(1, "a", head=30)]),
    ]
    assert Survey(indexes, [], ALL).available()["a"].gaps == [(11, 30)]


def test_a_topic_of_which_all_is_over_still_has_its_head() -> None:
    available = Survey([index(9, [], [facts(1, "a", head=500)])], [], ALL).available()["a"]
    assert (available.next, available.gaps, available.pieces) == (501, [(1, 500)], [])


def test_the_newest_instance_of_a_name_is_the_one() -> None:
    indexes = [
        index(1, [part(1, 1, 10)], [facts(1, "a"), facts(2, "b")]),
        index(2, [part(3, 1, 2)], [TopicFacts(1, "a", True, 0, 0, True, 10), facts(3, "a")]),
    ]
    available = Survey(indexes, [], ALL).available()
    assert {name: (topic.log, topic.next) for name, topic in available.items()} == {
        "a": (f"{LOG}-3", 3),
        "b": (f"{LOG}-2", 1),
    }
    assert set(Survey(indexes, [], Selection(names=("b",))).available()) == {"b"}


def test_orders_of_dropped_segments_are_untold_in_either_log() -> None:
    jobs = [index(n, orders=(n * 10, n * 10 + 8)) for n in (1, 2, 3)]
    leases = [index(n, log="leases", orders=(n * 10 + 9, n * 10 + 9)) for n in (2, 3)]
    available = Survey(jobs, leases, ALL).available_events()
    assert (available.log, available.next, available.gaps) == (LOG, 40, [(0, 28)])
    assert Survey(jobs, leases, ALL).available_events(end=35).next == 35


# -- starts and micro-batches ----------------------------------------------------------------------


def topic(name: str, next: int, *, first: int = 1, log: str = "l", gaps: int = 0) -> AvailableRange:
    pieces = [Piece(first, next - 1, next - first, (next - first) * 10)] if next > first else []
    return AvailableRange(name, log, next, pieces, [(1, gaps)] if gaps else [])


def vector(**places: int) -> dict[str, object]:
    return {
        "v": 1,
        "topics": {name: {"log": "l", "next": next} for name, next in sorted(places.items())},
    }


def test_bounds_are_shared_and_kept() -> None:
    planner = RecordsOffsetPlanner(reading())
    available = {name: topic(name, next) for name, next in (("a", 1001), ("b", 11), ("c", 501))}
    start = planner.initial(available)
    assert start == vector(a=1, b=1, c=1)
    assert planner.latest(start, available, Limit(), None) == vector(a=1001, b=11, c=501)
    once = planner.latest(start, available, Limit(rows=100), None)
    assert once == vector(a=46, b=11, c=46)
    assert planner.latest(start, available, Limit(rows=100), None) == once
    assert planner.latest(start, available, Limit(bytes=1000), None) == once
    assert planner.latest(start, available, Limit(bytes=1), None) == vector(a=2, b=1, c=1)
    steps = 0
    while start != vector(a=1001, b=11, c=501):
        start, steps = planner.latest(start, available, Limit(rows=100), None), steps + 1
    assert steps == 16


def test_sparse_survivors_do_not_hold_a_micro_batch_up() -> None:
    pieces = [Piece(5, 1_000_000, 3, 30), Piece(1_000_001, 1_000_100, 100, 9)]
    available = AvailableRange("a", "l", 1_000_101, pieces)
    assert available.after_rows(1, 1_000_101, 50) == 1_000_048
    assert available.after_rows(1, 1_000_101, 2) == 7


def test_available_now_goes_to_its_target_and_no_further() -> None:
    planner = RecordsOffsetPlanner(reading())
    target = planner.end({"a": topic("a", 11)})
    later = {"a": topic("a", 31), "new": topic("new", 5)}
    assert planner.latest(vector(a=1), later, Limit(), target) == vector(a=11)
    assert planner.latest(vector(a=11), later, Limit(), target) == vector(a=11)
    assert planner.latest(vector(a=20), later, Limit(), target) == vector(a=20)


def test_topics_that_come_later_begin_at_their_earliest() -> None:
    planner = RecordsOffsetPlanner(reading())
    available = {"a": topic("a", 11), "late": topic("late", 51, first=41, gaps=40)}
    end = planner.latest(vector(a=5), available, Limit(), None)
    assert end["topics"]["late"] == {"log": "l", "next": 51, "told": 41}
    assert planner.between(vector(a=5), end, available) == [
        Range("a", "l", 5, 11),
        Range("late", "l", 1, 51),
    ]
    # What was over before the topic was first seen is forgotten with the next step.
    assert planner.latest(end, available, Limit(), None) == end
    available["late"] = topic("late", 61, first=41, gaps=40)
    assert planner.latest(end, available, Limit(), None) == vector(a=11, late=61)
    # A topic without records stays unknown.
    available["z"] = topic("z", 1)
    later = planner.latest(vector(a=5), available, Limit(), None)
    assert later["topics"].keys() == {"a", "late"}


@pytest.mark.parametrize(
    ("start", "available", "said"),
    [
        (vector(a=5), {}, "topic 'a' was deleted; seqs from 5 on"),
        (vector(a=5), {"a": topic("a", 9, log="m")}, "'a' is another one now .* seqs from 5 on"),
        (vector(a=50), {"a": topic("a", 9)}, "seqs 9 to 49 of topic 'a' are gone.*older backup"),
    ],
)
def test_what_happened_behind_a_streams_back_is_told(
    start: dict[str, object], available: dict[str, AvailableRange], said: str
) -> None:
    with pytest.raises(DataLossError, match=said):
        RecordsOffsetPlanner(reading()).latest(start, available, Limit(), None)


def test_losses_are_noted_and_passed_over_when_they_are_accepted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    planner = RecordsOffsetPlanner(reading(failOnDataLoss="false"))
    made_anew = {"a": topic("a", 9, log="m")}
    end = planner.latest(vector(a=5), made_anew, Limit(), None)
    assert end["topics"] == {"a": {"log": "m", "next": 9}}
    assert planner.between(vector(a=5), end, made_anew) == [Range("a", "m", 1, 9)]
    assert planner.latest(vector(a=5), {}, Limit(), None) == vector(a=5)
    available = {"a": topic("a", 60, first=41, gaps=40)}
    assert planner.between(vector(a=5), vector(a=60), available) == [Range("a", "l", 5, 60)]
    assert planner.between(vector(a=5), vector(a=60), {}) == []
    assert "seqs 5 to 40 of topic 'a' are gone" in caplog.text
    assert "continuing without it (failOnDataLoss=false)" in caplog.text


def test_an_instance_that_was_read_to_its_end_is_no_loss_and_the_rest_of_it_comes_first() -> None:
    planner = RecordsOffsetPlanner(reading())
    first, second = topic("a", 5, log="l"), topic("a", 3, log="m")
    now = {"a": replace(topic("a", 9, log="n"), before=(first, second))}
    read = vector(a=5)
    for before, expected in (
        (vector(a=2), Range("a", "l", 2, 5)),
        (read, Range("a", "m", 1, 3)),
        ({"v": 1, "topics": {"a": {"log": "m", "next": 3}}}, Range("a", "n", 1, 9)),
    ):
        end = planner.latest(before, now, Limit(), planner.end(now))
        assert planner.between(before, end, now) == [expected]
    last = {"v": 1, "topics": {"a": {"log": "n", "next": 9}}}
    assert planner.latest(last, now, Limit(), None) == last
    # A run whose end was fixed before the topic was created again stops there.
    assert planner.latest(read, now, Limit(), vector(a=5)) == read
    # More may have been appended to it in segments that are gone.
    unsure = {"a": replace(now["a"], before=(replace(first, is_head_certain=False),))}
    with pytest.raises(DataLossError, match="is another one now"):
        planner.latest(read, unsure, Limit(), None)
    # An older backup.
    with pytest.raises(DataLossError, match="is another one now"):
        planner.latest(vector(a=6), now, Limit(), None)


def test_topics_that_are_no_longer_asked_for_keep_their_place() -> None:
    planner = RecordsOffsetPlanner(options.offline({"path": "/data", "topics": "a"}).reading)
    start = vector(a=5, b=7)
    end = planner.latest(start, {"a": topic("a", 9)}, Limit(), None)
    assert end == vector(a=9, b=7)
    assert planner.between(start, end, {"a": topic("a", 9)}) == [Range("a", "l", 5, 9)]


class _Counted(list[TopicPart]):
    """Counts how often an item is looked at in turn."""

    looks = 0

    def __iter__(self) -> Iterator[TopicPart]:
        for item in super().__iter__():
            _Counted.looks += 1
            yield item


def test_planning_is_linear_in_topics() -> None:
    def looks(topics: int) -> int:
        numbers = range(1, topics + 1)
        known = [facts(number, f"t{number}") for number in numbers]
        indexes = [
            index(segment, _Counted(part(n, segment, segment) for n in numbers), known)
            for segment in (1, 2, 3)
        ]
        wanted = [Range(f"t{n}", f"{LOG}-{n}", 1, 4) for n in numbers]
        _Counted.looks = 0
        survey = Survey(indexes, [], ALL)
        assert len(survey.available()) == topics and not survey.older()
        tasks = survey.record_tasks(wanted, reading(), Pushdown())
        assert len(tasks) == 1 and len(tasks[0].reads) == 3
        return _Counted.looks

    looks(1)
    assert looks(100) == 10 * looks(10)


def test_a_deleted_instance_says_whether_more_of_it_may_be_gone() -> None:
    gone = replace_struct(facts(1, "a", head=10), is_dropped=True)
    whole = [index(1, [part(1, 1, 10)], [facts(1, "a")]), index(2, [], [gone])]
    torn = [index(1, [part(1, 1, 10)], [facts(1, "a")]), index(3, [], [gone])]
    for indexes, is_certain in ((whole, True), (torn, False)):
        (found,) = Survey(indexes, [], ALL).instances()
        assert (found.is_dropped, found.next, found.is_head_certain) == (True, 11, is_certain)
    assert Survey(torn, [], ALL).lost_orders(200) is True
    assert Survey(torn, [], ALL).lost_orders(300) is False


def test_unread_seqs_that_are_untold_are_a_loss() -> None:
    planner = RecordsOffsetPlanner(reading())
    available = {"a": topic("a", 60, first=41, gaps=40)}
    with pytest.raises(DataLossError, match=r"seqs 5 to 40 of topic 'a' are gone"):
        planner.between(vector(a=5), vector(a=60), available)
    assert planner.between(vector(a=41), vector(a=60), available) == [Range("a", "l", 41, 60)]
    # A stream that began when they were untold already has lost nothing, until more goes.
    start = planner.initial(available)
    assert start["topics"]["a"] == {"log": "l", "next": 1, "told": 41}
    assert planner.between(start, vector(a=60), available) == [Range("a", "l", 1, 60)]
    available = {"a": topic("a", 60, first=51, gaps=50)}
    with pytest.raises(DataLossError, match=r"seqs 41 to 50 of topic 'a' are gone"):
        planner.between(start, vector(a=60), available)
    assert planner.between(start, vector(a=21), available) == [Range("a", "l", 1, 21)]


def test_a_checkpoint_of_something_else_is_refused() -> None:
    planner = RecordsOffsetPlanner(reading())
    with pytest.raises(PipelineError, match=r"before its begin 9"):
        planner.between(vector(a=9), vector(a=5), {"a": topic("a", 20)})
    with pytest.raises(PipelineError, match=r"not an offset of records"):
        planner.latest({"v": 1, "log": "l", "next": 3}, {}, Limit(), None)


def test_explicit_starts_are_checked_against_what_is_there() -> None:
    available = {"a": topic("a", 60, first=41, gaps=40)}
    start = reading(startingOffsets='{"a": 45}')
    assert RecordsOffsetPlanner(start).initial(available) == vector(a=45)
    assert RecordsOffsetPlanner(start).batch(available, lambda *_: 1) == [Range("a", "l", 45, 60)]
    gone = RecordsOffsetPlanner(reading(startingOffsets='{"a": 5}'))
    with pytest.raises(DataLossError, match=r"seqs 5 to 40"):
        gone.batch(available, lambda *_: 1)
    with pytest.raises(DataLossError, match=r"seqs 60 to 98"):
        RecordsOffsetPlanner(reading(startingOffsets='{"a": 99}')).batch(available, lambda *_: 1)
    with pytest.raises(PipelineError, match=r"names topic 'b', and there is no such"):
        RecordsOffsetPlanner(reading(startingOffsets='{"b": 5}')).initial(available)
    with pytest.raises(DataLossError, match=r"'a' is another one now"):
        of_other = '{"v":1,"topics":{"a":{"log":"m","next":45}}}'
        RecordsOffsetPlanner(reading(startingOffsets=of_other)).batch(available, lambda *_: 1)


def test_batches_end_where_they_are_told_to() -> None:
    available = {"a": topic("a", 60), "b": topic("b", 30)}
    ends = reading(endingOffsets='{"a": 20, "b": -1}')
    assert RecordsOffsetPlanner(ends).batch(available, lambda *_: 1) == [
        Range("a", "l", 1, 20),
        Range("b", "l", 1, 30),
    ]
    times = reading(startingTimestamp="10000", endingTimestamp="20000")
    seqs = {10_000: 7, 20_000: 9}
    assert RecordsOffsetPlanner(times).batch(available, lambda _, at: seqs[at]) == [
        Range("a", "l", 7, 9),
        Range("b", "l", 7, 9),
    ]


def test_events_advance_by_orders() -> None:
    planner = EventsOffsetPlanner(reading(events="leases"))
    available = Survey(
        [index(n, [TopicPart(1, "", "", events=50)], [facts(1, "a")]) for n in (1, 2)], [], ALL
    ).available_events()
    start = planner.initial(available)
    assert start == {"v": 1, "log": LOG, "next": 0, "of": [[1, 1]]}
    assert planner.latest(start, available, Limit(), None) == {
        "v": 1,
        "log": LOG,
        "next": 300,
        "of": [[1, 1]],
    }
    some = planner.latest(start, available, Limit(rows=25), None)
    assert some == {"v": 1, "log": LOG, "next": 150, "of": [[1, 1]]}
    assert planner.between(start, some, available) == [Range("", LOG, 0, 150, ((1, 1),))]
    assert planner.latest(some, available, Limit(rows=1), planner.end(available))["next"] == 152
    with pytest.raises(DataLossError, match=r"orders 300 to 899 are gone"):
        planner.latest({"v": 1, "log": LOG, "next": 900}, available, Limit(), None)
    with pytest.raises(DataLossError, match=r"the log is another one now"):
        planner.latest({"v": 1, "log": "other", "next": 9}, available, Limit(), None)


def test_events_of_queues_that_are_asked_for_later_are_read_from_their_beginning() -> None:
    """Each event once, however the selection of a stream changes."""
    known = [facts(number, name) for number, name in enumerate("abc", 1)]

    def at(segments: int, names: str) -> AvailableEvents:
        indexes = [
            index(n, [TopicPart(t, "", "", events=5) for t in (1, 2, 3)], known if n == 1 else [])
            for n in range(1, segments + 1)
        ]
        return Survey(indexes, [], Selection(pattern=f"[{names}]")).available_events()

    planner = EventsOffsetPlanner(reading(events="leases"))
    offset = planner.initial(at(1, "a"))
    seen: dict[int, list[tuple[int, int]]] = {1: [], 2: [], 3: []}
    for segments, names in ((1, "a"), (2, "ab"), (3, "b"), (4, "c"), (5, "abc"), (5, "a")):
        available = at(segments, names)
        end = planner.latest(offset, available, Limit(), None)
        for wanted in planner.between(offset, end, available):
            assert wanted.queues is not None
            for first, last in wanted.queues:
                for number in range(first, last + 1):
                    seen[number].append((wanted.first, wanted.end))
        offset = end
    assert seen == {
        1: [(0, 200), (200, 300), (300, 600)],
        2: [(0, 300), (300, 400), (400, 600)],
        3: [(0, 500), (500, 600)],
    }
    # An offset of an earlier version covers what is selected now.
    old = {"v": 1, "log": LOG, "next": 200}
    end = planner.latest(old, at(5, "ab"), Limit(), None)
    assert planner.between(old, end, at(5, "ab")) == [Range("", LOG, 200, 600, ((1, 2),))]


def test_events_of_dropped_segments_are_a_loss_for_who_was_there() -> None:
    planner = EventsOffsetPlanner(reading(events="leases"))
    available = Survey([index(2), index(3)], [], ALL).available_events()
    start = planner.initial(available)
    assert start == {"v": 1, "log": LOG, "next": 0, "told": 200, "of": []}
    assert planner.between(start, planner.end(available), available) == [Range("", LOG, 0, 400, ())]
    with pytest.raises(DataLossError, match=r"orders 150 to 199 are gone"):
        planner.between({"v": 1, "log": LOG, "next": 150}, planner.end(available), available)


def test_a_read_knows_what_it_weighs() -> None:
    survey = Survey([index(1, [part(1, 1, 10)], [facts(1, "a")])], [], ALL)
    (task,) = survey.record_tasks([Range("a", f"{LOG}-1", 1, 11)], reading(), Pushdown())
    assert task.bytes == MIB
    assert isinstance(task.reads[0], SegmentRead)
