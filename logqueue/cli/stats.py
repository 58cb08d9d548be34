"""`logqueue stats`: statistics of the server, its queues, or one topic, once or refreshed.

Owns: what is shown, and rates between two looks. Must not know: how a call is made.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, duration_s
from logqueue.cli.connection import connect
from logqueue.cli.exits import UsageError
from logqueue.cli.output import number
from logqueue.cli.terminal import Redrawn, TableColumn

if TYPE_CHECKING:
    from logqueue.client import Client
    from logqueue.shapes import Health, TopicEntry, TopicState

EVERY_S = 2.0
EVERY_S_MIN = 0.1

_COLUMNS = (
    TableColumn("topic"),
    number("records"),
    number("size"),
    number("in/s", is_optional=True),
    number("ready"),
    number("in flight"),
    number("delayed", is_optional=True),
    number("held", is_optional=True),
    number("oldest ready", is_optional=True),
    number("done/s", is_optional=True),
    number("dead", is_optional=True),
    TableColumn("state", is_optional=True),
)


def add_to(commands: Commands) -> None:
    """Declare the command."""
    stats = commands.add_calling(
        "stats",
        _stats,
        "show statistics of the server, its queues, or one topic",
        more="Rates are measured between two refreshes, so they need --watch.",
        examples=(
            "logqueue stats",
            "logqueue stats thumbnails",
            "logqueue stats --watch --every 5s",
            "logqueue stats thumbnails --json | jq .queue.ready",
        ),
    )
    stats.add_argument("topic", nargs="?", help="only this one, in full")
    stats.add_argument("--watch", action="store_true", help="refresh until Ctrl-C")
    stats.add_argument(
        "--every",
        type=duration_s,
        default=EVERY_S,
        metavar="TIME",
        help="how often (default: 2s)",
    )
    stats.add_argument("--prefix", help="only topics with this prefix")


def _stats(arguments: argparse.Namespace) -> int:
    if arguments.every < EVERY_S_MIN:
        raise UsageError(f"--every must be at least {EVERY_S_MIN} s")
    with connect(arguments) as client:
        if arguments.topic is not None:
            _repeat(arguments, lambda: _show_topic(client, arguments))
        elif arguments.json:
            _repeat(arguments, lambda: _show_json(client, arguments))
        elif arguments.watch and sys.stdout.isatty():
            _watch(client, arguments)
        else:
            before: list[StatsSnapshot] = []
            _repeat(arguments, lambda: _show_all(client, arguments, before))
    return exits.OK


def _repeat(arguments: argparse.Namespace, show: Callable[[], None]) -> None:
    """Show once; with --watch, until Ctrl-C."""
    show()
    while arguments.watch:
        sys.stdout.flush()
        time.sleep(arguments.every)
        show()


# -- the server and its queues -------------------------------------------------------------------


@dataclass(frozen=True)
class StatsSnapshot:
    """The server and its topics at one moment."""

    health: Health
    topics: list[TopicEntry]
    at: float = field(default_factory=time.monotonic)

    @classmethod
    def at_all(cls, client: Client, arguments: argparse.Namespace) -> StatsSnapshot:
        """Look now."""
        return cls(client.health(), [*client.topics(prefix=arguments.prefix)])

    def summary(self) -> str:
        """The server in one line."""
        topics = output.count_of(len(self.topics), "topic")
        records = output.count_of(sum(entry.count for entry in self.topics), "record")
        size = output.size(sum(entry.bytes for entry in self.topics))
        up = output.lasting(self.health.uptime_ms)
        return f"logqueue {self.health.version}, up {up}: {topics}, {records}, {size}"


def _show_json(client: Client, arguments: argparse.Namespace) -> None:
    snapshot = StatsSnapshot.at_all(client, arguments)
    output.json_line({"server": snapshot.health, "topics": snapshot.topics}, at_once=True)


def _show_all(client: Client, arguments: argparse.Namespace, before: list[StatsSnapshot]) -> None:
    snapshot = StatsSnapshot.at_all(client, arguments)
    output.line(snapshot.summary())
    if snapshot.topics:
        output.table(_COLUMNS, _rows(snapshot, before[-1] if before else None))
    before[:] = [snapshot]


def _watch(client: Client, arguments: argparse.Namespace) -> None:
    """The same table, redrawn in place."""
    drawn = Redrawn(sys.stdout)
    before: StatsSnapshot | None = None
    while True:
        snapshot = StatsSnapshot.at_all(client, arguments)
        drawn.draw([snapshot.summary(), *output.made_table(_COLUMNS, _rows(snapshot, before))])
        before = snapshot
        time.sleep(arguments.every)


def _rows(snapshot: StatsSnapshot, before: StatsSnapshot | None) -> Iterator[tuple[object, ...]]:
    earlier = {entry.topic: entry for entry in before.topics} if before is not None else {}
    seconds = max(snapshot.at - before.at, 1e-9) if before is not None else 0.0
    for entry in snapshot.topics:
        old, queue = earlier.get(entry.topic), entry.queue
        into = f"{(entry.head_seq - old.head_seq) / seconds:,.0f}" if old else None
        if queue is None:
            yield entry.topic, entry.count, output.size(entry.bytes), into, *(None,) * 8
            continue
        done = None
        if old is not None and old.queue is not None:
            done = f"{(queue.acked - old.queue.acked) / seconds:,.0f}"
        yield (
            entry.topic,
            entry.count,
            output.size(entry.bytes),
            into,
            queue.ready,
            queue.in_flight,
            queue.delayed or None,
            queue.held or None,
            output.lasting(queue.oldest_ready_ms) if queue.oldest_ready_ms else None,
            done,
            queue.dead_lettered or None,
            "paused" if queue.paused else None,
        )


# -- one topic -----------------------------------------------------------------------------------


def _show_topic(client: Client, arguments: argparse.Namespace) -> None:
    state = client.topic(arguments.topic, touch=False)
    if arguments.json:
        output.json_line(state, at_once=True)
        return
    output.facts(_facts(state))
    if arguments.watch:
        output.line("")


def _facts(state: TopicState) -> Iterator[tuple[str, object]]:
    yield "topic", state.topic
    yield "type", state.type
    yield "records", state.count
    yield "size", output.size(state.bytes)
    yield "seqs", f"{state.earliest_seq} to {state.head_seq}" if state.count else None
    yield "last write", output.when(state.last_write_ts)
    yield "last read", output.when(state.last_read_ts)
    queue = state.queue
    if queue is not None:
        yield "state", "paused" if queue.paused else None
        for name in ("ready", "in_flight", "delayed", "held"):
            yield name.replace("_", " "), getattr(queue, name)
        oldest = output.lasting(queue.oldest_ready_ms)
        yield "oldest ready", oldest if queue.oldest_ready_ms else None
        ends = ("acked", "rejected", "expired", "dropped", "superseded", "cancelled")
        for name in (*ends, "dead_lettered"):
            yield name.replace("_", " "), getattr(queue, name) or None
    for name in state.config.__struct_fields__:
        value = getattr(state.config, name)
        if name != "type" and value not in (None, 0, False):
            shown = value if isinstance(value, bool | int | str) else output.to_json(value)
            yield f"config.{name}", shown
