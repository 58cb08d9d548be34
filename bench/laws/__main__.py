"""The command line of the growth laws: a table of cost per row and memory, by size.

    python -m bench.laws --jobs 100000 300000 1000000 --engine duckdb --only lifecycle audit

A law holds when cost per row and the driver's memory stay as they are while logs grow. Exit status
0 when everything could be measured, 1 when something failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from bench.laws.planning import planned_s
from bench.laws.runs import ENGINES, JOBS, Places, Run, run
from bench.laws.shapes import SHAPES, written
from bench.load import LoadFailed
from bench.machine import describe
from bench.report import PLAIN_WIDTH

ROWS_PER_JOB = 4.4
"""Records and events."""

PLANNED_TOPICS = (200, 400, 800, 1600)


def main() -> int:
    """Measure, then print."""
    options = _options()
    options.dir.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    failed = False
    for shape in options.shape:
        for engine in options.engine:
            for job in _in_order(options.only):
                try:
                    lines += _law(options, shape, engine, job)
                except LoadFailed as failure:
                    print(f"{shape}, {failure}", file=sys.stderr)
                    failed = True
    if "planning" in options.only:
        lines += _planning()
    if options.json:
        found = {**describe(), "lines": lines}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    else:
        _render(lines)
    return 1 if failed else 0


def _in_order(asked: list[str]) -> list[str]:
    """Reports read what lifecycle has written."""
    jobs: list[str] = [job for job in JOBS if job in asked]
    if {"report", "backlog"} & set(jobs) and "lifecycle" not in jobs:
        jobs.insert(0, "lifecycle")
    return jobs


def _law(options: argparse.Namespace, shape: str, engine: str, job: str) -> list[dict[str, Any]]:
    """The lines of one job, a line per size."""
    found: list[tuple[int, Run]] = []
    for jobs in options.jobs:
        log = written(options.dir, shape, jobs)
        places = Places(log.absolute(), (options.dir / f"{log.name}-{engine}").absolute())
        print(f"{shape}, {engine}, {job}, {jobs:,} jobs", file=sys.stderr, flush=True)
        best = min((run(places, job, engine) for _ in range(options.repeats)), key=_cost)
        found.append((jobs, best))
    what = {"shape": shape, "engine": engine, "job": job}
    return [{**what, **line} for line in lines_of(found)]


def lines_of(found: Sequence[tuple[int, Run]]) -> list[dict[str, Any]]:
    """Costs at each size, and how they relate to those at the size before.

    Args:
        found: (jobs, what they took), ascending.
    """
    lines: list[dict[str, Any]] = []
    for place, (jobs, taken) in enumerate(found):
        line: dict[str, Any] = {
            "jobs": jobs,
            "wall_s": round(taken.wall_s, 2),
            "cpu_us_per_row": round(taken.cpu_s / (jobs * ROWS_PER_JOB) * 1e6, 3),
            "driver_mb": round(taken.driver_mb),
        }
        if place:
            before, known = found[place - 1]
            # What more rows cost, without what starting costs.
            more = (jobs - before) * ROWS_PER_JOB
            line["cpu_us_per_further_row"] = round((taken.cpu_s - known.cpu_s) / more * 1e6, 3)
            line["memory_ratio"] = round(taken.driver_mb / known.driver_mb, 2)
        if place > 1 and lines[-1]["cpu_us_per_further_row"] > 0:
            per_row = line["cpu_us_per_further_row"] / lines[-1]["cpu_us_per_further_row"]
            line["cost_ratio"] = round(per_row, 2)
        lines.append(line)
    return lines


def _cost(found: Run) -> float:
    return found.cpu_s


def _planning() -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for topics in PLANNED_TOPICS:
        print(f"planning, {topics} topics", file=sys.stderr, flush=True)
        seconds = planned_s(topics)
        line: dict[str, Any] = {
            "job": "planning",
            "topics": topics,
            "cpu_us_per_topic": round(seconds / topics * 1e6, 1),
        }
        if lines:
            line["cost_ratio"] = round(line["cpu_us_per_topic"] / lines[-1]["cpu_us_per_topic"], 2)
        lines.append(line)
    return lines


COLUMNS = (
    ("shape", "shape"),
    ("engine", "engine"),
    ("job", "job"),
    ("jobs", "jobs"),
    ("topics", "topics"),
    ("wall_s", "s"),
    ("cpu_us_per_row", "CPU µs/row"),
    ("cpu_us_per_further_row", "per further row"),
    ("cpu_us_per_topic", "per topic"),
    ("cost_ratio", "× before"),
    ("driver_mb", "driver MB"),
    ("memory_ratio", "× before"),
)


def _render(lines: list[dict[str, Any]]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH)
    table = Table(title="Growth laws of the pipeline")
    shown = [(key, head) for key, head in COLUMNS if any(key in line for line in lines)]
    for place, (_, head) in enumerate(shown):
        table.add_column(head, justify="left" if place < 3 else "right")
    for line in lines:
        table.add_row(*(_cell(line.get(key)) for key, _ in shown))
    console.print(table)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.laws", description=__doc__)
    choices = [*JOBS, "planning"]
    parser.add_argument(
        "--only", nargs="+", choices=choices, default=choices, metavar="JOB",
        help=f"only these: {', '.join(choices)}",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", nargs="+", type=int, default=[10_000, 30_000, 100_000], metavar="N",
        help="sizes of the logs, ascending; a job is 4.4 rows (default: 10000 30000 100000)",
    )  # fmt: skip
    parser.add_argument(
        "--engine", nargs="+", choices=ENGINES, default=["duckdb"], metavar="ENGINE",
        help="duckdb, spark, or both (default: duckdb)",
    )  # fmt: skip
    parser.add_argument(
        "--shape", nargs="+", choices=list(SHAPES), default=["hot"], metavar="SHAPE",
        help=f"logs of these shapes: {', '.join(SHAPES)} (default: hot)",
    )  # fmt: skip
    parser.add_argument("--repeats", type=int, default=1, help="runs of each, the best counts")
    parser.add_argument("--json", action="store_true", help="the figures as JSON on stdout")
    parser.add_argument(
        "--dir", type=Path, default=Path("bench-results/laws"),
        help="logs and tables are kept below this directory (default: bench-results/laws)",
    )  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
