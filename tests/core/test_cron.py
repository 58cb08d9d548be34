"""Cron texts and zones: every firing of a year, as the clock on the wall has it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logqueue.errors import InvalidRequest
from logqueue.firing_times import next_time, require_cron, require_zone
from tests.core.naive_calendar import firings, walls
from tests.effort import IS_THOROUGH

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
FURTHER = ("Africa/Casablanca", "America/Havana", "Antarctica/Troll", "Asia/Beirut", "Asia/Tehran")
TEXTS = (
    "0 3 * * *",
    "30 2 * * *",
    "0,15,30,45 1-3 * * *",
    "0 0 * * *",
    "30 2 29-31 3,10 0",
    "*/15 * * * *",
    "*/15 2 * * *",
    "0 */3 * * *",
    "15 * 1 * 1",
    "*/30 1-2 */2 * *",
    "*/15 3 * * 6",
    "45 23 * 4,10,11 0,7",
)
SPARSE = ("0 3 * * *", "30 2 29-31 3,10 0", "15 * 1 * 1", "45 23 * 4,10,11 0,7")
"""Compared for all of the year; the others around changes of the offset only, unless thorough."""
YEAR = 2026


def ms(at: datetime) -> int:
    return int(at.timestamp()) * 1000


@pytest.mark.parametrize("zone", ZONES)
def test_every_firing_of_a_year(zone: str) -> None:
    compare(zone, YEAR)


def compare(zone: str, year: int) -> None:
    whole_year = walls(zone, year)
    parts = [whole_year] if IS_THOROUGH else [*changes(whole_year)]
    for text in TEXTS:
        for shown in [whole_year] if text in SPARSE else parts:
            expected = [ms(at) for at in firings(text, shown)]
            end = ms(shown[-1][0])
            found = []
            at = next_time(text, zone, ms(shown[0][0]))
            while at is not None and at <= end:
                found.append(at)
                at = next_time(text, zone, at)
            assert found == expected, (text, zone)


def changes(shown: list[tuple[datetime, datetime]]) -> Iterator[list[tuple[datetime, datetime]]]:
    """The days around each change of the offset."""
    offsets = [wall - at.replace(tzinfo=None) for at, wall in shown]
    for place, (one, other) in enumerate(pairwise(offsets)):
        if one != other:
            yield shown[max(place - 300, 0) : place + 300]


@pytest.mark.slow
@pytest.mark.parametrize("zone", FURTHER)
@pytest.mark.parametrize("year", [1987, 2011, 2023, 2026])
def test_every_firing_in_odd_zones(zone: str, year: int) -> None:
    compare(zone, year)


@given(st.sampled_from(TEXTS), st.sampled_from(ZONES + FURTHER), st.integers(0, 366 * 1440))
@settings(max_examples=50, deadline=None)
def test_the_next_time_does_not_depend_on_where_one_looks_from(
    text: str, zone: str, minutes: int
) -> None:
    after = ms(datetime(YEAR, 1, 1, tzinfo=UTC)) + minutes * 60_000 + minutes % 60_000
    found = next_time(text, zone, after)
    assert found is not None and found > after
    assert next_time(text, zone, (after + found) // 2) == found
    assert next_time(text, zone, found - 1) == found


@pytest.mark.parametrize(
    ("zone", "text", "after", "expected"),
    [
        # Left out: at the moment of the change. Shown twice: the first time only.
        ("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00Z", "2026-03-29T01:00Z"),
        ("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00Z", "2026-10-25T00:30Z"),
        ("Europe/Berlin", "30 2 * * *", "2026-10-25T00:30Z", "2026-10-26T01:30Z"),
        # With `*` in minute or hour: not at all, and twice.
        ("Europe/Berlin", "*/30 2 * * *", "2026-03-28T12:00Z", "2026-03-30T00:00Z"),
        ("Europe/Berlin", "*/30 2 * * *", "2026-10-25T00:30Z", "2026-10-25T01:00Z"),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00Z", "2026-10-03T15:30Z"),
        # A whole day that a zone left out.
        ("Pacific/Apia", "0 9 30 12 *", "2011-12-29T12:00Z", "2011-12-30T10:00Z"),
        ("UTC", "0 0 29 2 *", "2097-01-01T00:00Z", "2104-02-29T00:00Z"),
    ],
)
def test_at_changes_of_the_offset(zone: str, text: str, after: str, expected: str) -> None:
    found = next_time(text, zone, ms(datetime.fromisoformat(after)))
    assert found == ms(datetime.fromisoformat(expected))


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (" 0  3 * * mon ", "0 3 * * mon"),
        ("@daily", "0 0 * * *"),
        ("@Hourly", "0 * * * *"),
        ("0 0 L * *", "0 0 L * *"),
    ],
)
def test_the_normal_form(text: str, normal: str) -> None:
    assert require_cron(text) == normal


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("0 0 3 * * *", "use `every_ms`"),
        ("60 * * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 0 0 * *", "bad day-of-month"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("0 0 */31 * 1#5", "never fires"),
        ("@reboot", "unknown `cron`"),
        ("* " * 200, "over 256 bytes"),
        ("٣ * * * *", "bad minute"),
        ("*/0 * * * *", "bad minute"),
        ("5-1 * * * *", "bad minute"),
    ],
)
def test_what_is_not_a_cron_text(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        require_cron(text)


@given(st.text(alphabet="0123456789*/,-#LW ?@JANMONx\n\x00٣", max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_text_is_taken_or_refused(text: str) -> None:
    try:
        normal = require_cron(text)
    except InvalidRequest:
        return
    next_time(normal, "Europe/Berlin", 1_790_000_000_000)


@pytest.mark.parametrize(
    "name",
    ["", "Berlin", "europe/berlin", "../etc/passwd", "/etc/localtime", "Europe", "localtime",
     "right/UTC", "posix/UTC", "UTC\x00", "Europe/Berlin\n", "a" * 300, "tzdata.zi", "Ü"],
)  # fmt: skip
def test_what_is_not_a_zone(name: str) -> None:
    with pytest.raises(InvalidRequest, match="unknown `timezone`"):
        require_zone(name)


@pytest.mark.parametrize(
    "name", ["UTC", *ZONES, *FURTHER, "America/Argentina/Ushuaia", "Etc/GMT+5"]
)
def test_zones(name: str) -> None:
    require_zone(name)
