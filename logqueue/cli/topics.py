"""`logqueue topics`, `create`, `ensure`, `configure`, `drop`.

Owns: which config fields have flags of their own. Must not know: how a call is made.
"""

from __future__ import annotations

import argparse
from typing import Any

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, add_yes, duration_ms, fields, natural
from logqueue.cli.connection import connect
from logqueue.cli.exits import CommandError, NothingThere, UsageError
from logqueue.cli.output import TableColumn, number
from logqueue.errors import TopicNotFound, quoted

DURABILITIES = ("ephemeral", "memory", "disk", "fsync")


def add_to(commands: Commands) -> None:
    """Declare the commands."""
    topics = commands.add_calling(
        "topics",
        _topics,
        "list topics: logs and queues",
        examples=("logqueue topics", "logqueue topics --prefix orders. --json | jq -r .topic"),
    )
    topics.add_argument("--prefix", help="only topics with this prefix")
    create = commands.add_calling(
        "create",
        _create,
        "create a topic",
        more="A topic that exists is left alone.",
        examples=(
            "logqueue create events --ttl 7d",
            "logqueue create jobs --queue --lease 1m --max-deliveries 5 --dead-letter jobs.dead",
            """logqueue create jobs --queue --set 'retry_backoff={"kind":"exponential"}'""",
        ),
    )
    create.add_argument("topic")
    create.add_argument("--queue", action="store_true", help="a queue; a log if not given")
    create.add_argument(
        "--exist-ok", action="store_true", help="succeed also when it exists, and change nothing"
    )
    _add_config(create)
    ensure = commands.add_calling(
        "ensure",
        _ensure,
        "create a topic if it is missing, and report where an existing one differs",
        more="An existing topic is never changed. Only the config that is named is compared. "
        "Exit status 0 when the topic is as wanted, 4 when it differs.",
        examples=(
            "logqueue ensure events --ttl 7d",
            "logqueue ensure jobs --queue --max-deliveries 5 --dead-letter jobs.dead",
        ),
    )
    ensure.add_argument("topic")
    ensure.add_argument("--queue", action="store_true", help="a queue; a log if not given")
    _add_config(ensure)
    configure = commands.add_calling(
        "configure",
        _configure,
        "change the config of a topic",
        more="Fields that are not named stay unchanged; `=null` resets a field to its default.",
        examples=(
            "logqueue configure jobs --max-deliveries 10",
            "logqueue configure jobs --set max_in_flight=100 --set claim_rate=null",
        ),
    )
    configure.add_argument("topic")
    configure.add_argument(
        "--if-version",
        metavar="VERSION",
        help="only if the config has this version; see config_version in `logqueue stats --json`",
    )
    _add_config(configure)
    drop = commands.add_calling(
        "drop",
        _drop,
        "delete a topic and all its records",
        examples=("logqueue drop events", "logqueue drop jobs --if-empty --yes"),
    )
    drop.add_argument("topic")
    drop.add_argument("--if-empty", action="store_true", help="only if it is empty")
    add_yes(drop)


def _add_config(parser: argparse.ArgumentParser) -> None:
    config = parser.add_argument_group("config")
    config.add_argument("--durability", choices=DURABILITIES, help="when a write counts as stored")
    config.add_argument("--ttl", type=duration_ms, metavar="TIME", help="how long records live")
    config.add_argument(
        "--cap-records", type=natural, metavar="N", help="maximum number of records"
    )
    config.add_argument("--cap-bytes", type=natural, metavar="N", help="maximum number of bytes")
    config.add_argument("--discard", choices=("old", "reject"), help="what a full topic does")
    config.add_argument("--lease", type=duration_ms, metavar="TIME", help="queue: lease of a claim")
    config.add_argument(
        "--max-deliveries",
        type=natural,
        metavar="N",
        help="queue: maximum number of deliveries of a job",
    )
    config.add_argument(
        "--dead-letter", metavar="TOPIC", help="queue: topic that takes the dead letters"
    )
    config.add_argument(
        "--set",
        action="append",
        default=[],
        dest="fields",
        metavar="FIELD=VALUE",
        help="any other field of the config; the value is JSON, or text; may be repeated",
    )


