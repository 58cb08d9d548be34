"""`logqueue stats`: statistics of the server, its queues, or one topic, once or refreshed.

Owns: what is shown. Must not know: how a call is made.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, duration_s
from logqueue.cli.connection import connect
from logqueue.cli.exits import UsageError
from logqueue.cli.output import number
from logqueue.cli.terminal import Redrawn, TableColumn

if TYPE_CHECKING:
    from logqueue.client import Client
    from logqueue.client.live_stats import LiveStats
    from logqueue.shapes import Health, StatsTopic, TopicEntry, TopicState

EVERY_S = 2.0
ATTENTION_SHOWN = 5
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
    number("workers", is_optional=True),
    TableColumn("state", is_optional=True),
)


def add_to(commands: Commands) -> None:
    """Declare the command."""
    stats = commands.add_calling(
        "stats",
        _stats,
        "show statistics of the server, its queues, or one topic",
        more="--watch follows the live feed of the server: it also shows rates, means of the last "
        "10 seconds, and what needs attention.",
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
        elif arguments.watch:
            _watch(client, arguments)
        else:
            _show_all(client, arguments)
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

    @classmethod
    def at_all(cls, client: Client, arguments: argparse.Namespace) -> StatsSnapshot:
        """Look now."""
        return cls(client.health(), [*client.topics(prefix=arguments.prefix)])


def _summary(version: str, uptime_ms: int, topics: Iterable[TopicEntry | StatsTopic]) -> str:
    """The server in one line."""
    known = [*topics]
    count = output.count_of(len(known), "topic")
    records = output.count_of(sum(entry.count for entry in known), "record")
    size = output.size(sum(entry.bytes for entry in known))
    return f"logqueue {version}, up {output.lasting(uptime_ms)}: {count}, {records}, {size}"


def _show_json(client: Client, arguments: argparse.Namespace) -> None:
    snapshot = StatsSnapshot.at_all(client, arguments)
    output.json_line({"server": snapshot.health, "topics": snapshot.topics}, at_once=True)


def _show_all(client: Client, arguments: argparse.Namespace) -> None:
    snapshot = StatsSnapshot.at_all(client, arguments)
    output.line(_summary(snapshot.health.version, snapshot.health.uptime_ms, snapshot.topics))
    if snapshot.topics:
        output.table(_COLUMNS, _rows(snapshot))


def _rows(snapshot: StatsSnapshot) -> Iterator[tuple[object, ...]]:
    for entry in snapshot.topics:
        queue = entry.queue
        if queue is None:
            yield entry.topic, entry.count, output.size(entry.bytes), None, *(None,) * 9
            continue
        yield (
            entry.topic,
            entry.count,
            output.size(entry.bytes),
            None,
            queue.ready,
            queue.in_flight,
            queue.delayed or None,
            queue.held or None,
            output.lasting(queue.oldest_ready_ms) if queue.oldest_ready_ms else None,
            None,
            queue.dead_lettered or None,
            None,
            "paused" if queue.paused else None,
        )


# -- the live feed -------------------------------------------------------------------------------


class _Latest:
    """The last event of the live feed, taken by a thread of its own: what is shown is redrawn also
    while nothing changes but the time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._came = threading.Event()
        self._seen: tuple[LiveStats, float] | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        try:
            for live in self._client.stats_stream():
                self._seen = (live, time.monotonic())
                self._came.set()
        except BaseException as error:
            self._error = error
            self._came.set()

    def now(self) -> tuple[LiveStats, int]:
        """The event, and what time it is by the server's clock; waits for the first."""
        self._came.wait()
        if self._error is not None:
            raise self._error
        assert self._seen is not None
        live, at = self._seen
        return live, live.at + int((time.monotonic() - at) * 1000)


def _watch(client: Client, arguments: argparse.Namespace) -> None:
    """A table of the live feed, on a terminal redrawn in place."""
    drawn = Redrawn(sys.stdout) if sys.stdout.isatty() else None
    latest = _Latest(client)
    while True:
        live, now = latest.now()
        topics = {n: t for n, t in live.topics.items() if n.startswith(arguments.prefix or "")}
        uptime_ms = now - live.server.started_at
        lines = [_summary(live.server.version, uptime_ms, topics.values())]
        if topics:
            lines += output.made_table(_COLUMNS, _live_rows(topics, now))
        lines += [f"! {output.printable(item.text)}" for item in live.attention[:ATTENTION_SHOWN]]
        if drawn is not None:
            drawn.draw(lines)
        else:
            output.line("\n".join(lines), at_once=True)
        time.sleep(arguments.every)


def _live_rows(topics: dict[str, StatsTopic], now: int) -> Iterator[tuple[object, ...]]:
    for name, topic in topics.items():
        first = (name, topic.count, output.size(topic.bytes), f"{topic.rates.appended:,.1f}")
        if topic.type != "queue":
            yield *first, *(None,) * 9
            continue
        oldest = topic.oldest_ready_at
        yield (
            *first,
            topic.ready,
            topic.in_flight,
            topic.delayed or None,
            topic.held or None,
            output.lasting(max(now - oldest, 0)) if oldest is not None else None,
            f"{topic.rates.acked:,.1f}",
            topic.dead or None,
            topic.workers or None,
            (topic.held_back or "").replace("_", " ") or ("paused" if topic.paused else None),
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
