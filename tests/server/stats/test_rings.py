"""Rows by time: how they are merged, read back, forgotten."""

from __future__ import annotations

from random import Random

import pytest

from logqueue.server.stats.rings import ITEM_BYTES, RING_BYTES, HistoryRings

AT = 1_700_000_000_000


def rings(slots: int = 5, bytes_max: int = 1 << 20) -> HistoryRings:
    return HistoryRings(1000, slots, bytes_max)


def test_counters_of_one_slot_add_up_and_gauges_are_the_latest() -> None:
    made = rings()
    made.add(1, AT, (2, 1), (7,))
    made.add(1, AT + 900, (3, 0), (9,))
    made.add(1, AT + 2000, (1, 1), (4,))
    at = AT + 3000
    assert made.counters(1, at, 5, 0) == [0, 5, 0, 1, 0]
    assert made.counters(1, at, 5, 1) == [0, 1, 0, 1, 0]
    assert made.gauges(1, at, 5, 2, present=3) == [None, 9, 9, 4, 3]
    assert made.sums(1, at, 3, (0, 1)) == [1, 1]
    assert made.sums(1, at + 60_000, 3, (0, 1)) == [0, 0]


def test_numbers_that_are_too_large_are_the_largest_there_is() -> None:
    made = rings()
    made.add(1, AT, (2**31, 2**40), (2**50,))
    made.add(1, AT, (2**31, 1), (7,))
    assert made.counters(1, AT, 1, 0) == made.counters(1, AT, 1, 1) == [2**32 - 1]


def test_a_gauge_that_grows_does_so_between_rows() -> None:
    made = rings()
    made.add(1, AT, (0,), (20,))
    made.add(1, AT + 2000, (0,), (0,))
    assert made.gauges(1, AT + 4000, 5, 1, present=0, growth=10) == [20, 30, 0, 0, 0]


def test_nothing_in_the_window_means_that_nothing_changed() -> None:
    made = rings()
    made.add(1, AT, (1,), (6,))
    at = AT + 100_000
    assert made.counters(1, at, 5, 0) == [0] * 5
    assert made.gauges(1, at, 5, 1, present=6) == [6] * 5
    assert made.gauges(1, at, 5, 1, present=25, growth=10) == [0, 0, 5, 15, 25]
    assert made.gauges(1, at, 5, 1, present=0, growth=10) == [0] * 5


def test_the_clock_may_be_set_back() -> None:
    made = rings()
    made.add(1, AT, (1,), ())
    made.add(1, AT - 2000, (1,), ())
    assert made.counters(1, AT, 5, 0) == [0, 0, 0, 0, 2]
    made.add(1, AT - 3_600_000, (1,), ())
    assert made.counters(1, AT - 3_600_000, 5, 0) == [0, 0, 0, 0, 1]


def test_a_log_that_becomes_a_queue_begins_again() -> None:
    made = rings()
    made.add(1, AT, (1,))
    made.add(1, AT + 1000, (2, 0), (5,))
    assert made.counters(1, AT + 1000, 5, 0) == [0, 0, 0, 0, 2]
    assert made.size == RING_BYTES + 4 * ITEM_BYTES


def test_a_topic_keeps_as_many_slots_as_there_are() -> None:
    made = rings(slots=10)
    for second in range(1000):
        made.add(1, AT + 1000 * second, (second,), (second,))
    assert made.size == RING_BYTES + 10 * 3 * ITEM_BYTES
    assert made.counters(1, AT + 999_000, 10, 0) == [*range(990, 1000)]


def test_old_topics_are_forgotten() -> None:
    made = rings()
    made.add(1, AT, (1,))
    made.add(2, AT + 3000, (1,))
    made.forget_old(AT + 4000)
    assert len(made) == 2
    made.forget_old(AT + 5000)
    assert len(made) == 1
    made.forget(2)
    assert made.size == 0


@pytest.mark.parametrize("seed", range(3))
def test_bytes_of_all_topics_are_bounded(seed: int) -> None:
    """With more topics than there is room for, all of them keep something."""
    chances = Random(seed)
    most = 40 * (RING_BYTES + 20 * 4 * ITEM_BYTES)
    made = rings(slots=60, bytes_max=most)
    for second in range(120):
        busy = [*range(60)]
        chances.shuffle(busy)
        for number in busy:
            made.add(number, AT + 1000 * second, (1, 1), (1,))
            assert made.size <= most
    at = AT + 119_000
    kept = [sum(made.counters(number, at, 60, 0)) for number in range(60)]
    assert min(kept) >= 1
    assert made.lost_at
    for number in range(60):
        first = made.known_from(number, AT) - at // 1000 + 59
        assert sum(made.counters(number, at, 60, 0)) == 60 - first


def test_idle_topics_go_first() -> None:
    most = 20 * (RING_BYTES + 10 * 2 * ITEM_BYTES)
    made = rings(slots=600, bytes_max=most)
    for number in range(100, 120):
        for second in range(10):
            made.add(number, AT + 1000 * second, (1,))
    for second in range(100, 110):
        for number in range(10):
            made.add(number, AT + 1000 * second, (1,))
    at = AT + 109_000
    assert [sum(made.sums(number, at, 10, (0,))) for number in range(10)] == [10] * 10
    assert made.sums(119, at, 600, (0,)) == [10]
    assert made.sums(100, at, 600, (0,)) == [0]
    assert made.known_from(100, AT) > AT // 1000
