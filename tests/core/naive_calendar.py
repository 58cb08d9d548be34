"""When a cron text fires in a zone, by looking at the clock on the wall all year long.

Owns: an own reading of cron texts and an own walk through time, a quarter of an hour at a step, so
that texts must name quarters. Must not know: how the product does either.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

STEP = timedelta(minutes=15)
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def field(text: str, first: int, last: int) -> frozenset[int]:
    """The numbers that one field of a cron text means."""
    found: set[int] = set()
    for part in text.split(","):
        span, _, every = part.partition("/")
        low, high = first, last
        if span != "*":
            ends = [int(end) for end in span.split("-")]
            low, high = ends[0], ends[-1]
            if every and len(ends) == 1:
                high = last
        found.update(range(low, high + 1, int(every or 1)))
    return frozenset(found)


class Wanted:
    """What a cron text asks for."""

    def __init__(self, text: str) -> None:
        self.texts = text.split()
        spans = zip(self.texts, RANGES, strict=True)
        minute, hour, day, month, weekday = [field(t, *span) for t, span in spans]
        self.minute, self.hour, self.day, self.month = minute, hour, day, month
        self.weekday = {number % 7 for number in weekday}
        self.needs_both = "*" in (self.texts[2][0], self.texts[4][0])
        self.follows_wall = "*" in (self.texts[0][0], self.texts[1][0])

    def matches(self, wall: datetime) -> bool:
        """Whether the clock on the wall shows such a time."""
        if wall.minute not in self.minute or wall.hour not in self.hour:
            return False
        if wall.month not in self.month:
            return False
        days = wall.day in self.day, wall.isoweekday() % 7 in self.weekday
        return all(days) if self.needs_both else any(days)


def walls(zone: str, year: int) -> list[tuple[datetime, datetime]]:
    """Each step of a year in UTC with what the clock on the wall shows then."""
    where = ZoneInfo(zone)
    at, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    found = []
    while at < end:
        found.append((at, at.astimezone(where).replace(tzinfo=None, fold=0)))
        at += STEP
    return found


def firings(text: str, shown: list[tuple[datetime, datetime]]) -> Iterator[datetime]:
    """All firings behind the first step."""
    wanted = Wanted(text)
    latest = shown[0][1]
    for at, wall in shown[1:]:
        if wanted.follows_wall:
            if wanted.matches(wall):
                yield at
            continue
        # Each named time once: when the wall first shows it, or shows a later one in its place.
        fires = False
        while latest < wall:
            latest += STEP
            fires = fires or wanted.matches(latest)
        if fires:
            yield at
