"""The table "How fast" for people, and the same as JSON for machines.

Owns: the two forms. Must not know: how anything was measured.
"""

from __future__ import annotations

import statistics
from typing import TextIO

import msgspec
from rich.console import Console
from rich.table import Table

from bench.rows import Row, RowReport, Scale, Target, for_machines

PLAIN_WIDTH = 150
WORDS = {True: "[green]yes[/]", False: "[bold red]no[/]", None: ""}


class Report(msgspec.Struct):
    """All of a run."""

    scale: str
    machine: dict[str, object]
    rows: list[RowReport]


def for_machine(rows: list[Row], scale: Scale, machine: dict[str, object]) -> bytes:
    """The run as JSON."""
    report = Report(scale.name, machine, [for_machines(row, scale) for row in rows])
    return msgspec.json.format(msgspec.json.encode(report), indent=2)


def render(rows: list[Row], scale: Scale, machine: dict[str, object], out: TextIO) -> None:
    """The run as a table."""
    console = Console(file=out, highlight=False)
    if not console.is_terminal:
        console = Console(file=out, highlight=False, width=PLAIN_WIDTH)
    about = ", ".join(f"{name} {value}" for name, value in machine.items())
    table = Table(title=f"How fast ({scale.name}; {about})")
    table.add_column("what", overflow="fold")
    for column in ("target", "median", "min .. max"):
        table.add_column(column, justify="right")
    table.add_column("reached")
    table.add_column("server CPU/request", justify="right")
    table.add_column("while measuring", overflow="fold")
    for row in rows:
        if row.failure:
            table.add_row(
                row.what, _target(row.target, row.unit), "failed", "", WORDS[False], "", row.failure
            )
            continue
        spread = f"{number(min(row.values))} .. {number(max(row.values))}"
        table.add_row(
            row.what,
            _target(row.target, row.unit),
            f"{number(row.median)} {row.unit}",
            spread,
            WORDS[row.reached(scale)],
            f"{number(statistics.median(row.cpu_us))} µs" if row.cpu_us else "",
            row.notes[len(row.notes) // 2] if row.notes else "",
        )
    console.print(table)
    if any(row.target for row in rows) and rows and rows[0].reached(scale) is None:
        console.print("A quick run has other counts than the targets speak of: nothing is judged.")


def _target(target: Target | None, unit: str) -> str:
    if target is None:
        return ""
    sign = "≤" if target.at_most else "≥"
    return f"{sign} {target.text or f'{number(target.bound)} {unit}'}"


def number(value: float) -> str:
    """A figure with the digits that matter."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
