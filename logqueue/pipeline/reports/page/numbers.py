"""Numbers as people read them: counts, durations, shares, times, and ticks for axes.

Owns: rounding, units, places of ticks. Must not know: what a number counts, HTML.

Times are milliseconds since the epoch and shown in UTC; durations are milliseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

NOTHING = "–"
SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_STEPS_OF_TIME = (
    *(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(n * SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * HOUR for n in (1, 2, 3, 6, 12)),
    *(n * DAY for n in (1, 2, 7, 14, 28, 56, 112, 364, 728, 1820, 3640, 18200)),
)
_UNITS = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"))


@dataclass(frozen=True)
class Tick:
    """A place on an axis.

    Attributes:
        at: The value it marks.
        text: What is written there.
        is_minor: Whether it may be left out where there is little room.
    """

    at: float
    text: str
    is_minor: bool = False


def count(value: float | None) -> str:
    """A number of things, exact: `12,345`; one decimal below 100 where it is not whole."""
    if value is None or math.isnan(value):
        return NOTHING
    if abs(value) < 100 and value != int(value):
        return f"{value:,.2f}" if abs(value) < 1 else f"{value:,.1f}"
    return f"{value:,.0f}"


def short_count(value: float) -> str:
    """A number of things for an axis: `1.5k`, `20M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def share(value: float | None) -> str:
    """A part of one as per cent; what is not quite nothing or all is not rounded to it."""
    if value is None or math.isnan(value):
        return NOTHING
    if 0 < value < 0.001:
        return "<0.1%"
    if 0.999 < value < 1:
        return ">99.9%"
    return f"{value * 100:.1f}%" if value < 0.1 or 0.9 < value < 1 else f"{value * 100:.0f}%"


def duration(value: float | None) -> str:
    """Milliseconds with at most two units: `12 ms`, `1.25 s`, `2 min 5 s`, `3 d 4 h`."""
    if value is None or math.isnan(value):
        return NOTHING
    if value < 0:
        return "-" + duration(-value)
    if value < SECOND:
        return f"{value:.0f} ms" if value >= 10 or value == int(value) else f"{value:.1f} ms"
    if value < MINUTE:
        text = f"{value / SECOND:.2f}" if value < 10 * SECOND else f"{value / SECOND:.1f}"
        return f"{text.rstrip('0').rstrip('.')} s" if float(text) < 60 else "1 min"
    seconds = round(value / SECOND)
    if seconds < 3600:
        return _pair(seconds, 60, "min", 1, "s")
    minutes = round(value / MINUTE)
    if minutes < 24 * 60:
        return _pair(minutes, 60, "h", 1, "min")
    hours = round(value / HOUR)
    if hours < 100 * 24:
        return _pair(hours, 24, "d", 1, "h")
    return f"{value / DAY:,.0f} d"


def _pair(value: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    whole, rest = divmod(value, large)
    return f"{whole} {large_unit} {rest // small} {small_unit}" if rest else f"{whole} {large_unit}"


def span(value: int) -> str:
    """A width of time as one would say it: `15 min`, `1 h`, `7 d`."""
    for size, unit in _UNITS:
        if value >= size and value % size == 0:
            return f"{value // size} {unit}"
    return duration(value)


def moment(value: float | None) -> str:
    """A time to the second, `2026-03-01 10:15:00`; seconds are left out where they are zero."""
    if value is None:
        return NOTHING
    try:
        at = datetime.fromtimestamp(value / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return f"{value:.0f} ms"
    return f"{at:%Y-%m-%d %H:%M}" if at.second == 0 else f"{at:%Y-%m-%d %H:%M:%S}"


def step_above(width: float, unit: int = 1) -> int:
    """The first agreeable width of time that is at least `width` and a multiple of `unit`."""
    for step in _STEPS_OF_TIME:
        if step >= width and step % unit == 0:
            return step
    return unit * math.ceil(width / unit)


def linear_ticks(top: float, most: int = 4) -> list[Tick]:
    """Ticks from 0 that reach `top` or beyond, at 1, 2 or 5 times a power of ten."""
    if top <= 0:
        return [Tick(0, "0"), Tick(1, "1")]
    rough = top / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough * 0.999999)
    ticks = math.ceil(top / step - 1e-9)
    return [Tick(step * n, short_count(step * n)) for n in range(ticks + 1)]


def duration_ticks(top: float, most: int = 4) -> list[Tick]:
    """Ticks from 0 that reach `top` milliseconds, at whole units of time."""
    step = step_above(max(top, 1) / most)
    ticks = max(1, math.ceil(max(top, 1) / step))
    return [Tick(step * n, duration(step * n) if n else "0") for n in range(ticks + 1)]


def logarithmic_ticks(low: float, high: float) -> list[Tick]:
    """Ticks for durations over several orders of magnitude, each about ten times the last."""
    seconds = (SECOND, 10 * SECOND, MINUTE, 10 * MINUTE, HOUR, 10 * HOUR)
    rungs = (1, 10, 100, *seconds, 4 * DAY, 40 * DAY, 400 * DAY, 4000 * DAY)
    first = max((n for n, rung in enumerate(rungs) if rung <= max(low, 1)), default=0)
    last = next((n for n, rung in enumerate(rungs) if rung >= high), len(rungs) - 1)
    last = max(last, first + 1)
    return [Tick(rung, duration(rung)) for rung in rungs[first : last + 1]]


def time_ticks(start: int, end: int, most: int = 7) -> list[Tick]:
    """Ticks on whole units of time between two moments, every second one minor.

    A label says the hour, and the day where a day begins; over long ranges it says the day only.
    """
    step = max(step_above((end - start) / most), 1)
    # Weeks and more are counted from a Monday; the epoch was a Thursday.
    offset = 4 * DAY if step % (7 * DAY) == 0 else 0
    at = -(-(start - offset) // step) * step + offset
    ticks: list[Tick] = []
    while at <= end:
        ticks.append(Tick(at, _tick_text(at, step), len(ticks) % 2 == 1))
        at += step
    if not ticks:
        ticks = [Tick(start, moment(start))]
    elif not any(is_day(tick.text) for tick in ticks):
        # Somewhere the axis has to say which day it is.
        ticks[0] = Tick(ticks[0].at, f"{_day(int(ticks[0].at))} {ticks[0].text}")
    return ticks


def is_day(text: str) -> bool:
    """Whether a tick's text names a day rather than a time of day."""
    return ":" not in text


def _day(at: int) -> str:
    day = datetime.fromtimestamp(at / 1000, UTC)
    return f"{day.day} {day:%b}"


def _tick_text(at: int, step: int) -> str:
    day = datetime.fromtimestamp(at / 1000, UTC)
    if step >= 364 * DAY:
        return f"{day:%Y}"
    if step >= 28 * DAY:
        return f"{day.day} {day:%b %Y}"
    if step >= DAY or at % DAY == 0:
        return _day(at)
    return f"{day:%H:%M:%S}" if step < MINUTE else f"{day:%H:%M}"
