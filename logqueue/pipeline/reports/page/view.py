"""What every section of a page is given, and the shape it gives back.

Owns: the section, which topics are drawn, a part per topic. Must not know: any question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from logqueue.pipeline.reports.charts import Chart, Line, Numbering
from logqueue.pipeline.reports.page import numbers
from logqueue.pipeline.reports.page.figures import Figures
from logqueue.pipeline.reports.page.markup import Row, foreign, text
from logqueue.pipeline.reports.page.series import ALL, ChartKind, LinesByTopic
from logqueue.pipeline.reports.page.steps import known as known

GOOD, BAD, NEITHER = "good", "bad", "none"


@dataclass(frozen=True)
class Section:
    """One question of an operator and what the numbers say to it.

    Attributes:
        anchor: Its id.
        menu: What the menu calls it.
        question: As a person would ask.
        answer: One or two sentences, HTML.
        body: Charts and tables, HTML.
    """

    anchor: str
    menu: str
    question: str
    answer: str
    body: str

    def html(self) -> str:
        """The section as shown on the page."""
        return (
            f'<section id="{self.anchor}" aria-labelledby="{self.anchor}-q">'
            f'<h2 id="{self.anchor}-q">{text(self.question)}</h2>'
            f'<p class="answer">{self.answer}</p>{self.body}</section>'
        )


@dataclass(frozen=True)
class PageView:
    """A page in the making.

    Attributes:
        figures: The numbers.
        topics: All topics, the busiest first.
        drawn: Those that get charts of their own.
        dashboard: The address of the server whose dashboard shows jobs; "" without one.
        names: Topics, workers and tags that the page can be filtered by: places by name.
        ids: Numbers the drawings.
    """

    figures: Figures
    topics: Sequence[str]
    drawn: Sequence[str]
    dashboard: str = ""
    names: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ids: Numbering = field(default_factory=Numbering)
    _lines: dict[str, LinesByTopic] = field(default_factory=dict)

    @property
    def is_one(self) -> bool:
        """Whether there is no more than one topic, so that "all" and "each" are the same."""
        return len(self.topics) <= 1

    def chart(self, title: str, unit: str, topic: str = "") -> Chart:
        """A chart on the page's time axis."""
        return Chart(self.ids, self.figures.steps, title, unit, topic)

    def lines(self, kind: ChartKind, topic: str = ALL) -> list[Line]:
        """The lines of a chart of one topic, or of all."""
        if kind.name not in self._lines:
            self._lines[kind.name] = kind.lines(self.figures, self.topics)
        return self._lines[kind.name].get(topic, [])

    def draw(self, kind: ChartKind, topic: str = ALL) -> str:
        """A chart over time of one topic, or of all."""
        steps = self.figures.steps
        note = kind.note
        if steps.is_gathered:
            wide, narrow = numbers.span(steps.width), numbers.span(steps.bucket)
            note += f" Each step of {wide} {kind.gathered} of its buckets of {narrow}."
        chart = self.chart(kind.title, kind.unit.format(step=numbers.span(steps.width)), topic)
        return chart.over_time(
            self.lines(kind, topic),
            kind.axis,
            note=note.strip(),
            empty=kind.empty,
            is_wide=kind.is_wide,
            # The script redraws the charts of all topics, for whatever is chosen.
            name=kind.name if topic == ALL or self.is_one else "",
        )

    def job(self, topic: object, seq: object) -> str:
        """The number of a job, as a link to its page on the dashboard where there is one."""
        if seq is None:
            return ""
        if not self.dashboard:
            return text(seq)
        path = f"/ui/queues/{quote(str(topic), safe='', errors='replace')}/jobs/{seq}"
        return f'<a href="{text(self.dashboard + path)}" rel="noreferrer">{text(seq)}</a>'

    def marked(self, cells: Sequence[str], **of: object) -> Row:
        """A row that belongs to a `topic`, `worker` or `tag`, for the page's filters."""
        return Row(cells, {kind: self.names.get(kind, {}).get(str(of[kind]), -1) for kind in of})

    def grid(self, parts: Sequence[str]) -> str:
        """Charts side by side where there is room."""
        return f'<div class="grid2">{"".join(parts)}</div>'

    def empty(self, why: str) -> str:
        """Said where there is nothing to show."""
        return f'<div class="panel"><p class="empty">{why}</p></div>'

    def cut(self, there_are: int, shown: int, what: str) -> str:
        """Below a table that does not show all: how much of what."""
        return f"{shown} of {numbers.count(there_are)} {what}." if there_are > shown else ""

    def for_all_then_each(
        self, for_all: str, make: Callable[[str], str], note: Callable[[str], str]
    ) -> str:
        """What all topics are together, then a part per drawn topic that can be opened.

        With one topic, or none, both are the same and only one of them is there.
        """
        if self.is_one:
            return "".join(make(topic) for topic in self.drawn) or for_all
        parts = "".join(
            f'<details class="topic"><summary>{foreign(topic, 80)} '
            f"<span>{note(topic)}</span></summary>{make(topic)}</details>"
            for topic in self.drawn
        )
        left = len(self.topics) - len(self.drawn)
        more = (
            f'<p class="note">The {len(self.drawn)} topics with the most jobs have charts of their '
            f"own; {numbers.count(left)} more are in the tables.</p>"
            if left
            else ""
        )
        return f'<div>{for_all}</div><div class="topics">{parts}{more}</div>'


def panel(heading: str, content: str, note: str = "") -> str:
    """A framed part with a heading, HTML all three; `note` explains the heading."""
    more = f" <span>{note}</span>" if note else ""
    return f'<div class="panel"><h3>{heading}{more}</h3>{content}</div>'


def flag(kind: str, words: str) -> str:
    """A verdict in one or two words."""
    return f'<span class="flag {kind}">{words}</span>'


def many(number: float | None, one: str, more: str = "") -> str:
    """A number with its noun."""
    noun = one if number == 1 else more or f"{one}s"
    return f"{numbers.count(number)} {noun}"


def number(row: dict[str, Any], column: str) -> float:
    """A number of a row, 0 where there is none."""
    value = row.get(column)
    return 0.0 if value is None else float(value)
