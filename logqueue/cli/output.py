"""What commands print: tables and lines for people, JSON for programs, talk on stderr.

Owns: the look of everything. Must not know: any command, the server. Data goes to stdout, talk to
stderr. Text that came from elsewhere never reaches a terminal raw.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from logqueue.cli.ending import CommandError, UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PAYLOADS = frozenset({"data", "meta"})
"""Fields that hold what users sent, which is shown as it is."""

WIDTH_PLAIN = 100_000
"""Tables that no terminal shows are as wide as their content."""

GAP = 2
"""Blanks between columns."""

LONG_WIDTH_MIN = 12
"""What is left of a long column on a terminal that has no room for it."""


@dataclass(frozen=True, slots=True)
class Column:
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


def number(name: str, *, is_optional: bool = False) -> Column:
    """A column of numbers."""
    return Column(name, is_number=True, is_optional=is_optional)


def say(text: str) -> None:
    """Talk: to people, on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def line(text: str, *, at_once: bool = False) -> None:
    """A line of data.

    Args:
        at_once: Whether somebody may be waiting for it.
    """
    sys.stdout.write(f"{text}\n")
    if at_once:
        sys.stdout.flush()


def to_json(value: Any) -> str:
    """A value as JSON: shapes as they stood on the wire, without what was left out there."""
    import msgspec

    # Numbers beyond int and float were read as Decimal.
    return msgspec.json.Encoder(decimal_format="number").encode(_said(value)).decode()


def _said(value: Any) -> Any:
    """A shape as an object that lacks what the server did not say."""
    import msgspec

    if isinstance(value, list):
        return [_said(item) for item in value]
    if isinstance(value, dict):
        return {key: _said(item) for key, item in value.items()}
    if not isinstance(value, msgspec.Struct):
        return value
    found = {}
    for name, (wire, is_optional) in _wire_names(type(value)).items():
        field = getattr(value, name)
        if field is not None or not is_optional:
            found[wire] = field if name in PAYLOADS else _said(field)
    return found


@cache
def _wire_names(kind: Any) -> dict[str, tuple[str, bool]]:
    """By a shape's field: its name on the wire, and whether it may be left out there."""
    import msgspec

    fields = msgspec.structs.fields(kind)
    return {
        field.name: (field.encode_name, field.default is None and field.name != "data")
        for field in fields
    }


def json_line(value: Any, *, at_once: bool = False) -> None:
    """A value as one line of JSON, as data."""
    line(to_json(value), at_once=at_once)


def printable(text: str) -> str:
    """Text without anything that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def console() -> Console:
    """Where tables go: a terminal, with colours unless NO_COLOR is set, or plain text."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False, color_system=None if os.environ.get("NO_COLOR") else "auto")
    return Console(
        file=sys.stdout, highlight=False, width=WIDTH_PLAIN, force_terminal=False, no_color=True
    )


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Cells that are None stay empty."""
    out = console()
    if out.is_terminal:
        made, width = made_table(columns, rows, out.width)
        # Where the terminal is too narrow all the same, its own line breaks lose nothing.
        out.width = max(width, out.width)
        out.print(made)
        return
    with out.capture() as captured:
        out.print(made_table(columns, rows, None)[0])
    for text in captured.get().splitlines():
        line(text.rstrip())


def made_table(
    columns: Sequence[Column], rows: Iterable[Sequence[object]], width_max: int | None
) -> tuple[Table, int]:
    """A table that rich can print, and its width.

    Args:
        width_max: What there is room for; long cells are cut to fit. None for any width.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    cells = [[_cell(value) for value in row] for row in rows]
    kept = [i for i, c in enumerate(columns) if not c.is_optional or any(row[i] for row in cells)]
    widths = {
        i: max(cell_len(text) for text in (columns[i].name, *(row[i] for row in cells)))
        for i in kept
    }
    gaps = GAP * (len(kept) - 1)
    cut = [i for i in kept if columns[i].is_long]
    if width_max is not None and cut:
        left = width_max - gaps - sum(widths[i] for i in kept if i not in cut)
        for place, i in enumerate(cut):
            widths[i] = min(widths[i], max(left // (len(cut) - place), LONG_WIDTH_MIN))
            left -= widths[i]
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for i in kept:
        made.add_column(
            columns[i].name,
            justify="right" if columns[i].is_number else "left",
            width=widths[i],
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in cells:
        made.add_row(*(Text(row[i]) for i in kept))
    return made, gaps + sum(widths.values())


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value))


def facts(rows: Iterable[tuple[str, object]]) -> None:
    """Names and values, one to a line; those that are None are left out."""
    shown = [(name, _cell(value)) for name, value in rows if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        line(f"{name:<{width}}  {value}")


def when(ms: int | None) -> str | None:
    """A time in ms since the epoch, in this machine's time zone."""
    if ms is None:
        return None
    try:
        return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def lasting(ms: int | None) -> str | None:
    """A duration, in the unit that fits."""
    if ms is None:
        return None
    seconds = ms / 1000
    if seconds < 1:
        return f"{ms} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def size(count: int) -> str:
    """A number of bytes, in the unit that fits."""
    scaled = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if scaled < 1024:
            return f"{scaled:.0f} {unit}" if unit == "B" else f"{scaled:.1f} {unit}"
        scaled /= 1024
    return f"{scaled:.1f} TiB"


def count_of(number: int, thing: str, several: str = "") -> str:
    """`1 job`, `2 jobs`."""
    return f"{number:,} {thing if number == 1 else several or thing + 's'}"


def require_consent(arguments: argparse.Namespace, question: str) -> None:
    """Ask before something is lost; `--yes` is an answer given in advance.

    Raises:
        UsageError: Nobody can be asked.
        CommandError: The answer is no.
    """
    if arguments.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("this can not be undone, and nobody can be asked here: add --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was done")
