"""`logqueue promote`: make a standby the writer.

Owns: the command. Must not know: how a call is made, how a server takes over.
"""

from __future__ import annotations

import argparse

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands
from logqueue.cli.connection import connect, url_of
from logqueue.cli.exits import UsageError


def add_to(commands: Commands) -> None:
    """Declare the command."""
    promote = commands.add_calling(
        "promote",
        _promote,
        "make a standby the writer of its log",
        more="Name the standby with --url. It asks the writer to hand over: the writer commits all "
        "it has to the replica and ends with status 0, so nothing is lost.",
        examples=(
            "logqueue promote --url http://b:4000",
            "logqueue promote --url http://b:4000 --force",
        ),
    )
    promote.add_argument(
        "--force",
        action="store_true",
        help="take over without asking the writer: what it has not committed to the replica is "
        "lost",
    )


def _promote(arguments: argparse.Namespace) -> int:
    url = url_of(arguments)
    if "," in url:
        raise UsageError(f"name the standby alone with --url: '{url}' is several servers")
    with connect(arguments) as client:
        taken = client.promote(force=arguments.force)
    if arguments.json:
        output.json_line(taken)
    else:
        output.line(f"{url} is the writer now (epoch {taken.epoch})")
    return exits.OK
