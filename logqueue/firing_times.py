"""When a cron text fires in a time zone.

Owns: the grammar (five fields as Debian's cron reads them, and names such as `@daily`), the zones,
and what happens where a zone changes its offset. Must not know: schedules, the clock.

The fields are matched by `cronsim` against a calendar without any zone; the rules about changes of
the offset are here. A text whose minute and hour are given fires once a day for each time it names:
a time that a change leaves out comes at the moment of the change, one that a change brings twice
comes the first time only. If the minute or the hour begins with `*`, the text follows the clock on
the wall: what is left out does not come, what the clock shows twice comes twice.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from logqueue.errors import InvalidRequest, quoted

CRON_BYTES_MAX = 256

NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_DAY = 86_400
_START = datetime(1970, 1, 1)
_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(/[A-Za-z0-9_+-]{1,31}){0,2}\Z")
_OF_THE_MACHINE = ("localtime", "posixrules", "posix", "right")
"""Entries of a machine's zone database that mean something else elsewhere."""


def require_cron(text: str) -> str:
    """A cron text in its normal form: single blanks, names replaced by what they mean.

    Raises:
        InvalidRequest: It is not one, or it would never fire.
    """
    shown = quoted(text[:80])
    if len(text.encode("utf-8", "surrogatepass")) > CRON_BYTES_MAX:
        raise InvalidRequest(f"`cron` is over {CRON_BYTES_MAX} bytes")
    fields = text.split()
    if len(fields) == 1 and fields[0].startswith("@"):
        if fields[0].lower() not in NAMED:
            raise InvalidRequest(f"unknown `cron` {shown}: use five fields, or {', '.join(NAMED)}")
        return NAMED[fields[0].lower()]
    if len(fields) != 5:
        raise InvalidRequest(
            f"`cron` {shown} has {len(fields)} fields: use five (minute, hour, day of the month, "
            'month, day of the week), such as "0 3 * * *"; for less than a minute use `every_ms`'
        )
    normal = " ".join(fields)
    try:
        first = next(CronSim(normal, datetime(2000, 1, 1)), None)
    except CronSimError as error:
        problem = str(error)[:1].lower() + str(error)[1:]
        raise InvalidRequest(f"invalid `cron` {shown}: {problem}") from None
    if first is None:
        raise InvalidRequest(f"`cron` {shown} never fires: no such day within 50 years")
    return normal


def require_zone(name: str) -> None:
    """Refuse what is not the name of a time zone.

    Raises:
        InvalidRequest: It is not in the zone database.
    """
    known = _ZONE_NAME.match(name) and name.partition("/")[0] not in _OF_THE_MACHINE
    try:
        if known:
            zone(name)
    except (ValueError, KeyError, OSError):
        known = None
    if not known:
        raise InvalidRequest(
            f"unknown `timezone` {quoted(name[:80])}: use a name of the IANA zone database, such "
            'as "Europe/Berlin" or "UTC"'
        )


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    """A time zone.

    Raises:
        ValueError, KeyError, OSError: There is none with this name.
    """
    return ZoneInfo(name)


@lru_cache(maxsize=4096)
def next_time(text: str, timezone: str, after_ms: int) -> int | None:
    """The first time a cron text fires after a time.

    Args:
        text: As `require_cron` gives it.
        timezone: Of which the text speaks.
        after_ms: Ms since the epoch; it is not the answer itself.

    Returns:
        Ms since the epoch; None when there is none in the next 50 years, or before the year 10000.
    """
    minute, hour, *_ = text.split()
    follows_wall = minute.startswith("*") or hour.startswith("*")
    find = _next_on_wall if follows_wall else _next_named
    try:
        found = find(text, zone(timezone), after_ms // 1000)
    except (StopIteration, OverflowError, ValueError, OSError):
        return None
    return found * 1000


def _next_named(text: str, where: ZoneInfo, after: int) -> int:
    """Of a text that names times of the day: each of them once."""
    times = CronSim(text, _wall(after + _offset(where, after)))
    while True:
        found = _first_moment(where, next(times))
        if found > after:
            return found


def _next_on_wall(text: str, where: ZoneInfo, after: int) -> int:
    """Of a text that follows the clock on the wall. Zones change their offset once a day at most,
    and by a day at most."""
    start = after + 1
    while True:
        offset = _offset(where, start)
        shown = next(CronSim(text, _wall(start + offset - 1)))
        found = _seconds(shown) - offset
        if found < start + _DAY:
            if _offset(where, found) == offset:
                return found
            start = _change(where, start, found)
        elif _offset(where, start + _DAY) != offset:
            start = _change(where, start, start + _DAY)
        else:
            # The wall shows none of the times in between; a change may bring this one sooner.
            start = max(start + _DAY, found - 2 * _DAY)


def _first_moment(where: ZoneInfo, shown: datetime) -> int:
    """When the clock on the wall shows a time first, or passes it over."""
    before = _at(where, shown, fold=0)
    behind = _at(where, shown, fold=1)
    # Left out by a change: taken for a time before it, this is one behind it, and vice versa.
    return _change(where, behind, before) if behind < before else before


def _change(where: ZoneInfo, first: int, last: int) -> int:
    """The first second with the offset of `last`; that of `first` is another."""
    offset = _offset(where, last)
    while last - first > 1:
        middle = (first + last) // 2
        if _offset(where, middle) == offset:
            last = middle
        else:
            first = middle
    return last


def _offset(where: ZoneInfo, at: int) -> int:
    found = datetime.fromtimestamp(at, where).utcoffset()
    assert found is not None
    return int(found.total_seconds())


def _at(where: ZoneInfo, shown: datetime, fold: int) -> int:
    return int(shown.replace(tzinfo=where, fold=fold).astimezone(UTC).timestamp())


def _wall(seconds: int) -> datetime:
    return _START + timedelta(seconds=seconds)


def _seconds(shown: datetime) -> int:
    return int((shown - _START).total_seconds())