def _config(arguments: argparse.Namespace) -> dict[str, Any]:
    flags = {
        "durability": arguments.durability,
        "ttl_ms": arguments.ttl,
        "cap_records": arguments.cap_records,
        "cap_bytes": arguments.cap_bytes,
        "discard": arguments.discard,
        "lease_ms": arguments.lease,
        "max_deliveries": arguments.max_deliveries,
        "dead_letter": arguments.dead_letter,
    }
    try:
        others = fields(arguments.fields)
    except ValueError as error:
        raise UsageError(f"--set: {error}") from error
    from logqueue.client.topic_calls import known_config

    config = {**{name: value for name, value in flags.items() if value is not None}, **others}
    try:
        return dict(known_config(config))
    except TypeError as error:
        raise UsageError(f"--set: {error}") from error


def _topics(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = [*client.topics(prefix=arguments.prefix)]
    if arguments.json:
        for entry in found:
            output.json_line(entry)
    elif found:
        columns = (
            TableColumn("topic"),
            TableColumn("type"),
            number("records"),
            number("size"),
            number("head"),
            number("ready"),
            number("in flight"),
            TableColumn("durability"),
        )
        output.table(
            columns,
            (
                (
                    entry.topic,
                    entry.type or ("queue" if entry.queue else "log"),
                    entry.count,
                    output.size(entry.bytes),
                    entry.head_seq,
                    entry.queue.ready if entry.queue else None,
                    entry.queue.in_flight if entry.queue else None,
                    "fsync" if entry.durable else None,
                )
                for entry in found
            ),
        )
    if not found:
        raise NothingThere(
            f"no topic begins with {quoted(arguments.prefix)}"
            if arguments.prefix
            else "there are no topics; `logqueue create` makes one"
        )
    return exits.OK


def _create(arguments: argparse.Namespace) -> int:
    name = arguments.topic
    config = _config(arguments)
    if arguments.queue:
        config["type"] = "queue"
    with connect(arguments) as client:
        # A put on a topic that exists would replace its whole config.
        try:
            state = client.topic(name, touch=False)
        except TopicNotFound:
            made = client.put_topic(name, **config)
            if arguments.json:
                output.json_line(made)
            else:
                output.say(f"created {made.config.type} {name} ({made.config.durability})")
            return exits.OK
    if not arguments.exist_ok:
        raise CommandError(
            f"{name} exists already, as a {state.type}; `logqueue configure` changes it, "
            "--exist-ok leaves it"
        )
    if arguments.queue and state.type != "queue":
        raise CommandError(f"{name} exists already, and is a log: a type can never be changed")
    if arguments.json:
        output.json_line({"topic": name, "created": False, "config": state.config})
    else:
        output.say(f"{name} exists already")
    return exits.OK


def _ensure(arguments: argparse.Namespace) -> int:
    name = arguments.topic
    config = {"type": "queue" if arguments.queue else "log", **_config(arguments)}
    with connect(arguments) as client:
        found = client.ensure_topic(name, **config)
    if arguments.json:
        output.json_line(found)
    elif found.created:
        output.say(f"created {found.config.type} {name} ({found.config.durability})")
    elif not found.differs:
        output.say(f"{name} exists as wanted")
    for field, drift in found.differs.items():
        have, want = output.to_json(drift.have), output.to_json(drift.want)
        output.say(f"logqueue ensure: {name}: {field} is {have}, not {want}")
    return exits.DIFFERS if found.differs else exits.OK


def _configure(arguments: argparse.Namespace) -> int:
    config = _config(arguments)
    if not config:
        raise UsageError("name what to change, as in --max-deliveries 10 or --set FIELD=VALUE")
    if "paused" in config:
        raise UsageError(
            "paused cannot be changed as config: use `logqueue pause` or `logqueue resume`"
        )
    with connect(arguments) as client:
        changed = client.patch_topic(arguments.topic, if_version=arguments.if_version, **config)
    if arguments.json:
        output.json_line(changed)
    else:
        output.say(f"changed {', '.join(config)} of {changed.topic}")
    return exits.OK


def _drop(arguments: argparse.Namespace) -> int:
    name = arguments.topic
    with connect(arguments) as client:
        state = client.topic(name, touch=False)
        if not arguments.if_empty:
            records = output.count_of(state.count, "record")
            output.require_consent(arguments, f"Delete {state.type} {name} with {records}?")
        dropped = client.drop_topic(name, if_empty=arguments.if_empty)
    if not dropped.deleted:
        raise NothingThere(f"topic {quoted(name)} no longer exists")
    if arguments.json:
        output.json_line(dropped)
    else:
        also = "".join(f", and router {router}" for router in dropped.routers_removed)
        output.say(f"deleted {name}{also}")
    return exits.OK
