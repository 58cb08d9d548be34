"""`logqueue pipeline simulate`: queues replayed under scenarios.

Owns: its flags turned into arguments, what people see of the result. Must not know: how a queue is
replayed.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from logqueue.cli import exits, output
from logqueue.cli.pipeline_jobs import input_of, names_of, page_of
from logqueue.cli.pipeline_runs import refusals, run_on_duckdb, to_people

if TYPE_CHECKING:
    from logqueue.pipeline.progress import Note

BY_DEFAULT = ("workers=x0.5", "workers=x2")

_SHOWN = (
    ("wait_p50", "wait p50", output.lasting),
    ("wait_p95", "wait p95", output.lasting),
    ("whole_p95", "done p95", output.lasting),
    ("backlog_max", "backlog", int),
    ("dead", "dead", int),
)


def simulate(arguments: argparse.Namespace) -> int:
    """Replay queues with other workers, load or limits."""
    tables: str | None = arguments.lifecycle
    place = None if tables else input_of(arguments)
    formats, page = names_of(arguments.format, "--format"), page_of(arguments, place)
    with refusals():
        from logqueue.pipeline.simulation.scenario import parse_scenario

        scenarios = [parse_scenario(text) for text in arguments.what_if or BY_DEFAULT]

    def work(note: Note) -> dict[str, Any]:
        from logqueue.pipeline.engines.duckdb.input import LocalInput
        from logqueue.pipeline.engines.duckdb.reports import run_report
        from logqueue.pipeline.engines.duckdb.simulation import Simulation
        from logqueue.pipeline.engines.duckdb.workers import WorkerPool
        from logqueue.pipeline.reports.run import ReportRequest

        with WorkerPool() as pool:
            return run_report(
                LocalInput(place, pool) if place is not None else tables or "",
                arguments.to,
                ReportRequest(bucket=arguments.bucket, formats=formats, page=page),
                simulation=Simulation(scenarios, arguments.seeds),
                note=note,
                pool=pool,
            )

    summary = run_on_duckdb(arguments, work)
    _show(arguments, summary)
    to_people(arguments, {"written to": arguments.to})
    return exits.OK


def _show(arguments: argparse.Namespace, summary: dict[str, Any]) -> None:
    """Scenarios as a table, for people."""
    if arguments.json:
        return
    columns = [
        output.TableColumn("queue"),
        output.TableColumn("scenario"),
        *(output.number(name) for _, name, _ in _SHOWN),
    ]
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for row in summary["what_if"]:
        rows.setdefault((row["topic"], row["scenario"]), {})[row["metric"]] = row["mid"]
    cells = [
        [*names, *(show(round(found[metric])) if metric in found else None
                   for metric, _, show in _SHOWN)]
        for names, found in rows.items()
    ]  # fmt: skip
    for text in output.made_table(columns, cells):
        output.say(text)
    errors = [
        f"{row['topic']}: wait p95 {row['error']:.0%} off"
        for row in summary["back_test"]
        if row["metric"] == "wait_p95" and row["error"] is not None
    ]
    output.say(f"back-test  {', '.join(errors) or 'too few runs in the first half'}")
