"""`logqueue server` and `logqueue log-level`: the server as its operator sees it.

Owns: the commands. Must not know: how a call is made, how the server finds out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, duration_ms
from logqueue.cli.connection import connect, url_of
from logqueue.cli.exits import CommandError, UsageError
from logqueue.cli.output import TableColumn, number

if TYPE_CHECKING:
    from logqueue.shapes import LogLevel, ServerState

LEVELS = ("debug", "info", "warning", "error")
SLOW_SHOWN = 10
NEARLY = 0.5


def add_to(commands: Commands) -> None:
    """Declare the commands."""
    commands.add_calling(
        "server",
        _server,
        "show the health of the server, its disk, memory, limits and slow requests",
        more="Exits with status 1 when the health is bad, so that scripts can test it.",
        examples=("logqueue server", "logqueue server --json | jq .health"),
    )
    level = commands.add_calling(
        "log-level",
        _log_level,
        "show or change how much the server logs",
        more="`debug` logs every request. Without --for the level stays until the server ends.",
        examples=("logqueue log-level", "logqueue log-level debug --for 10m"),
    )
    level.add_argument("level", nargs="?", choices=LEVELS, metavar="|".join(LEVELS))
    level.add_argument(
        "--for", dest="for_ms", type=duration_ms, metavar="TIME", help="return after so long"
    )


def _server(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        state = client.server()
    if arguments.json:
        output.json_line(state)
    else:
        _show(state)
    if state.health.state == "bad":
        raise CommandError(state.health.text)
    return exits.OK


def _log_level(arguments: argparse.Namespace) -> int:
    if arguments.level is None and arguments.for_ms is not None:
        raise UsageError("--for belongs to a level: logqueue log-level debug --for 10m")
    url = url_of(arguments)
    if arguments.level is not None and "," in url:
        raise UsageError(f"each server has its own log level: name one with --url, not '{url}'")
    level: LogLevel
    with connect(arguments) as client:
        if arguments.level is None:
            level = client.server().log_level
        else:
            level = client.set_log_level(arguments.level, for_ms=arguments.for_ms)
    if arguments.json:
        output.json_line(level)
    elif level.until is not None:
        output.line(f"{level.level} until {output.when(level.until)}, then {level.configured}")
    else:
        output.line(level.level)
    return exits.OK


# -- the state as text ---------------------------------------------------------------------------


def _show(state: ServerState) -> None:
    output.line(f"health: {state.health.state}")
    for finding in state.health.findings:
        text = f"  {finding.severity:<4}  {finding.text} {finding.advice}"
        output.line(output.printable(text))
    output.line("")
    output.facts(_facts(state))
    output.line("")
    output.table(
        (
            TableColumn("log"),
            number("segments"),
            number("size"),
            number("newest", is_optional=True),
            number("waiting frames"),
        ),
        (
            (log.log, log.segments, output.size(log.bytes), log.newest, log.waiting_frames)
            for log in state.logs
        ),
    )
    output.line("")
    output.table(
        (TableColumn("memory"), number("size")),
        ((part.text, output.size(part.bytes)) for part in state.memory.parts if part.bytes),
    )
    _show_slow(state)


def _show_slow(state: ServerState) -> None:
    if not state.slow_requests:
        return
    output.line("")
    output.table(
        (
            number("took"),
            TableColumn("slowest requests of the last hour"),
            TableColumn("name"),
            number("status"),
            TableColumn("at", is_optional=True),
        ),
        (
            (
                f"{slow.took_ms:,.0f} ms",
                f"{slow.method} {slow.route}",
                slow.name,
                str(slow.status),
                output.when(slow.at),
            )
            for slow in state.slow_requests[:SLOW_SHOWN]
        ),
    )


def _facts(state: ServerState) -> Iterator[tuple[str, object]]:
    sync, disk, memory = state.sync, state.disk, state.memory.resident_bytes
    yield "version", f"{state.version}, Python {state.python}"
    yield "phase", state.phase if state.role == "none" else f"{state.phase}, {state.role}"
    yield "up", output.lasting(state.uptime_ms)
    yield "topics", state.topics
    yield "records", f"{state.records:,} ({output.size(state.record_bytes)})"
    if sync.p50_ms is not None:
        yield (
            "syncs",
            f"median {sync.p50_ms:.2f} ms, 99th percentile {sync.p99_ms:.2f} ms, "
            f"longest {sync.max_ms:.2f} ms (of the last {sync.recent:,})",
        )
    if disk is not None:
        free = f"{output.size(disk.free_bytes)} free of {output.size(disk.total_bytes)}"
        yield "disk", f"{free}; logs use {output.size(disk.logs_bytes)}"
    yield "memory", output.size(memory) if memory is not None else None
    if state.checkpoints is not None:
        yield "last checkpoint", output.when(state.checkpoints.last_at)
    if state.archive is not None:
        kept = output.count_of(state.archive.segments, "segment")
        yield "archive", f"{kept}, {output.size(state.archive.bytes)}"
    if state.replica is not None:
        yield "replica", f"{state.replica.state}, {state.replica.lag_ms or 0:,} ms behind"
    seen = state.connections
    yield "connections", f"{seen.open}, {seen.streams} streams, {seen.claims_waiting} claims wait"
    yield "log level", state.log_level.level
    for limit in state.limits:
        if limit.max and limit.used >= limit.max * NEARLY:
            yield "limit", f"{limit.text}: {limit.used:,} of {limit.max:,}"
    if state.backup is not None:
        sent, total = output.size(state.backup.sent_bytes), output.size(state.backup.total_bytes)
        yield "backup", f"{sent} of {total} sent"
    for setting in state.settings:
        yield "setting", f"{setting.name}={setting.value}"
