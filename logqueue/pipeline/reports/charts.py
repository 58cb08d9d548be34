"""Charts as inline SVG with their labels, legend and table of numbers, made without a browser.

Owns: how a series of numbers is drawn. Must not know: queues, Spark, which question is answered.

The drawing stretches to the width there is; labels are HTML beside it, so that text has its size on
a phone too. Strokes do not scale, and a dot is a line without length and with a round end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from logqueue.pipeline.reports.page import numbers
from logqueue.pipeline.reports.page.markup import plain, table, text
from logqueue.pipeline.reports.page.numbers import Tick
from logqueue.pipeline.reports.page.steps import Steps, Values

WIDTH, HEIGHT = 1000, 100
HEAT_LEVELS = 6


@dataclass(frozen=True)
class Line:
    """One series of a chart over time.

    Attributes:
        name: In the legend and in the table.
        values: One per step; None where there is nothing to say.
        look: The class that colours it (`a` to `f`).
        form: `line` between the middles of steps, `stairs` along each step, `area` stairs filled
            down to zero, `stack` an area stacked on those before it.
    """

    name: str
    values: Values
    look: str
    form: str = "line"


@dataclass(frozen=True)
class Axis:
    """The upright axis: how its numbers are written and where ticks are.

    Attributes:
        show: Writes one value.
        ticks: From the highest value to ticks from zero.
        may_be_logarithmic: Use a logarithmic axis where values differ a hundredfold or more.
        zero_is_nothing: Nothing but zeros is nothing to draw.
        is_duration: Values are ms rather than counts.
    """

    show: Callable[[float | None], str]
    ticks: Callable[[float], list[Tick]]
    may_be_logarithmic: bool = False
    zero_is_nothing: bool = True
    is_duration: bool = False


COUNTS = Axis(numbers.count, numbers.linear_ticks)
DURATIONS = Axis(
    numbers.duration,
    numbers.duration_ticks,
    may_be_logarithmic=True,
    zero_is_nothing=False,
    is_duration=True,
)
AGES = Axis(numbers.duration, numbers.duration_ticks, is_duration=True)


@dataclass
class Numbering:
    """Ids of a page's drawings, each used once."""

    last: int = field(default=0)

    def next(self) -> str:
        """A unique id."""
        self.last += 1
        return f"c{self.last}"


