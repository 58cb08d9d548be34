"""`logqueue dead`, `redrive`, `release`, `cancel`, `pause`, `resume`, `purge`.

Owns: which dead letters belong to a queue. Must not know: how a call is made.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, add_yes, natural, positive
from logqueue.cli.connection import connect
from logqueue.cli.dead_letters import REASONS, add_selection, letters_of, watched
from logqueue.cli.exits import CommandError, NothingThere, UsageError
from logqueue.cli.job_changes import STATES
from logqueue.cli.output import TableColumn, number
from logqueue.errors import quoted

if TYPE_CHECKING:
    from logqueue.client import Client
    from logqueue.shapes import Record


_TOPIC_HELP = "the dead-letter topic, or a queue: then only what came from it"


def add_to(commands: Commands) -> None:
    """Declare the commands."""
    dead = commands.add_calling(
        "dead",
        _dead,
        "list dead letters: jobs that failed permanently",
        examples=("logqueue dead thumbnails", "logqueue dead thumbnails --json | jq .data"),
    )
    dead.add_argument("topic", help=_TOPIC_HELP)
    dead.add_argument("--reason", choices=REASONS, help="only those with this failure reason")
    dead.add_argument("--limit", "-n", type=positive, default=100, help="default: 100")
    _add_redrive(commands)
    release = commands.add_calling(
        "release",
        _release,
        "make held jobs ready again, as if never delivered",
        examples=("logqueue release thumbnails 17 18",),
    )
    release.add_argument("queue")
    release.add_argument("seqs", nargs="+", type=natural, metavar="SEQ")
    cancel = commands.add_calling(
        "cancel",
        _cancel,
        "cancel a waiting or held job",
        examples=("logqueue cancel thumbnails 17 --force", "logqueue cancel reports --key daily"),
    )
    cancel.add_argument("queue")
    cancel.add_argument("seq", nargs="?", type=natural, metavar="SEQ")
    cancel.add_argument("--key", help="the waiting job with this key")
    cancel.add_argument("--force", action="store_true", help="cancel even a job that is in flight")
    for name, what in (
        ("pause", "stop claims of a queue; appends and running jobs continue"),
        ("resume", "hand out the jobs of a paused queue again"),
    ):
        parser = commands.add_calling(name, _pause, what, examples=(f"logqueue {name} thumbnails",))
        parser.add_argument("queue")
    purge = commands.add_calling(
        "purge",
        _purge,
        "remove all jobs of a queue that are in some states",
        examples=(
            "logqueue purge thumbnails --state ready,delayed",
            "logqueue purge thumbnails --all --yes",
        ),
    )
    purge.add_argument("queue")
    purge.add_argument("--state", metavar="STATE", help=f"one or more of {', '.join(STATES)}")
    purge.add_argument("--all", action="store_true", help="in any state")
    add_yes(purge)


def _add_redrive(commands: Commands) -> None:
    redrive = commands.add_calling(
        "redrive",
        _redrive,
        "move dead letters back to the queues they came from",
        examples=(
            "logqueue redrive thumbnails --dry-run",
            "logqueue redrive thumbnails.dead --reason rejected --limit 10",
            "logqueue redrive thumbnails.dead --seq 5 --seq 6 --to thumbnails.retry",
            "logqueue redrive thumbnails --error 'upstream answered 502' --rate 50",
        ),
    )
    redrive.add_argument("topic", help=_TOPIC_HELP)
    redrive.add_argument("--to", metavar="QUEUE", help="another queue to move them to")
    redrive.add_argument("--seq", type=natural, action="append", help="only this; repeatable")
    redrive.add_argument("--tag", help="only those with this tag, or `abc*` for a prefix")
    add_selection(redrive)
    redrive.add_argument("--limit", "-n", type=positive, help="maximum number (default: all)")
    redrive.add_argument("--dry-run", action="store_true", help="only count; move nothing")


# -- dead letters --------------------------------------------------------------------------------


def _letters(client: Client, name: str, reason: str | None) -> Iterator[Record]:
    """The selected dead letters."""
    from logqueue.errors import TopicNotFound
    from logqueue.shapes import Record

    topic, queue = letters_of(client, name)
    try:
        for item in client.read(topic):
            if not isinstance(item, Record):
                continue
            if queue is not None and _stamp(item, "from") != queue:
                continue
            if reason is None or _stamp(item, "reason") == reason:
                yield item
    except TopicNotFound:
        if queue is None:
            raise  # a queue's dead-letter topic is made with the first letter


def _stamp(record: Record, name: str) -> Any:
    """What the server noted on a dead letter."""
    meta = record.meta if isinstance(record.meta, dict) else {}
    return meta.get(f"$dead_letter_{name}")


def _dead(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = [*islice(_letters(client, arguments.topic, arguments.reason), arguments.limit)]
    if not found:
        raise NothingThere(f"{arguments.topic} has no dead letters")
    if arguments.json:
        for record in found:
            output.json_line(record)
        return exits.OK
    error = TableColumn("error", is_long=True, is_optional=True)
    columns = (
        number("seq"),
        TableColumn("from"),
        TableColumn("reason", is_optional=True),
        number("runs"),
        TableColumn("at"),
    )
    output.table(
        (*columns, error, TableColumn("data", is_long=True)),
        (
            (
                str(record.seq),
                _stamp(record, "from"),
                _stamp(record, "reason"),
                _stamp(record, "deliveries"),
                output.when(record.ts),
                _stamp(record, "error"),
                output.to_json(record.data),
            )
            for record in found
        ),
    )
    if len(found) == arguments.limit:
        output.say("perhaps there are more: see --limit")
    return exits.OK


def _redrive(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        topic, queue = letters_of(client, arguments.topic)
        wanted: dict[str, Any] = {
            "to": arguments.to,
            "seqs": arguments.seq,
            "match": arguments.tag,
            "reason": arguments.reason,
            "origin": queue,
            "error": arguments.error,
        }
        started = client.redrive_in_background(
            topic,
            limit=arguments.limit,
            rate_per_s=arguments.rate,
            dry_run=arguments.dry_run,
            **wanted,
        )
        done = watched(client, started.operation)
        remaining = done.matched - (0 if arguments.dry_run else done.changed)
        if arguments.limit is not None and arguments.json:
            left = client.redrive_in_background(topic, dry_run=True, **wanted)
            remaining = watched(client, left.operation).matched
    targets = sorted(done.targets or ())
    if queue is not None and not done.matched:
        raise NothingThere(f"{queue} has no such dead letters")
    if arguments.json:
        output.json_line(
            {
                "topic": topic,
                "redriven": done.changed,
                "skipped": done.skipped,
                "remaining": remaining,
                "targets": targets,
                "dry_run": arguments.dry_run,
            }
        )
    else:
        verb = "would move" if arguments.dry_run else "moved"
        where = f" to {', '.join(targets)}" if targets else ""
        output.say(f"{verb} {output.count_of(done.changed, 'dead letter')}{where}")
    if done.skipped:
        raise CommandError(
            f"{done.skipped} stay: no known queue to go to, or no room there; --to names another"
        )
    return exits.OK if done.changed else exits.NOTHING


# -- jobs ----------------------------------------------------------------------------------------


def _release(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        released = client.release(arguments.queue, arguments.seqs)
    if arguments.json:
        output.json_line(released)
    else:
        output.say(f"released {output.count_of(released.released, 'job')} of {arguments.queue}")
    if released.skipped:
        raise CommandError(f"not held: {', '.join(map(str, released.skipped[:10]))}")
    return exits.OK


def _cancel(arguments: argparse.Namespace) -> int:
    if (arguments.seq is None) == (arguments.key is None):
        raise UsageError("name the job by its SEQ or by --key, one of the two")
    with connect(arguments) as client:
        if arguments.key is not None:
            cancelled = client.cancel_key(arguments.queue, arguments.key)
        else:
            cancelled = client.cancel(arguments.queue, arguments.seq, force=arguments.force)
    if arguments.json:
        output.json_line(cancelled)
    if not cancelled.cancelled:
        if cancelled.state == "in_flight":
            raise CommandError("the job is in flight: pass --force to cancel it anyway")
        raise NothingThere(f"{arguments.queue} has no such job to cancel")
    if not arguments.json:
        output.say(f"cancelled job {cancelled.seq} of {arguments.queue}")
    return exits.OK


def _pause(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        call: Callable[[str], Any] = client.pause if arguments.command == "pause" else client.resume
        paused = call(arguments.queue)
    if arguments.json:
        output.json_line(paused)
    else:
        output.say(f"{paused.topic} is {'paused' if paused.paused else 'not paused'}")
    return exits.OK


def _purge(arguments: argparse.Namespace) -> int:
    if (arguments.state is None) is not arguments.all:
        raise UsageError(f"say which: --state with one or more of {', '.join(STATES)}, or --all")
    states: list[Any] = [*STATES] if arguments.all else arguments.state.split(",")
    unknown = [state for state in states if state not in STATES]
    if unknown:
        raise UsageError(f"--state: invalid state {quoted(unknown[0])}: use {', '.join(STATES)}")
    queue = arguments.queue
    with connect(arguments) as client:
        counters = client.topic(queue, touch=False).queue
        if counters is None:
            raise CommandError(f"{queue} is a log, not a queue; `logqueue drop` deletes it")
        count = sum(getattr(counters, state) for state in states)
        words = ", ".join(state.replace("_", " ") for state in states)
        output.require_consent(
            arguments, f"Remove {output.count_of(count, 'job')} ({words}) of {queue} permanently?"
        )
        purged = client.purge(queue, states)
    removed = sum(purged.purged.values())
    if arguments.json:
        output.json_line(purged)
    else:
        output.say(f"removed {output.count_of(removed, 'job')} of {queue}")
    return exits.OK if removed else exits.NOTHING
