"""`logqueue routers`: list, create and delete routers.

Owns: the command and its three actions. Must not know: how a call is made.
"""

from __future__ import annotations

import argparse

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, add_address, add_json, add_retrying
from logqueue.cli.connection import connect
from logqueue.cli.exits import NothingThere
from logqueue.cli.output import TableColumn, number
from logqueue.errors import quoted


def add_to(commands: Commands) -> None:
    """Declare the command."""
    routers = commands.add(
        "routers",
        _list,
        "list, create and delete routers, which copy records from topic to topic",
        examples=(
            "logqueue routers list --from orders",
            "logqueue routers create orders-audit orders audit",
            "logqueue routers create vip orders vip --tag 'vip*'",
            "logqueue routers delete vip",
        ),
    )
    actions = routers.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list routers")
    listing.set_defaults(run=_list)
    listing.add_argument("--from", dest="source", metavar="TOPIC", help="only from this topic")
    listing.add_argument("--to", dest="dest", metavar="TOPIC", help="only to this topic")
    create = actions.add_parser("create", help="create a router, or replace its options")
    create.set_defaults(run=_create)
    create.add_argument("router", help="its name")
    create.add_argument("source", help="the topic it copies from; created if it does not exist")
    create.add_argument("dest", help="the topic it copies to; created if it does not exist")
    create.add_argument("--tag", help="only records with this tag, or `abc*` for a prefix")
    delete = actions.add_parser("delete", help="delete a router; topics and copies stay")
    delete.set_defaults(run=_delete)
    delete.add_argument("router", help="its name")
    for parser in (listing, create, delete):
        add_address(parser)
        add_retrying(parser)
        add_json(parser)


def _list(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = [*client.routers(source=arguments.source, dest=arguments.dest)]
    if not found:
        raise NothingThere("there are no such routers; `logqueue routers create` makes one")
    if arguments.json:
        for entry in found:
            output.json_line(entry)
        return exits.OK
    columns = (TableColumn("router"), TableColumn("from"), TableColumn("to"), number("copied"))
    output.table(columns, ((r.router, r.source, r.dest, r.forwarded_total) for r in found))
    return exits.OK


def _create(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        made = client.put_router(
            arguments.router, arguments.source, arguments.dest, filter=arguments.tag
        )
    if arguments.json:
        output.json_line(made)
    else:
        verb = "created" if made.created else "replaced"
        output.say(f"{verb} router {made.router}: {made.source} to {made.dest}")
    return exits.OK


def _delete(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        dropped = client.drop_router(arguments.router)
    if not dropped.deleted:
        raise NothingThere(f"there is no router {quoted(arguments.router)}")
    if arguments.json:
        output.json_line(dropped)
    else:
        output.say(f"deleted router {dropped.router}")
    return exits.OK