@dataclass(frozen=True)
class Chart:
    """What every chart says about itself.

    Attributes:
        ids: Where its id comes from.
        steps: The page's time axis.
        title: What is shown, in plain words of ours.
        unit: In which unit, per which step.
        topic: Whose numbers; "" for those of all topics.
    """

    ids: Numbering
    steps: Steps
    title: str
    unit: str
    topic: str = ""

    def over_time(
        self,
        lines: Sequence[Line],
        axis: Axis,
        *,
        note: str = "",
        empty: str = "",
        is_wide: bool = False,
        name: str = "",
    ) -> str:
        """Lines, stairs, areas and stacks over time.

        Args:
            lines: What to draw, the first at the back.
            axis: The upright axis.
            note: A sentence below the chart.
            empty: Said instead of the chart when no line has a value but zero.
            is_wide: Take the whole width where charts are side by side.
            name: Of the chart in the page's data; "" when the script leaves it as it is.
        """
        drawn = [_drawn(lines, n) for n in range(len(lines))]
        seen = [v for values in drawn for v in values if v is not None]
        if not seen or (axis.zero_is_nothing and not any(seen)):
            return self._empty(empty, name)
        low = min((v for v in seen if v > 0), default=0.0)
        is_log = axis.may_be_logarithmic and max(seen) >= 100 * max(low, 1)
        ticks = (
            numbers.logarithmic_ticks(low, max(seen)) if is_log else axis.ticks(max(seen) or 1.0)
        )
        scale = _Scale(ticks[0].at, ticks[-1].at, is_log)
        shapes = "".join(
            _shape(line, values, _floor_of(lines, n), scale)
            for n, (line, values) in enumerate(zip(lines, drawn, strict=True))
        )
        unit = self.unit + (", logarithmic" if is_log else "")
        spoken = "; ".join(
            f"{line.name}: highest {axis.show(max(known))}, last {axis.show(known[-1])}"
            for line in lines
            if (known := [v for v in line.values if v is not None])
        )
        return self._figure(
            "".join(f'<path class="grid" d="M0 {_at(scale(t.at))}H1000"/>' for t in ticks) + shapes,
            [(tick.text, scale(tick.at), tick.is_minor) for tick in ticks],
            unit=unit,
            spoken=spoken,
            legend=_legend(lines),
            note=note,
            kind="time wide" if is_wide else "time",
            name=name,
            behind=table(
                [
                    f"from (UTC), {numbers.span(self.steps.width)} each",
                    *(f"#{one.name}" for one in lines),
                ],
                (
                    [name, *(axis.show(line.values[n]) for line in lines)]
                    for n, name in enumerate(self.steps.names())
                ),
                "numbers",
            ),
        )

    def heat(
        self,
        rows: Sequence[tuple[str, Values]],
        *,
        show: Callable[[float | None], str] = numbers.count,
        note: str = "",
        empty: str = "",
        name: str = "",
    ) -> str:
        """A strip per row, darker where a value is higher, against 1 or the highest there is.

        Args:
            rows: A name and one value per step; None where nothing was going on.
            show: Writes one value.
            note: A sentence below the chart.
            empty: Said instead when there are no rows.
            name: Of the chart in the page's data; "" when the script leaves it as it is.
        """
        if not rows:
            return self._empty(empty, name)
        tall, across = 10.0, WIDTH / self.steps.count
        top = max(1.0, max((v for _, values in rows for v in values if v is not None), default=1.0))
        paths: dict[int, list[str]] = {}
        for row, (_, values) in enumerate(rows):
            for first, last, level in _runs([_level(value, top) for value in values]):
                paths.setdefault(level, []).append(
                    f"M{_at(first * across)} {_at(row * tall + 0.6)}"
                    f"H{_at((last + 1) * across)}v{_at(tall - 1.2)}H{_at(first * across)}z"
                )
        shapes = "".join(
            f'<path class="h{level}" d="{"".join(parts)}"/>'
            for level, parts in sorted(paths.items())
        )
        middle = 100 / len(rows)
        keys = "".join(
            f'<li><i class="swatch h{n}"></i>{f"to {show(top * n / 5)}" if n else "none"}</li>'
            for n in range(HEAT_LEVELS)
        )
        busiest = max(rows, key=lambda row: sum(v or 0 for v in row[1]))
        return self._figure(
            shapes,
            [(name, middle * (n + 0.5), False) for n, (name, _) in enumerate(rows)],
            unit=self.unit,
            spoken=f"{len(rows)} rows; the busiest is {busiest[0]}",
            legend=f'<ul class="legend">{keys}</ul>',
            note=note,
            kind="heat",
            name=name,
            tall=tall * len(rows),
            behind=table(
                ["from (UTC)", *(f"#{name}" for name, _ in rows)],
                (
                    [when, *(show(values[n]) for _, values in rows)]
                    for n, when in enumerate(self.steps.names())
                ),
                "numbers",
            ),
        )

    def _empty(self, why: str, name: str = "") -> str:
        mark = f' data-chart="{name}"' if name else ""
        return (
            f'<figure class="chart"{mark}><figcaption><b>{self.title}</b></figcaption>'
            f'<p class="empty">{why}</p></figure>'
        )

    def _figure(
        self,
        shapes: str,
        labels: list[tuple[str, float, bool]],
        *,
        unit: str,
        spoken: str,
        legend: str,
        note: str,
        behind: str,
        kind: str = "time",
        tall: float = HEIGHT,
        name: str = "",
    ) -> str:
        number = self.ids.next()
        steps = self.steps
        left = "".join(
            f'<span style="top:{_at(at)}%" title="{plain(words)}">'
            f"<bdi>{plain(words, 60)}</bdi></span>"
            for words, at, _ in labels
        )
        under, marks = _below(steps)
        title = (f"{plain(self.topic)}: " if self.topic else "") + text(self.title)
        height = f' style="height:{18 * len(labels)}px"' if kind == "heat" else ""
        mark = f' data-chart="{name}"' if name else ""
        size = f'viewBox="0 0 {WIDTH} {_at(tall)}" preserveAspectRatio="none"'
        upright = "".join(f'<path class="grid" d="M{_at(x)} 0V{_at(tall)}"/>' for x in marks)
        return (
            f'<figure class="chart {kind}" data-steps="{steps.count}"{mark}>'
            f"<figcaption><b>{self.title}</b> <span>{text(unit)}</span></figcaption>{legend}"
            f'<div class="plot"{height}><div class="left" aria-hidden="true">{left}</div>'
            f'<svg {size} role="img" '
            f'aria-labelledby="{number}t {number}d"><title id="{number}t">{title}</title>'
            f'<desc id="{number}d">{plain(spoken, 2000)}</desc>{upright}{shapes}</svg>'
            f'<div class="below" aria-hidden="true">{under}</div></div>'
            + (f'<p class="note">{note}</p>' if note else "")
            + f"<details><summary>Numbers</summary>{behind}</details></figure>"
        )


