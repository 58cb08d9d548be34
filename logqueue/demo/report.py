"""The end of the demo as people and as machines read it.

Owns: tables and JSON. Must not know: how facts were gathered; it decides nothing.
"""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.table import Table

from logqueue.demo.checks import Check, DemoResults
from logqueue.demo.gap import TakeoverGap
from logqueue.demo.pipeline import Reckoning

SLOWEST = 8
REASON_CHARS_MAX = 160
PLAIN_WIDTH = 120


def render(facts: DemoResults, found: Reckoning | None, checks: list[Check], out: TextIO) -> None:
    """Print all tables, and the verdict as the last line."""
    console = _console(out)
    tables = [_summary(facts), _slowest(facts), _dead(facts)]
    tables += [_pipeline(found)] if found is not None else []
    for table in (*tables, _checks(checks)):
        console.print(table)
    if found is not None:
        console.print(f"Open the report in a browser: {found.page}", markup=False, soft_wrap=True)
    _verdict(facts, checks, console)


def render_failover(facts: DemoResults, gap: TakeoverGap, checks: list[Check], out: TextIO) -> None:
    """Print the tables of a run in which a standby took over, and the verdict as the last line."""
    console = _console(out)
    for table in (_summary(facts), _gap(gap), _checks(checks)):
        console.print(table)
    _verdict(facts, checks, console)


def _console(out: TextIO) -> Console:
    console = Console(file=out, highlight=False)
    return console if console.is_terminal else Console(file=out, highlight=False, width=PLAIN_WIDTH)


def _verdict(facts: DemoResults, checks: list[Check], console: Console) -> None:
    broken = [check.what for check in checks if not check.kept]
    if broken:
        console.print(f"FAILED: {'; '.join(broken)}", markup=False)
    else:
        console.print(
            f"OK: {len(facts.appended)} jobs in, {len(facts.results)} done, "
            f"{len(facts.dead)} dead-lettered, none lost.",
            markup=False,
        )


def as_json(facts: DemoResults, found: Reckoning | None, checks: list[Check]) -> dict[str, object]:
    """The same as one JSON object."""
    return {
        "ok": all(check.kept for check in checks),
        "jobs": len(facts.appended),
        "results": len(facts.results),
        "lines": sum(result.lines for result in facts.results),
        "functions": sum(result.functions for result in facts.results),
        "classes": sum(result.classes for result in facts.results),
        "dead_letters": [
            {"name": one.name, "deliveries": one.deliveries, "reason": one.reason}
            for one in facts.dead
        ],
        "seconds": round(facts.seconds, 3),
        "jobs_per_s": round(_rate(facts), 1),
        "workers": facts.workers,
        "kill": {
            "done": facts.kill.done,
            "in_flight": facts.kill.in_flight,
            "held_by_workers": len(facts.cut_off()),
            "delivered_again": len(facts.redelivered()),
            "restart_s": round(facts.kill.restart_s, 3),
        },
        "retries": facts.retries(),
        "results_kept_single": sum(tally.deduped for tally in facts.tallies),
        "pipeline": _pipeline_json(found) if found is not None else None,
        "checks": [
            {"what": check.what, "kept": check.kept, "found": check.found} for check in checks
        ],
    }


def _summary(facts: DemoResults) -> Table:
    kill = facts.kill
    table = Table(title="Results", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    rows = [
        ("files", f"{len(facts.appended):,}"),
        ("parsed", f"{len(facts.results):,}"),
        ("lines", f"{sum(result.lines for result in facts.results):,}"),
        ("functions", f"{sum(result.functions for result in facts.results):,}"),
        ("classes", f"{sum(result.classes for result in facts.results):,}"),
        ("time, including kill and restart", f"{facts.seconds:.2f} s"),
        ("jobs per second", f"{_rate(facts):,.0f}"),
        ("worker processes", f"{facts.workers}"),
        ("server killed (SIGKILL) after", f"{kill.done:,} jobs"),
        ("in flight at the kill, as counted by the server", f"{kill.in_flight}"),
        ("leased by workers at the kill", f"{len(facts.cut_off())}"),
        ("of these, delivered again (the others were acked)", f"{len(facts.redelivered())}"),
        ("duplicate results dropped by the server", f"{sum(t.deduped for t in facts.tallies)}"),
        ("time without a server that takes changes", f"{kill.restart_s:.2f} s"),
        ("retries of failed jobs", f"{facts.retries()}"),
        ("dead letters", f"{len(facts.dead)}"),
    ]
    for what, value in rows:
        table.add_row(what, value)
    return table


def _pipeline_json(found: Reckoning) -> dict[str, object]:
    return {
        "archive": found.archived,
        "lifecycle": found.jobs,
        "audit": found.audit,
        "report": str(found.page),
        "seconds": round(found.seconds, 3),
    }


def _pipeline(found: Reckoning) -> Table:
    table = Table(title="The log, analyzed by Spark", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    rows = {
        "records archived": found.archived["tables"]["records"]["rows"],
        "lease events archived": found.archived["tables"]["lease_events"]["rows"],
        "jobs": found.jobs["rows"]["jobs"],
        "attempts": found.jobs["rows"]["attempts"],
        "audit findings": found.findings,
    }
    for what, count in rows.items():
        table.add_row(what, f"{count:,}")
    table.add_row("time, including the start of Spark", f"{found.seconds:.1f} s")
    return table


def _slowest(facts: DemoResults) -> Table:
    table = Table(title="Slowest files")
    table.add_column("file")
    for column in ("lines", "functions", "classes", "ms"):
        table.add_column(column, justify="right")
    table.add_column("worker")
    for one in sorted(facts.results, key=lambda result: -result.seconds)[:SLOWEST]:
        table.add_row(
            one.name,
            f"{one.lines:,}",
            f"{one.functions:,}",
            f"{one.classes:,}",
            f"{one.seconds * 1000:.0f}",
            one.worker,
        )
    return table


def _dead(facts: DemoResults) -> Table:
    table = Table(title="Dead letters")
    table.add_column("file", overflow="fold")
    table.add_column("deliveries", justify="right")
    table.add_column("reason", overflow="fold")
    for one in sorted(facts.dead, key=lambda letter: letter.name):
        reason = " ".join(one.reason.split())
        table.add_row(one.name, str(one.deliveries), reason[:REASON_CHARS_MAX])
    return table


def _gap(gap: TakeoverGap) -> Table:
    table = Table(title="The gap")
    table.add_column("moment")
    table.add_column("seconds after the kill", justify="right")
    for what, at in gap.moments():
        table.add_row(what, "not seen" if at is None else f"{at:+.2f}")
    return table


def _checks(checks: list[Check]) -> Table:
    table = Table(title="Checks")
    table.add_column("check")
    table.add_column("passed")
    table.add_column("found", overflow="fold")
    for check in checks:
        table.add_row(check.what, "yes" if check.kept else "[bold red]NO[/]", check.found)
    return table


def _rate(facts: DemoResults) -> float:
    return len(facts.appended) / facts.seconds
