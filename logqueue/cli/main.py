"""The `logqueue` command: parse, call, and end with one line and a status.

Owns: the list of commands, and what becomes of everything a command can raise. Must not know: how
any command does its work.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from logqueue import extras
from logqueue.cli import (
    completion,
    dead_letters,
    exits,
    job_batches,
    job_changes,
    jobs,
    measuring,
    offline,
    operating,
    output,
    pipeline,
    promoting,
    records,
    replicas,
    results,
    routers,
    schedules,
    server_state,
    serving,
    sqs,
    stats,
    topics,
    watching,
    work_exec,
)
from logqueue.cli.arguments import Commands, add_address
from logqueue.cli.connection import url_of
from logqueue.cli.exits import CommandError, UsageError
from logqueue.errors import LogqueueError
from logqueue.version import __version__

EPILOG = """\
examples:
  logqueue serve --port 4000 --data-dir ./logqueue-data
  logqueue create thumbnails --queue --max-deliveries 5 --dead-letter thumbnails.dead
  logqueue append thumbnails jobs.jsonl
  logqueue work thumbnails --exec ./make-thumbnail
  logqueue stats --watch

`logqueue COMMAND --help` explains a command. Where no --url is given, LOGQUEUE_URL says where the
server is, and LOGQUEUE_TOKEN is the API key.

exit status (`serve` has its own):
  0  done
  1  failure; the message on stderr says which
  2  invalid usage
  3  nothing found: no such topic, router or job, or it is empty
  4  a topic differs from what was declared (`ensure`, `worker --check`)
"""


class _WholeParser(argparse.ArgumentParser):
    """Takes `jobs change` for one command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """See argparse."""
        words = sys.argv[1:] if args is None else args
        return super().parse_known_args(job_changes.merged(words), namespace)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    made = _WholeParser(
        prog="logqueue",
        description="A durable log and lease-queue server that fits on one machine.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"logqueue {__version__}")
    add_address(made, default=None)
    commands = Commands(made)
    for noun in (
        serving,
        topics,
        stats,
        records,
        watching,
        jobs,
        results,
        job_changes,
        work_exec,
        operating,
        dead_letters,
        promoting,
        routers,
        schedules,
        job_batches,
        server_state,
        measuring,
        offline,
        replicas,
        pipeline,
        sqs,
    ):
        noun.add_to(commands)
    completion.add_to(commands, parser)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit status.
    """
    with contextlib.suppress(AttributeError):  # a stream that a caller has put in the place
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    whole = parser()
    try:
        arguments = _parsed(whole, argv)
        if arguments.command is None:
            whole.print_help()
            return exits.USAGE
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the pipe has gone. Python must not try to flush the rest at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    return status


def _parsed(whole: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments. A FILE may also come behind flags, where argparse does not look for it."""
    _refuse_unknown_first(whole, sys.argv[1:] if argv is None else argv)
    arguments, rest = whole.parse_known_args(argv)
    if len(rest) == 1 and getattr(arguments, "file", "") is None and not rest[0].startswith("--"):
        arguments.file = rest.pop()
    if rest:
        arguments.parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return arguments


FIRST = ("-h", "--help", "--version", "--url", "--token")
"""Options that may precede the command."""


def _refuse_unknown_first(whole: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Refuse an option before the command that belongs behind it: argparse would pass over it and
    take its value for the command."""
    words = iter(argv)
    for word in words:
        name, equals, _ = word.partition("=")
        if not word.startswith("-") or word == "--":
            return
        if name in ("--url", "--token"):
            if not equals:
                next(words, None)
        elif not any(known.startswith(name) for known in FIRST):
            whole.error(f"unknown option before the command: {name}; put it after the command")


def _run(arguments: argparse.Namespace) -> int:
    try:
        status: int = arguments.run(arguments)
        return status
    except LogqueueError as error:
        failure: CommandError = exits.explained(error, url_of(arguments))
    except CommandError as error:
        failure = error
    except ImportError as error:
        advice = extras.missing(error, "this command")
        if advice is None:
            raise
        failure = CommandError(str(advice))
    except BrokenPipeError:
        raise
    except UnicodeEncodeError as error:
        text = error.object.encode(errors="backslashreplace").decode()
        failure = UsageError(f"an argument is not valid UTF-8: '{text[:80]}'")
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        failure = CommandError(f"{named}{error.strerror or error}")
    # What was printed so far comes before the reason for stopping.
    sys.stdout.flush()
    output.say(f"logqueue {arguments.command}: {output.printable(str(failure))}")
    return failure.status
