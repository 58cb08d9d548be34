"""`logqueue dead-letters`, `drop-letters`, `edit`; and how long work is watched.

Owns: groups of dead letters as a table, what is done to some of them, and its progress. Must not
know: how a call is made.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, add_yes, natural, positive
from logqueue.cli.connection import connect
from logqueue.cli.exits import CommandError, NothingThere, UsageError
from logqueue.cli.output import TableColumn, number

if TYPE_CHECKING:
    from logqueue.client import Client
    from logqueue.shapes import BackgroundStatus, DeadLetterGroup

REASONS = ("max_deliveries", "rejected", "expired")
POLL_S = 0.3
_BARS = "▁▂▃▄▅▆▇█"
_TOPIC_HELP = "the dead-letter topic, or a queue: then only what came from it"


def add_to(commands: Commands) -> None:
    """Declare the commands."""
    groups = commands.add_calling(
        "dead-letters",
        _groups,
        "show dead letters in groups of one cause",
        examples=("logqueue dead-letters", "logqueue dead-letters thumbnails --json"),
    )
    groups.add_argument("topic", nargs="?", help=f"{_TOPIC_HELP}; all when not given")
    groups.add_argument("--limit", "-n", type=positive, default=100, help="default: 100")
    drop = commands.add_calling(
        "drop-letters",
        _drop,
        "delete dead letters",
        examples=(
            "logqueue drop-letters thumbnails --error 'no such image *' --dry-run",
            "logqueue drop-letters thumbnails.dead --reason expired --yes",
        ),
    )
    drop.add_argument("topic", help=_TOPIC_HELP)
    drop.add_argument("--seq", type=natural, action="append", help="only this; repeatable")
    drop.add_argument("--tag", help="only those with this tag, or `abc*` for a prefix")
    drop.add_argument("--limit", "-n", type=positive, help="maximum number (default: all)")
    drop.add_argument("--dry-run", action="store_true", help="only count; delete nothing")
    add_selection(drop)
    add_yes(drop)
    edit = commands.add_calling(
        "edit",
        _edit,
        "give a waiting or held job other data",
        examples=(
            """logqueue edit thumbnails 17 --data '{"src":"b.png"}' --retry""",
            "logqueue edit thumbnails 17 --data - --tag fixed < job.json",
        ),
    )
    edit.add_argument("queue")
    edit.add_argument("seq", type=natural)
    edit.add_argument("--data", metavar="JSON", help="the new data; - reads stdin")
    edit.add_argument("--tag", help="the new tag; an empty one removes it")
    edit.add_argument("--retry", action="store_true", help="make the job ready now")


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Which dead letters, and how fast."""
    parser.add_argument("--reason", choices=REASONS, help="only those with this failure reason")
    parser.add_argument(
        "--error", metavar="TEXT", help="only this error, or kind of error as `dead-letters` says"
    )
    parser.add_argument("--rate", type=positive, metavar="N", help="at most so many per second")


def letters_of(client: Client, name: str) -> tuple[str, str | None]:
    """The dead-letter topic that a name refers to, and the queue to select by."""
    state = client.topic(name, touch=False)
    if state.type != "queue" or state.config.dead_letter is None:
        return name, None
    return state.config.dead_letter, name


def watched(client: Client, operation: BackgroundStatus) -> BackgroundStatus:
    """An operation once it is over; its progress is a line on a terminal meanwhile.

    Raises:
        CommandError: It failed, or another caller has stopped it.
    """
    has_line = sys.stderr.isatty()
    while operation.state == "running":
        if has_line:
            # What was examined and is not selected is done with, too.
            done = operation.scanned - operation.matched + operation.changed + operation.skipped
            shown = f"{operation.action}: {done:,} of {operation.total:,}"
            print(f"\r{shown}, {operation.changed:,} changed\x1b[K", end="", file=sys.stderr)
            sys.stderr.flush()
        time.sleep(POLL_S)
        operation = client.operation(operation.id).operation
    if has_line:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if operation.state != "done":
        why = operation.error.message if operation.error is not None else "it was stopped"
        raise CommandError(f"{operation.action} after {operation.changed:,}: {why}")
    return operation


def _groups(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        topic = queue = None
        if arguments.topic is not None:
            topic, queue = letters_of(client, arguments.topic)
        found = client.dead_letters(topic, origin=queue, limit=arguments.limit)
    if arguments.json:
        output.json_line(found)
        return exits.OK if found.groups else exits.NOTHING
    if not found.groups:
        raise NothingThere(f"{arguments.topic or 'this server'} has no dead letters")
    columns = (
        number("letters"),
        TableColumn("queue", is_optional=True),
        TableColumn("reason", is_optional=True),
        TableColumn("24 hours"),
        TableColumn("first"),
        TableColumn("last"),
        number("example"),
        TableColumn("error", is_long=True),
    )
    output.table(columns, map(_row, found.groups))
    if found.group_count > len(found.groups):
        output.say(f"{found.group_count - len(found.groups)} more groups: see --limit")
    return exits.OK


def _row(group: DeadLetterGroup) -> tuple[object, ...]:
    error = group.error if group.error is not None else "(all other errors)"
    return (
        group.count,
        group.queue,
        group.reason,
        trend(group.per_hour),
        output.when(group.first_at),
        output.when(group.last_at),
        str(group.example.seq) if group.example is not None else None,
        error or "(no error)",
    )


def trend(per_hour: list[int]) -> str:
    """Numbers as a line of bars; a dot where there was nothing."""
    most = max(per_hour, default=0) or 1
    return "".join(
        _BARS[max(count * len(_BARS) // most, 1) - 1] if count else "·" for count in per_hour
    )


def _drop(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        topic, queue = letters_of(client, arguments.topic)
        wanted: dict[str, Any] = {
            "seqs": arguments.seq,
            "match": arguments.tag,
            "reason": arguments.reason,
            "origin": queue,
            "error": arguments.error,
            "limit": arguments.limit,
        }
        counted = client.drop_dead_letters(topic, dry_run=True, wait=False, **wanted).operation
        count = watched(client, counted).changed
        if not arguments.dry_run and count:
            question = f"Delete {output.count_of(count, 'dead letter')} of {topic} permanently?"
            output.require_consent(arguments, question)
            started = client.drop_dead_letters(
                topic, rate_per_s=arguments.rate, wait=False, **wanted
            )
            count = watched(client, started.operation).changed
    if arguments.json:
        output.json_line({"topic": topic, "dropped": count, "dry_run": arguments.dry_run})
    else:
        verb = "would delete" if arguments.dry_run else "deleted"
        output.say(f"{verb} {output.count_of(count, 'dead letter')} of {topic}")
    return exits.OK if count else exits.NOTHING


def _edit(arguments: argparse.Namespace) -> int:
    import msgspec

    changes: dict[str, Any] = {"retry": True} if arguments.retry else {}
    if arguments.data is not None:
        text = sys.stdin.read() if arguments.data == "-" else arguments.data
        try:
            changes["data"] = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise UsageError(f"--data: not JSON: {error}") from error
    if arguments.tag is not None:
        changes["tag"] = arguments.tag or None
    if not changes:
        raise UsageError("nothing to change: give --data, --tag or --retry")
    with connect(arguments) as client:
        edited = client.edit_job(arguments.queue, arguments.seq, **changes)
    if arguments.json:
        output.json_line(edited)
    else:
        state = edited.state.replace("_", " ")
        output.say(f"changed job {edited.seq} of {arguments.queue}, which is {state}")
    return exits.OK
