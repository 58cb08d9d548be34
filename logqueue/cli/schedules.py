"""`logqueue schedules`: list, show, make, pause, run and delete schedules, and preview cron texts.

Owns: the command and its actions. Must not know: how a call is made.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from logqueue.cli import exits, output
from logqueue.cli.arguments import (
    Commands,
    add_address,
    add_json,
    add_retrying,
    duration_ms,
    natural,
)
from logqueue.cli.connection import connect
from logqueue.cli.exits import NothingThere, UsageError
from logqueue.cli.output import TableColumn, number
from logqueue.errors import quoted

if TYPE_CHECKING:
    from logqueue.shapes import Schedule, ScheduleEntry

_CATCH_UP = ("none", "one", "all")
_OF_RECORDS = ("tag", "key", "unique", "priority", "group")
"""What flags say of the record."""


def add_to(commands: Commands) -> None:
    """Declare the command."""
    schedules = commands.add(
        "schedules",
        _list,
        "list, make, pause, run and delete schedules, which write jobs at given times",
        examples=(
            "logqueue schedules list",
            """logqueue schedules put nightly reports --cron '0 3 * * *' --tz Europe/Berlin """
            """--data '{"task": "report"}'""",
            "logqueue schedules put poll feeds --every 5m --data 1 --jitter 10s",
            "logqueue schedules preview '0 3 * * *' --tz Europe/Berlin",
            "logqueue schedules run nightly",
        ),
    )
    actions = schedules.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list schedules with their next firings")
    listing.set_defaults(run=_list)
    listing.add_argument("--prefix", help="only names with this prefix")
    listing.add_argument("--topic", help="only those that write to this topic")
    put = actions.add_parser("put", help="create a schedule, or replace its options")
    put.set_defaults(run=_put)
    put.add_argument("schedule", help="its name")
    put.add_argument("topic", help="the topic it writes to")
    _add_times(put)
    _add_record(put)
    parsers = [listing, put]
    for name, run, text in (
        ("show", _show, "show a schedule and its next firings"),
        ("pause", _pause, "let a schedule fire no more until it is resumed"),
        ("resume", _resume, "let a paused schedule fire again"),
        ("run", _run, "write the record of a schedule now; its times do not change"),
        ("delete", _delete, "delete a schedule; its jobs stay"),
    ):
        action = actions.add_parser(name, help=text)
        action.set_defaults(run=run)
        action.add_argument("schedule", help="its name")
        if name == "show":
            _add_count(action)
        parsers.append(action)
    preview = actions.add_parser("preview", help="print when a cron text fires")
    preview.set_defaults(run=_preview)
    preview.add_argument("cron", help="five fields, or @daily and the like")
    preview.add_argument("--tz", metavar="ZONE", help="time zone (default: UTC)")
    _add_count(preview)
    for parser in (*parsers, preview):
        add_address(parser)
        add_retrying(parser)
        add_json(parser)


def _add_times(put: argparse.ArgumentParser) -> None:
    put.add_argument("--cron", metavar="TEXT", help="five fields, or @daily and the like")
    put.add_argument(
        "--every", type=duration_ms, metavar="TIME", help="time between two firings, such as 5m"
    )
    put.add_argument("--tz", metavar="ZONE", help="time zone of --cron (default: UTC)")
    put.add_argument(
        "--jitter", type=duration_ms, metavar="TIME", help="fire up to so long after each time"
    )
    put.add_argument(
        "--catch-up", choices=_CATCH_UP, help="which missed firings are made up for (default: one)"
    )
    paused = put.add_mutually_exclusive_group()
    paused.add_argument("--paused", action="store_true", default=None, help="do not fire yet")
    paused.add_argument(
        "--resumed", dest="paused", action="store_false", help="fire, even if it is paused now"
    )
    put.add_argument(
        "--if-absent",
        action="store_true",
        help="never change an existing schedule; status 4 if it differs",
    )


def _add_record(put: argparse.ArgumentParser) -> None:
    put.add_argument("--data", type=_json, metavar="JSON", help="the data of the record")
    put.add_argument(
        "--record",
        type=_json,
        metavar="JSON",
        help="the whole record, in place of --data: data, and perhaps tag, meta, key, ...",
    )
    put.add_argument("--tag", help="its tag")
    put.add_argument("--key", help="its key: at most one job has it")
    put.add_argument(
        "--unique",
        choices=("waiting", "running", "kept"),
        help="how long a job has the key; running: no firing while the last run is not over",
    )
    put.add_argument("--priority", type=natural, metavar="N", help="0 to 9")
    put.add_argument("--group", help="whose job it is")


def _add_count(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--next", type=natural, default=5, metavar="N", help="how many firings (default: 5)"
    )


def _json(text: str) -> tuple[Any]:
    """A JSON value, in a tuple: null is one, too.

    Raises:
        argparse.ArgumentTypeError: It is not JSON.
    """
    try:
        return (json.loads(text, parse_constant=_refuse),)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON: use a number or null")


def _list(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = [*client.schedules(prefix=arguments.prefix, topic=arguments.topic)]
    if not found:
        raise NothingThere("there are no such schedules; `logqueue schedules put` makes one")
    if arguments.json:
        for entry in found:
            output.json_line(entry)
        return exits.OK
    columns = (
        TableColumn("schedule"),
        TableColumn("topic"),
        TableColumn("times"),
        TableColumn("next"),
        TableColumn("last"),
        number("fired"),
        TableColumn("state"),
    )
    output.table(
        columns,
        (
            (
                entry.schedule,
                entry.topic,
                _times(entry),
                output.when(entry.next_at) or "",
                output.when(entry.last_fired_at) or "",
                entry.fired,
                _state(entry),
            )
            for entry in found
        ),
    )
    return exits.OK


def _times(entry: ScheduleEntry) -> str:
    if entry.cron is None:
        return f"every {output.lasting(entry.every_ms)}"
    return f"{entry.cron} {entry.timezone}"


def _state(entry: ScheduleEntry) -> str:
    if entry.paused:
        return "paused"
    return f"failing: {entry.last_error.code}" if entry.last_error is not None else "ok"


def _put(arguments: argparse.Namespace) -> int:
    if (arguments.cron is None) == (arguments.every is None):
        raise UsageError("give either --cron or --every")
    with connect(arguments) as client:
        made = client.put_schedule(
            arguments.schedule,
            arguments.topic,
            _record(arguments),
            cron=arguments.cron,
            every_ms=arguments.every,
            timezone=arguments.tz,
            jitter_ms=arguments.jitter,
            catch_up=arguments.catch_up,
            paused=arguments.paused,
            if_absent=arguments.if_absent,
        )
    if arguments.json:
        output.json_line(made)
    elif made.created or not arguments.if_absent:
        verb = "created" if made.created else "configured"
        output.say(f"{verb} schedule {made.schedule}: {_times(made)}, to {made.topic}")
        _say_next(made.next)
    for field, drift in (made.differs or {}).items():
        have, want = output.to_json(drift.have), output.to_json(drift.want)
        output.say(f"schedule {made.schedule} differs: {field} is {have}, not {want}")
    return exits.DIFFERS if made.differs else exits.OK


def _record(arguments: argparse.Namespace) -> Any:
    from logqueue.client import NewRecord

    if (arguments.data is None) == (arguments.record is None):
        raise UsageError("give either --data or --record")
    if arguments.record is None:
        own = {name: getattr(arguments, name) for name in _OF_RECORDS}
        return NewRecord(arguments.data[0], **own)
    record = arguments.record[0]
    given = [name for name in _OF_RECORDS if getattr(arguments, name) is not None]
    if given:
        raise UsageError(f"with --record, {given[0]} is a member of it")
    if not isinstance(record, dict) or "data" not in record:
        raise UsageError("--record must be an object with `data`")
    unknown = sorted(record.keys() - {*NewRecord.__struct_fields__})
    if unknown:
        raise UsageError(f"--record has the unknown member {quoted(unknown[0])}")
    return NewRecord(**record)


def _show(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = client.schedule(arguments.schedule, next=arguments.next)
    _print(arguments, found)
    return exits.OK


def _print(arguments: argparse.Namespace, found: Schedule) -> None:
    if arguments.json:
        output.json_line(found)
        return
    error = found.last_error
    output.facts(
        (
            ("schedule", found.schedule),
            ("topic", found.topic),
            ("times", _times(found)),
            ("jitter", output.lasting(found.jitter_ms) if found.jitter_ms else None),
            ("catch up", found.catch_up),
            ("record", output.to_json(found.record)),
            ("state", _state(found)),
            ("last error", f"{error.message}" if error is not None else None),
            ("last fired", output.when(found.last_fired_at)),
            ("last job", found.last_seq),
            ("fired", found.fired),
            ("skipped", found.skipped or None),
            ("missed", found.missed or None),
            ("failed", found.failed or None),
            *(("next", output.when(at)) for at in found.next),
        )
    )


def _pause(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = client.pause_schedule(arguments.schedule)
    if arguments.json:
        output.json_line(found)
    else:
        output.say(f"paused schedule {found.schedule}")
    return exits.OK


def _resume(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = client.resume_schedule(arguments.schedule)
    if arguments.json:
        output.json_line(found)
    else:
        output.say(f"resumed schedule {found.schedule}")
        _say_next(found.next)
    return exits.OK


def _run(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        ran = client.run_schedule(arguments.schedule)
    if arguments.json:
        output.json_line(ran)
    elif ran.result in ("created", "replaced"):
        output.say(f"{ran.result} job {ran.seq} of {ran.topic}")
    else:
        output.say(f"nothing written: job {ran.seq} of {ran.topic} has the key")
    return exits.OK


def _delete(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        dropped = client.drop_schedule(arguments.schedule)
    if not dropped.deleted:
        raise NothingThere(f"there is no schedule {quoted(arguments.schedule)}")
    if arguments.json:
        output.json_line(dropped)
    else:
        output.say(f"deleted schedule {dropped.schedule}")
    return exits.OK


def _preview(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = client.firings(arguments.cron, timezone=arguments.tz, next=arguments.next)
    if arguments.json:
        output.json_line(found)
        return exits.OK
    for at in found.next:
        output.line(output.when(at) or "")
    return exits.OK


def _say_next(times: list[int]) -> None:
    if times:
        output.say(f"next: {output.when(times[0])}")
