"""`logqueue jobs change`, `logqueue operations`, and the flags that select jobs.

Owns: how a filter of jobs is written as flags, and what is said of a change of many jobs. Must not
know: how a call is made.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, add_yes, duration_ms, natural, positive
from logqueue.cli.connection import connect
from logqueue.cli.dead_letters import watched
from logqueue.cli.exits import CommandError, NothingThere, UsageError
from logqueue.cli.output import TableColumn, number
from logqueue.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logqueue.shapes import BackgroundStatus, JobAction

STATES = ("ready", "delayed", "in_flight", "held")
COMMAND = "change-jobs"
"""What `jobs change` is to the parser, which knows single words only."""

_ACTIONS = {
    "retry": "delayed and held jobs can be claimed now",
    "delay": "ready and delayed jobs can be claimed after this time",
    "hold": "ready and delayed jobs are not claimed until they are released",
    "release": "held jobs can be claimed now, as if never delivered",
    "cancel": "waiting and held jobs are removed",
    "return": "leases end, and their jobs can be claimed now",
    "prioritize": "waiting and held jobs have this priority from now on, 0 to 9",
}
_DONE = {
    "retry": "retried",
    "delay": "delayed",
    "hold": "held",
    "release": "released",
    "cancel": "cancelled",
    "return": "returned",
    "prioritize": "prioritized",
}


def add_to(commands: Commands) -> None:
    """Declare the commands."""
    change = commands.add_calling(
        COMMAND,
        _change,
        "retry, delay, hold, cancel or otherwise change many jobs (jobs change)",
        more="Selects jobs as `logqueue jobs` does; without a filter, all to which the action "
        "applies. --dry-run says how many.",
        examples=(
            "logqueue jobs change thumbnails --retry --state held --text 'no space left'",
            "logqueue jobs change thumbnails --delay 1h --tag 'night*' --dry-run",
            "logqueue jobs change thumbnails --return --node api-fra-1",
            "logqueue jobs change thumbnails --cancel --min-age 7d --rate 500 --yes",
        ),
    )
    # The actions in one line would be longer than a screen is wide; they are listed below it.
    change.usage = "logqueue change-jobs QUEUE ACTION [FILTER ...] [--dry-run] [...]"
    change.add_argument("queue")
    action = change.add_mutually_exclusive_group(required=True)
    for name, what in _ACTIONS.items():
        if name == "delay":
            action.add_argument("--delay", type=duration_ms, metavar="TIME", help=what)
        elif name == "prioritize":
            action.add_argument("--prioritize", type=natural, metavar="N", help=what)
        else:
            action.add_argument(
                f"--{name}", dest="action", action="store_const", const=name, help=what
            )
    add_filter(change)
    change.add_argument("--seq", type=natural, action="append", help="only this job; repeatable")
    change.add_argument(
        "--operation", metavar="ID", help="only jobs that this operation has changed"
    )
    change.add_argument("--force", action="store_true", help="cancel jobs in flight, too")
    change.add_argument("--limit", "-n", type=positive, help="maximum number (default: all)")
    change.add_argument("--rate", type=positive, metavar="N", help="at most so many per second")
    change.add_argument("--dry-run", action="store_true", help="only count; change nothing")
    change.add_argument(
        "--no-wait", action="store_true", help="print the operation and leave it running"
    )
    add_yes(change)
    operations = commands.add_calling(
        "operations",
        _operations,
        "list the background operations of the server, or show or stop one",
        examples=("logqueue operations", "logqueue operations op_1a1faeb833a001 --stop"),
    )
    operations.add_argument("id", nargs="?", metavar="ID")
    operations.add_argument("--stop", action="store_true", help="stop it before its next step")


def merged(words: Sequence[str]) -> list[str]:
    """The words of a command line, with `jobs change` as one command. A queue named `change` is
    still listed by `jobs change`, without a second name."""
    found = [*words]
    at = 0
    while at < len(found) and found[at].startswith("--"):
        at += 1 if "=" in found[at] else 2
    behind = "".join(found[at + 2 : at + 3])
    has_more = bool(behind) and (behind in ("-h", "--help") or not behind.startswith("-"))
    if has_more and found[at : at + 2] == ["jobs", "change"]:
        found[at : at + 2] = [COMMAND]
    return found


def add_filter(parser: argparse.ArgumentParser) -> None:
    """The flags that select jobs."""
    parser.add_argument(
        "--state", metavar="STATE", help=f"one or more of {', '.join(STATES)}, with commas"
    )
    parser.add_argument("--tag", help="this tag, or `abc*` for a prefix")
    parser.add_argument("--key", help="this key")
    parser.add_argument("--node", help="held under a lease by this node")
    parser.add_argument("--min-age", type=duration_ms, metavar="TIME", help="at least so old")
    parser.add_argument("--max-age", type=duration_ms, metavar="TIME", help="at most so old")
    parser.add_argument(
        "--min-deliveries", type=natural, metavar="N", help="delivered at least so often"
    )
    parser.add_argument("--text", help="with this text in data, tag, key or last error")
    parser.add_argument("--priority", type=natural, metavar="N", help="with this priority")
    parser.add_argument("--group", help="of this group")


def filter_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What those flags say, as clients take it.

    Raises:
        UsageError: A state is unknown.
    """
    states = arguments.state.split(",") if arguments.state else None
    unknown = [state for state in states or () if state not in STATES]
    if unknown:
        raise UsageError(f"--state: invalid state {quoted(unknown[0])}: use {', '.join(STATES)}")
    return {
        "state": states,
        "tag": arguments.tag,
        "key": arguments.key,
        "node": arguments.node,
        "min_age_ms": arguments.min_age,
        "max_age_ms": arguments.max_age,
        "min_deliveries": arguments.min_deliveries,
        "text": arguments.text,
        "priority": arguments.priority,
        "group": arguments.group,
    }


