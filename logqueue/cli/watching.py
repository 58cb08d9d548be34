"""`logqueue watch`: several topics at once, as records come.

Owns: the command. Must not know: how a stream is resumed.
"""

from __future__ import annotations

import argparse
from typing import Any

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, natural
from logqueue.cli.connection import connect
from logqueue.cli.records import show


def add_to(commands: Commands) -> None:
    """Declare the command."""
    watch = commands.add_calling(
        "watch",
        _watch,
        "print records of several topics as they come, until Ctrl-C",
        more="It reconnects automatically. It starts with new records by default.",
        examples=(
            "logqueue watch orders payments",
            "logqueue watch audit --from-start --json | jq -c .data",
        ),
    )
    watch.add_argument("topics", nargs="+", metavar="TOPIC")
    begin = watch.add_mutually_exclusive_group()
    begin.add_argument(
        "--from-start", action="store_true", help="start with all existing records, then follow"
    )
    begin.add_argument(
        "--after", type=natural, metavar="SEQ", help="start after this seq, then follow"
    )
    watch.add_argument("--data", action="store_true", help="print only the payloads, as JSON lines")


def _watch(arguments: argparse.Namespace) -> int:
    from logqueue.shapes import CaughtUp, Gap, TopicDeleted

    names = list(dict.fromkeys(arguments.topics))
    topics: Any = names if arguments.after is None else dict.fromkeys(names, arguments.after)
    is_tail = arguments.after is None and not arguments.from_start
    shown_topic = len(names) > 1 or arguments.json
    with connect(arguments) as client:
        for frame in client.watch(topics, tail=is_tail):
            match frame:
                case CaughtUp():
                    continue
                case TopicDeleted():
                    if arguments.json:
                        output.json_line({"topic": frame.topic, "deleted": True}, at_once=True)
                    else:
                        output.say(f"{frame.topic} was deleted")
                case Gap():
                    show(frame, arguments, topic=frame.topic if shown_topic else "", at_once=True)
                case _:
                    name = frame.topic if shown_topic else ""
                    for record in frame.records:
                        show(record, arguments, topic=name, at_once=True)
    output.say("nothing is left to watch")
    return exits.OK
