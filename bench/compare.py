"""Two versions of the server in one run, in turns: what became faster, what became slower.

Owns: fetching the older code, the order of the turns, the table of ratios. Both servers run on the
interpreter and the installed packages of this run; what measures is the code of this checkout.
"""

from __future__ import annotations

import io
import statistics
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TextIO

import msgspec
from rich.console import Console
from rich.table import Table

from bench.load import LoadFailed
from bench.paired import Ratio, ratio
from bench.progress import Progress
from bench.report import PLAIN_WIDTH, number
from bench.rows import Row
from bench.session import Session

Measure = Callable[[Session], list[Row]]
MARKS = {"slower": "[bold red]slower[/]", "faster": "[green]faster[/]", "": ""}


@dataclass
class Figure:
    """One figure of both versions: the value of a row, or its processor time per request."""

    name: str
    what: str
    unit: str
    more_is_better: bool
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)

    def ratio(self) -> Ratio | None:
        """How many times as good the new version is."""
        return ratio(self.old, self.new, self.more_is_better)


class FigureReport(msgspec.Struct):
    """A figure for machines."""

    name: str
    what: str
    unit: str
    old: list[float]
    new: list[float]
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str


def code_of(version: str, into: Path) -> Path:
    """The folder with a version's code.

    Args:
        version: A folder that holds a checkout, or a revision of the repository of this one.
        into: Where a revision is unpacked; it must not exist yet.

    Raises:
        LoadFailed: It is neither.
    """
    if (Path(version) / "logqueue").is_dir():
        return Path(version).resolve()
    archive = subprocess.run(
        ["git", "archive", "--format=tar", f"{version}^{{commit}}"],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        problem = archive.stderr.decode(errors="replace").strip()
        raise LoadFailed(f"{version!r} is neither a checkout nor a revision: {problem}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as unpacked:
        unpacked.extractall(into, filter="data")
    return into


def compare(
    measurements: Iterable[tuple[str, Measure]],
    old_code: Path,
    rounds: int,
    session: Session,
    progress: Progress,
    figures: dict[str, Figure],
) -> None:
    """Measure both versions in turns, each going first in every other round.

    Args:
        figures: Filled as pairs are measured, so that a run that is cut short has a report.

    Raises:
        LoadFailed: A version could not be measured, or a reply was wrong.
    """
    new_code = session.code_dir
    for name, measure in measurements:
        with session.keeping_servers():
            for number_of_round in range(rounds):
                progress.begin(f"{name}, pair {number_of_round + 1} of {rounds}")
                pair: list[tuple[Row, bool]] = []
                for is_old in (True, False) if number_of_round % 2 == 0 else (False, True):
                    session.code_dir = old_code if is_old else new_code
                    session.tell(" old" if is_old else " new")
                    pair += [(row, is_old) for row in measure(session)]
                for row, is_old in pair:
                    _record(figures, row, is_old)
                progress.end()
    session.code_dir = new_code


def _record(figures: dict[str, Figure], row: Row, is_old: bool) -> None:
    value = Figure(row.name, row.what, row.unit, row.more_is_better)
    cpu = Figure(f"{row.name}:cpu", "  server CPU per request", "µs", more_is_better=False)
    for figure, values in ((value, row.values), (cpu, row.cpu_us)):
        if values:
            kept = figures.setdefault(figure.name, figure)
            (kept.old if is_old else kept.new).append(statistics.median(values))


def slower(figures: list[Figure], tolerance: float) -> list[str]:
    """The names of all figures that clearly got worse."""
    return [
        figure.name
        for figure in figures
        if (found := figure.ratio()) and found.verdict(tolerance) == "slower"
    ]


def for_machine(figures: list[Figure], tolerance: float, about: dict[str, object]) -> bytes:
    """The comparison as JSON."""
    reports = []
    for figure in figures:
        found = figure.ratio()
        reports.append(
            FigureReport(
                figure.name,
                figure.what.strip(),
                figure.unit,
                figure.old,
                figure.new,
                found.middle if found else None,
                found.low if found else None,
                found.high if found and found.high != inf else None,
                found.verdict(tolerance) if found else "",
            )
        )
    return msgspec.json.format(msgspec.json.encode({**about, "figures": reports}), indent=2)


def _interval(found: Ratio | None) -> str:
    if found is None:
        return "not positive: no ratio"
    return "too few pairs" if found.high == inf else f"{found.low:.2f} .. {found.high:.2f}"


def render(figures: list[Figure], tolerance: float, about: dict[str, object], out: TextIO) -> None:
    """The comparison as a table."""
    console = Console(file=out, highlight=False)
    if not console.is_terminal:
        console = Console(file=out, highlight=False, width=PLAIN_WIDTH)
    said = ", ".join(f"{name} {value}" for name, value in about.items())
    table = Table(title=f"New against old ({said})")
    table.add_column("what", overflow="fold")
    for column in ("old", "new", "times as good", "95 % interval"):
        table.add_column(column, justify="right")
    table.add_column("")
    for figure in figures:
        found = figure.ratio()
        table.add_row(
            figure.what,
            f"{number(statistics.median(figure.old))} {figure.unit}",
            f"{number(statistics.median(figure.new))} {figure.unit}",
            f"{found.middle:.2f}" if found else "",
            _interval(found),
            MARKS[found.verdict(tolerance)] if found else "",
        )
    console.print(table)
    console.print(
        f"A figure is marked where its whole interval is more than {tolerance:.0%} from 1."
    )
