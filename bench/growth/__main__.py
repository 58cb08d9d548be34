"""The command line of the measurements of growth.

Exit status 0 when every curve could be measured, however steep it is; 1 when one failed.
"""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.growth.curves import Growth, Measure, backlog, connections, readers, sizes_to, topics
from bench.growth.fit import fit
from bench.load import LoadFailed
from bench.machine import describe
from bench.page import PAGE, add_output_options, write_between
from bench.plot import Curve, Panel, grid, short
from bench.progress import Progress
from bench.report import PLAIN_WIDTH
from bench.rows import PAIRED, QUICK
from bench.session import Session
from logqueue.demo.server import ServerFailed

CURVES: dict[str, tuple[Measure, int, int]] = {
    "backlog": (backlog, 1000, 10_000_000),
    "topics": (topics, 1, 100_000),
    "connections": (connections, 1, 2000),
    "readers": (readers, 1, 1000),
}
"""By name: how it is measured, its smallest size, its largest unless another one is given."""

QUICK_MAX = {"backlog": 2000, "topics": 20, "connections": 10, "readers": 10}
PICTURE = Path("docs/performance-growth.svg")


def main() -> int:
    """Measure all curves, then report."""
    options = _read_options()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda caught, _frame: sys.exit(128 + caught))
    scale = QUICK if options.quick else replace(PAIRED, seconds=options.seconds)
    growths: list[Growth] = []
    failed = False
    with Progress(sys.stderr, len(options.only)) as progress:
        session = Session(scale, options.dir, progress)
        try:
            for name in options.only:
                measure, smallest, _ = CURVES[name]
                largest = QUICK_MAX[name] if options.quick else getattr(options, f"{name}_max")
                progress.begin(name)
                try:
                    sizes = sizes_to(largest, smallest)
                    growths.append(measure(session, sizes, options.memory_gb))
                except (LoadFailed, ServerFailed, OSError) as failure:
                    progress.tell(f"  {name} failed: {failure}")
                    failed = True
                progress.end()
        finally:
            session.close()
    about = describe()
    if options.json:
        sys.stdout.write(for_machine(growths, about).decode() + "\n")
    else:
        render(growths, about)
    if options.write:
        write_between(PAGE, "growth", markdown(growths, about))
        PICTURE.write_text(picture(growths), encoding="utf-8")
    return 1 if failed else 0


def lines_of(growths: list[Growth]) -> list[tuple[str, str, str, str, str, str]]:
    """Of each cost: over what, which, first and last point, exponent, expected exponent."""
    found = []
    for growth in growths:
        for line in growth.lines:
            (first, low), (last, high) = line.points[0], line.points[-1]
            law = fit(line.points)
            found.append(
                (
                    f"{growth.title}, {short(first)} to {short(last)}",
                    f"{line.name}, {line.unit}",
                    short(low),
                    short(high),
                    f"{law.exponent:.2f} (± {law.spread:.0%})" if law else "–",
                    f"≤ {line.expected:g}",
                )
            )
    return found


HEADS = ("over", "cost", "at the smallest", "at the largest", "exponent", "by design")


def render(growths: list[Growth], about: dict[str, object]) -> None:
    """The curves as a table."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH)
    table = Table(title=f"Growth ({', '.join(f'{name} {value}' for name, value in about.items())})")
    for place, head in enumerate(HEADS):
        table.add_column(head, justify="left" if place < 2 else "right", overflow="fold")
    for line in lines_of(growths):
        table.add_row(*line)
    console.print(table)
    for growth in growths:
        if growth.stopped:
            console.print(f"{growth.title}: {growth.stopped}")


def markdown(growths: list[Growth], about: dict[str, object]) -> str:
    """The curves as a part of a page."""
    said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in about.items())
    lines = [
        f"Measured on: {said}.",
        "",
        f"| {' | '.join(HEADS)} |",
        "|---|---|---:|---:|---:|---:|",
    ]
    lines += [f"| {' | '.join(line)} |" for line in lines_of(growths)]
    notes = [f"- {growth.title}: {growth.stopped}." for growth in growths if growth.stopped]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def picture(growths: list[Growth]) -> str:
    """The curves as SVG: one plot for all costs of one unit over one size."""
    panels = []
    for growth in growths:
        for unit in dict.fromkeys(line.unit for line in growth.lines):
            curves = [
                Curve(f"{line.name}{_exponent(line.points)}", line.points)
                for line in growth.lines
                if line.unit == unit
            ]
            up = f"server CPU per request, {unit}" if unit == "µs" else unit
            panels.append(Panel(growth.title, growth.across, up, curves))
    return grid("Cost as work grows", panels)


def _exponent(points: list[tuple[float, float]]) -> str:
    law = fit(points)
    return f" ∝ size^{law.exponent:.2f}" if law else ""


def for_machine(growths: list[Growth], about: dict[str, object]) -> bytes:
    """The curves as JSON."""
    lines = [
        {
            "over": growth.across,
            "cost": line.name,
            "unit": line.unit,
            "points": line.points,
            "fit": fit(line.points),
            "expected": line.expected,
            "stopped": growth.stopped,
        }
        for growth in growths
        for line in growth.lines
    ]
    return msgspec.json.format(msgspec.json.encode({**about, "lines": lines}), indent=2)


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.growth",
        description="Measures what a request costs the server as work grows.",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(CURVES),
        default=list(CURVES),
        metavar="CURVE",
        help=f"only these curves: {', '.join(CURVES)}",
    )
    for name, (_, _, largest) in CURVES.items():
        parser.add_argument(
            f"--{name}-max",
            type=int,
            default=largest,
            metavar="N",
            help=f"the largest size (default: {largest:,})",
        )
    parser.add_argument(
        "--memory-gb",
        type=float,
        default=4.0,
        metavar="GB",
        help="a curve ends before the server would take more (default: 4)",
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="length of a measurement (default: 1)"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs")
    add_output_options(parser, "table and plots")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
