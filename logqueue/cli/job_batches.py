"""`logqueue batches`: list, show, close and delete batches of jobs.

Owns: the command and its actions. Must not know: how a call is made.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, add_address, add_json, add_retrying, duration_ms
from logqueue.cli.connection import connect
from logqueue.cli.exits import NothingThere
from logqueue.cli.output import TableColumn, number

if TYPE_CHECKING:
    from logqueue.shapes import BatchState


def add_to(commands: Commands) -> None:
    """Declare the command."""
    batches = commands.add(
        "batches",
        _list,
        "list, show, close and delete batches of jobs",
        examples=(
            "logqueue batches list",
            "logqueue batches show import-17 --wait 20s",
            "logqueue batches close import-17",
        ),
    )
    actions = batches.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list batches with their counts")
    listing.set_defaults(run=_list)
    listing.add_argument("--prefix", help="only names with this prefix")
    parsers = [listing]
    for name, run, text in (
        ("show", _show, "show a batch, or wait for its end"),
        ("close", _close, "have a batch end with its last job"),
        ("delete", _delete, "delete a batch that has no jobs left"),
    ):
        action = actions.add_parser(name, help=text)
        action.set_defaults(run=run)
        action.add_argument("batch", help="its name")
        if name == "show":
            action.add_argument(
                "--wait",
                type=duration_ms,
                default=0,
                metavar="TIME",
                help="wait until it has ended, 30s at most",
            )
        parsers.append(action)
    for parser in parsers:
        add_address(parser)
        add_retrying(parser)
        add_json(parser)


def _list(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = [*client.batches(prefix=arguments.prefix)]
    if not found:
        raise NothingThere("there are no such batches")
    if arguments.json:
        for entry in found:
            output.json_line(entry)
        return exits.OK
    columns = (
        TableColumn("batch"),
        TableColumn("state"),
        number("joined"),
        number("done"),
        number("failed"),
        number("left"),
    )
    output.table(
        columns,
        (
            (entry.batch, entry.state, entry.joined, entry.done, entry.failed, entry.left)
            for entry in found
        ),
    )
    return exits.OK


def _show(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        _print(arguments, client.batch(arguments.batch, wait_ms=arguments.wait))
    return exits.OK


def _close(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        _print(arguments, client.close_batch(arguments.batch))
    return exits.OK


def _print(arguments: argparse.Namespace, found: BatchState) -> None:
    if arguments.json:
        output.json_line(found)
        return
    error = found.last_error
    callbacks = (("on done", found.on_done), ("on problem", found.on_problem))
    output.facts(
        (
            ("batch", found.batch),
            ("state", found.state),
            ("joined", found.joined),
            ("done", found.done),
            ("failed", found.failed),
            ("left", found.left),
            *(
                (name, f"{callback.topic} {output.to_json(callback.record)}")
                for name, callback in callbacks
                if callback is not None
            ),
            ("last error", error.message if error is not None else None),
            ("created", output.when(found.created_at)),
            ("closed", output.when(found.closed_at)),
            ("ended", output.when(found.ended_at)),
        )
    )


def _delete(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = client.drop_batch(arguments.batch)
    if not found.deleted:
        raise NothingThere(f"there is no batch {found.batch}")
    if arguments.json:
        output.json_line(found)
    else:
        output.say(f"deleted batch {found.batch}")
    return exits.OK
