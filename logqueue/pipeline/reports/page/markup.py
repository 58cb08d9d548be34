"""Text escaped for HTML: names of topics and errors may hold anything.

Owns: escaping, cutting, isolating. Must not know: what a text says.

Everything that comes out of a log is hostile until it went through here. Nothing of it is ever put
into a script: what the page's script shows it takes from the page's own tables.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from logqueue.pipeline.reports.page import numbers

LONGEST = 300
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff]"
)
"""What XML forbids, and the marks that would turn the direction of what follows."""


def text(value: object) -> str:
    """Any text as HTML that is well-formed XML too, in content and in attributes alike."""
    return html.escape(_UNPRINTABLE.sub("\ufffd", str(value)), quote=True)


def foreign(value: object, longest: int = LONGEST) -> str:
    """A text from the log: isolated in its direction, cut when very long, whole as a tooltip."""
    whole = "" if value is None else str(value)
    if not whole:
        return '<span class="none">none</span>'
    if len(whole) <= longest:
        return f"<bdi>{text(whole)}</bdi>"
    return f'<bdi title="{text(whole[:4000])}">{text(whole[:longest])}…</bdi>'


def plain(value: object, longest: int = 120) -> str:
    """A text from the log where no element is allowed, as in titles."""
    whole = str(value)
    return text(whole if len(whole) <= longest else whole[:longest] + "…")


def clean(value: object, longest: int = 200) -> str:
    """A text from the log as data of the page's script, which shows it as text only."""
    whole = _UNPRINTABLE.sub("\ufffd", str(value))
    return whole if len(whole) <= longest else whole[:longest] + "…"


def when(milliseconds: float | None) -> str:
    """A time in UTC, which the page's script shows in the time zone that is chosen."""
    if milliseconds is None:
        return numbers.NOTHING
    shown = numbers.moment(milliseconds)
    return f'<time data-ms="{milliseconds:.0f}">{shown}</time>'


UTC_MARK = '<span class="zone">UTC</span>'
"""Where the page names its time zone."""


class Row(NamedTuple):
    """Cells of a table, and whose they are.

    Attributes:
        cells: HTML.
        of: `topic`, `worker` and `tag` as numbers; -1 for one that cannot be chosen.
    """

    cells: Sequence[str]
    of: Mapping[str, int]


def table(
    columns: Iterable[str], rows: Iterable[Sequence[str] | Row], kind: str = "", caption: str = ""
) -> str:
    """A table of ready cells. A column whose name begins with # holds numbers."""
    names = list(columns)
    classes = [' class="n"' if name.startswith("#") else "" for name in names]
    head = "".join(
        f'<th scope="col"{mark}>{_heading(name.removeprefix("#"))}</th>'
        for name, mark in zip(names, classes, strict=True)
    )
    body = "".join(_row(row, classes) for row in rows)
    note = f"<caption>{caption}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="table">'
        f'<table class="{kind}">{note}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def _heading(name: str) -> str:
    before, mark, after = name.partition("UTC")
    return text(before) + UTC_MARK + text(after) if mark else text(name)


def _row(row: Sequence[str] | Row, classes: Sequence[str]) -> str:
    cells, of = row if isinstance(row, Row) else (row, {})
    marks = "".join(f' data-{kind}="{place}"' for kind, place in of.items())
    made = "".join(f"<td{mark}>{cell}</td>" for cell, mark in zip(cells, classes, strict=True))
    return f"<tr{marks}>{made}</tr>"
