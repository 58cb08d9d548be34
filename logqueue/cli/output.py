"""What commands print: tables and lines for people, JSON for programs, talk on stderr.

Owns: the format of all output. Must not know: any command, the server. Data goes to stdout,
messages to stderr. Text that came from elsewhere never reaches a terminal raw.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from logqueue.cli.exits import CommandError, UsageError
from logqueue.cli.terminal import TableColumn as TableColumn
from logqueue.cli.terminal import bold, columns_of, table_lines

PAYLOADS = frozenset({"data", "meta"})
"""Fields that hold what users sent, which is shown as it is."""


def number(name: str, *, is_optional: bool = False) -> TableColumn:
    """A column of numbers."""
    return TableColumn(name, is_number=True, is_optional=is_optional)


def say(text: str) -> None:
    """Talk: to people, on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def line(text: str, *, at_once: bool = False) -> None:
    """A line of data.

    Args:
        at_once: Whether a reader may be waiting for it.
    """
    sys.stdout.write(f"{text}\n")
    if at_once:
        sys.stdout.flush()


def to_json(value: Any) -> str:
    """A value as JSON: shapes as on the wire, without fields that were absent there."""
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
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def table(columns: Sequence[TableColumn], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Cells that are None stay empty."""
    names, *lines = made_table(columns, rows)
    line(bold(names, sys.stdout))
    for text in lines:
        line(text)


def made_table(columns: Sequence[TableColumn], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table as lines, cut to the terminal where there is one."""
    cells = [[_cell(value) for value in row] for row in rows]
    return table_lines(columns, cells, columns_of(sys.stdout))


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
        UsageError: Stdin or stderr is not a terminal.
        CommandError: The answer is no.
    """
    if arguments.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("irreversible, and stdin is not a terminal: pass --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was done")
