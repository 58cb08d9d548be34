"""What is remembered of the last durations and of slow requests."""

from __future__ import annotations

from logqueue.server.recent import SLOWEST_MAX, Durations, SlowRequests, quantile


def test_the_last_durations_are_kept_in_place_of_the_oldest() -> None:
    recent = Durations(4)
    for milliseconds in range(6):
        recent.add(milliseconds / 1000)
    assert recent.count == 6
    assert recent.in_order() == [0.002, 0.003, 0.004, 0.005]


def test_quantiles_are_values_that_there_were() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert [quantile(ordered, share) for share in (0, 0.5, 0.99, 1)] == [1, 50, 99, 100]
    assert quantile([7.0], 0.5) == quantile([7.0], 1.0) == 7.0


def test_each_minute_keeps_its_slowest_and_an_hour_later_they_are_gone() -> None:
    now = 0.0
    slow = SlowRequests(lambda: now)
    for took in range(1, 31):
        slow.note("GET", "/a", "", 200, float(took))
    assert [noted.took_s for noted in slow.slowest()] == [float(took) for took in range(30, 20, -1)]
    for minute in range(1, 60):
        now = minute * 60.0
        for _ in range(20):
            slow.note("GET", "/b", "n" * 1000, 200, 1.0)
    found = slow.slowest()
    assert len(found) == SLOWEST_MAX
    assert [noted.route for noted in found[:10]] == ["/a"] * 10
    assert max(len(noted.name) for noted in found) == 200
    now += 61.0
    assert {noted.route for noted in slow.slowest()} == {"/b"}
    now += 3600.0
    assert slow.slowest() == []