class _Scale:
    """From values to a height, 0 at the top."""

    def __init__(self, low: float, high: float, is_log: bool) -> None:
        self._is_log = is_log
        self._low = math.log(low) if is_log else low
        self._high = math.log(high) if is_log else high
        self._least = low

    def __call__(self, value: float) -> float:
        if self._is_log:
            value = math.log(max(value, self._least))
        part = (value - self._low) / (self._high - self._low)
        return HEIGHT * (1 - min(max(part, 0.0), 1.0))


def _drawn(lines: Sequence[Line], place: int) -> Values:
    """The values of a line as drawn: a stack starts at those before it."""
    line = lines[place]
    if line.form != "stack":
        return line.values
    return [
        sum(other.values[n] or 0.0 for other in lines[: place + 1] if other.form == "stack")
        for n in range(len(line.values))
    ]


def _floor_of(lines: Sequence[Line], place: int) -> Values | None:
    """The lower edge of an area; None when that is zero."""
    if lines[place].form != "stack":
        return None
    before = [n for n in range(place) if lines[n].form == "stack"]
    return _drawn(lines, before[-1]) if before else None


def _shape(line: Line, values: Values, floor: Values | None, scale: _Scale) -> str:
    across = WIDTH / len(values)
    paths, dots = [], []
    for first, last in _known(values):
        if line.form != "line":
            paths.append(_stairs(values, first, last, across, scale))
            continue
        points = [
            f"{_at((n + 0.5) * across)} {_at(scale(values[n] or 0.0))}"
            for n in range(first, last + 1)
        ]
        if len(points) == 1:
            dots.append(f"M{points[0]}h0")
        else:
            paths.append("M" + "L".join(points))
    form = " stack" if line.form == "stack" else ""
    stroke = f'<path class="stroke {line.look}{form}" d="{"".join(paths)}"/>' if paths else ""
    if dots:
        stroke += f'<path class="stroke dot {line.look}" d="{"".join(dots)}"/>'
    if line.form not in ("area", "stack"):
        return stroke
    fills = []
    for (first, last), path in zip(_known(values), paths, strict=True):
        ground = f"V{_at(scale(0.0))}H{_at(first * across)}z"
        if floor is not None:
            ground = "".join(
                f"V{_at(scale(floor[n] or 0.0))}H{_at(n * across)}"
                for n in range(last, first - 1, -1)
            )
            ground += "z"
        fills.append(path + ground)
    return f'<path class="fill {line.look}{form}" d="{"".join(fills)}"/>{stroke}'


