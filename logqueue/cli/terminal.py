"""What a terminal shows: columns as wide as their text, lines redrawn in place.

Owns: widths of text, tables as lines, and the few control sequences we write. Must not know: what
is shown. Needs nothing but the standard library, so that a plain client has it all.
"""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

GAP = 2
"""Blanks between columns."""

LONG_WIDTH_MIN = 12
"""What is left of a long column on a terminal that has no room for it."""

BAR_WIDTH = 30

_BOLD, _NORMAL, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[1m", "\x1b[0m", "\r\x1b[K", "\x1b[J"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a table.

    Attributes:
        is_number: Aligned to the right.
        is_long: Cut where a terminal is too narrow; the others never are.
        is_optional: Left out when no row has anything in it.
    """

    name: str
    is_number: bool = False
    is_long: bool = False
    is_optional: bool = False


def columns_of(out: TextIO) -> int | None:
    """How wide a terminal is; None for a file or a pipe."""
    return shutil.get_terminal_size().columns if out.isatty() else None


def has_colours(out: TextIO) -> bool:
    """Whether control sequences for colours and bold text are welcome."""
    return out.isatty() and not os.environ.get("NO_COLOR")


def width_of(text: str) -> int:
    """How many cells text takes: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fitted(text: str, width: int, *, to_the_right: bool = False) -> str:
    """Text cut or padded to a width in cells."""
    taken = width_of(text)
    if taken > width:
        kept, taken = [], 1
        for character in text:
            if taken + _cells(character) > width:
                break
            kept.append(character)
            taken += _cells(character)
        text = "".join(kept) + "…"
    blanks = " " * (width - taken)
    return blanks + text if to_the_right else text + blanks


def table_lines(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], width_max: int | None
) -> list[str]:
    """A table as lines, names of the columns first.

    Args:
        width_max: What there is room for; long cells are cut to fit. None for any width.
    """
    kept = [i for i, c in enumerate(columns) if not c.is_optional or any(row[i] for row in rows)]
    widths = {
        i: max(width_of(text) for text in (columns[i].name, *(row[i] for row in rows)))
        for i in kept
    }
    cut = [i for i in kept if columns[i].is_long]
    if width_max is not None and cut:
        left = width_max - GAP * (len(kept) - 1) - sum(widths[i] for i in kept if i not in cut)
        for place, i in enumerate(cut):
            widths[i] = min(widths[i], max(left // (len(cut) - place), LONG_WIDTH_MIN))
            left -= widths[i]
    names = [column.name for column in columns]
    return [
        (" " * GAP)
        .join(fitted(row[i], widths[i], to_the_right=columns[i].is_number) for i in kept)
        .rstrip()
        for row in (names, *rows)
    ]


def bold(text: str, out: TextIO) -> str:
    """Bold text, where the terminal supports it."""
    return f"{_BOLD}{text}{_NORMAL}" if has_colours(out) else text


class Redrawn:
    """Lines on a terminal that take the place of those before."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines = 0

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines; what does not fit on the terminal is left out."""
        columns, rows = shutil.get_terminal_size()
        shown = [fitted(line, columns).rstrip() for line in lines[: max(rows - 1, 1)]]
        if shown and len(shown) > 1:
            shown[1] = bold(shown[1], self._out)
        up = f"\x1b[{self._lines}A" if self._lines else ""
        self._out.write(f"\r{up}{_CLEAR_BELOW}" + "".join(f"{line}\n" for line in shown))
        self._out.flush()
        self._lines = len(shown)


class Bar:
    """One line on a terminal that says how far something is; gone when it is closed."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, before: str, share: float | None, behind: str = "") -> None:
        """Redraw it.

        Args:
            share: The completed share, from 0 to 1; None when it is unknown.
        """
        bar = ""
        if share is not None:
            full = round(min(max(share, 0.0), 1.0) * BAR_WIDTH)
            bar = f" [{'#' * full}{'.' * (BAR_WIDTH - full)}] {share:4.0%} "
        line = fitted(f"{before}{bar or ' '}{behind}", shutil.get_terminal_size().columns - 1)
        self._out.write(_CLEAR_LINE + line.rstrip())
        self._out.flush()

    def close(self) -> None:
        """Remove the line."""
        self._out.write(_CLEAR_LINE)
        self._out.flush()