def _change(arguments: argparse.Namespace) -> int:
    action: JobAction = arguments.action or "delay"
    if arguments.prioritize is not None:
        action = "prioritize"
    asked = {
        **filter_of(arguments),
        "new_priority": arguments.prioritize,
        "seqs": arguments.seq,
        "operation": arguments.operation,
        "delay_ms": arguments.delay,
        "force": arguments.force,
        "limit": arguments.limit,
    }
    with connect(arguments) as client:
        if action == "cancel" and not (arguments.dry_run or arguments.yes):
            started = client.change_jobs(arguments.queue, action, **asked, dry_run=True)
            count = output.count_of(watched(client, started.operation).matched, "job")
            output.require_consent(arguments, f"remove {count} of {arguments.queue}?")
        started = client.change_jobs(
            arguments.queue,
            action,
            **asked,
            rate_per_s=arguments.rate,
            dry_run=arguments.dry_run,
        )
        operation = started.operation
        if not arguments.no_wait:
            try:
                operation = watched(client, operation)
            except KeyboardInterrupt:
                raise CommandError(
                    f"operation {operation.id} continues on the server; stop it with "
                    f"`logqueue operations {operation.id} --stop`"
                ) from None
    _say(arguments, operation)
    return exits.OK


def _say(arguments: argparse.Namespace, operation: BackgroundStatus) -> None:
    if arguments.json:
        output.json_line(operation)
        return
    if operation.state == "running":
        output.line(operation.id)
        return
    done = _DONE.get(operation.action, operation.action)
    count = output.count_of(operation.changed, "job")
    if operation.dry_run:
        output.say(f"{count} of {operation.topic} would be {done}")
        return
    skipped = f"; {operation.skipped:,} had changed meanwhile" if operation.skipped else ""
    output.say(f"{done} {count} of {operation.topic}{skipped}")
    if operation.undo is not None:
        output.say(
            f"undo: logqueue jobs change {operation.topic} --{operation.undo['action']} "
            f"--operation {operation.id}"
        )


def _operations(arguments: argparse.Namespace) -> int:
    if arguments.stop and arguments.id is None:
        raise UsageError("--stop needs the ID of an operation")
    with connect(arguments) as client:
        if arguments.id is None:
            found = client.operations()
        elif arguments.stop:
            found = [client.stop_operation(arguments.id).operation]
        else:
            found = [client.operation(arguments.id).operation]
    if not found:
        raise NothingThere("no background operation has run since the server started")
    if arguments.json:
        for operation in found:
            output.json_line(operation)
        return exits.OK
    counts = ("matched", "changed", "skipped", "scanned", "total")
    columns = (TableColumn("id"), TableColumn("action"), TableColumn("topic"), TableColumn("state"))
    ends = (TableColumn("started"), TableColumn("error", is_long=True, is_optional=True))
    output.table(
        (*columns, *map(number, counts), *ends),
        (
            (
                one.id,
                f"{one.action} (dry run)" if one.dry_run else one.action,
                one.topic,
                one.state,
                *(getattr(one, name) for name in counts),
                output.when(one.started_at),
                one.error.message if one.error is not None else None,
            )
            for one in found
        ),
    )
    return exits.OK