def _stairs(values: Values, first: int, last: int, across: float, scale: _Scale) -> str:
    """Along each step, and up or down to the next."""
    parts = [f"M{_at(first * across)} {_at(scale(values[first] or 0.0))}"]
    for n in range(first, last + 1):
        if n > first:
            parts.append(f"V{_at(scale(values[n] or 0.0))}")
        if n == last or values[n] != values[n + 1]:
            parts.append(f"H{_at((n + 1) * across)}")
    return "".join(parts)


def _known(values: Values) -> list[tuple[int, int]]:
    """Stretches that have values, first and last place of each."""
    return [(a, b) for a, b, _ in _runs([None if v is None else 0 for v in values])]


def _runs(levels: Sequence[int | None]) -> Iterable[tuple[int, int, int]]:
    """Neighbours of the same level: first place, last place, level; None is left out."""
    first = 0
    for n in range(1, len(levels) + 1):
        if n == len(levels) or levels[n] != levels[first]:
            level = levels[first]
            if level is not None:
                yield first, n - 1, level
            first = n


def _level(value: float | None, top: float) -> int | None:
    """How dark: 0 for nothing, then five equal parts up to the top."""
    if value is None:
        return None
    return 0 if value <= 0 else min(HEAT_LEVELS - 1, 1 + int(value / top * 5 - 1e-9))


def _below(steps: Steps) -> tuple[str, list[float]]:
    """Labels of the time axis, and the places of their lines."""
    labels, marks = [], []
    for tick in numbers.time_ticks(steps.start, steps.end):
        part = (tick.at - steps.start) / (steps.end - steps.start)
        marks.append(part * WIDTH)
        kind = " minor" if tick.is_minor else ""
        kind += " day" if numbers.is_day(tick.text) else ""
        kind += " first" if part < 0.04 else " last" if part > 0.96 else ""
        labels.append(
            f'<span class="{kind.strip()}" style="left:{_at(part * 100)}%">{tick.text}</span>'
        )
    return "".join(labels), marks


def _legend(lines: Sequence[Line]) -> str:
    keys = "".join(
        f'<li><i class="key {line.look} {line.form}"></i>{text(line.name)}</li>' for line in lines
    )
    return f'<ul class="legend">{keys}</ul>'


def _at(value: float) -> str:
    """A coordinate, as short as it can be."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"


def shares(parts: Sequence[tuple[str, str, float]]) -> str:
    """One bar cut into shares: name, look and size of each part; parts of zero are left out."""
    whole = sum(size for _, _, size in parts)
    present = [part for part in parts if part[2] > 0]
    if not present:
        return ""
    pieces = "".join(
        f'<i class="{look}" style="flex-grow:{size:.0f}" '
        f'title="{text(name)}: {numbers.count(size)}"></i>'
        for name, look, size in present
    )
    keys = "".join(
        f'<li><i class="swatch {look}"></i>{text(name)} <b>{numbers.count(size)}</b> '
        f"<span>{numbers.share(size / whole)}</span></li>"
        for name, look, size in present
    )
    spoken = ", ".join(f"{name} {numbers.share(size / whole)}" for name, _, size in present)
    return (
        f'<div class="shares" role="img" aria-label="{text(spoken)}">{pieces}</div>'
        f'<ul class="legend counts">{keys}</ul>'
    )


def bar(value: float, highest: float, words: str, look: str = "a") -> str:
    """A number with a bar as long as its share of the highest, for a table's cell."""
    part = max(100 * value / highest if highest > 0 else 0.0, 0.5 if value else 0.0)
    return (
        f'<span class="bar"><i class="{look}" style="width:{_at(part)}%"></i>'
        f"<span>{words}</span></span>"
    )


def spark(values: Values, spoken: str) -> str:
    """A line as small as a word; "" when there is nothing but zeros."""
    known = [v for v in values if v is not None]
    top = max(known, default=0.0)
    if top <= 0:
        return ""
    scale = _Scale(0.0, top, is_log=False)
    shape = _shape(Line("", values, "a", "area"), values, None, scale)
    return (
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'preserveAspectRatio="none" role="img" aria-label="{plain(spoken)}">{shape}</svg>'
    )
